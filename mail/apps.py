"""App configuration of mail."""

from django.apps import AppConfig


class MailConfig(AppConfig):
    """Wires mail into the house."""

    name = "mail"
    default_auto_field = "django.db.models.BigAutoField"
