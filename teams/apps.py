"""App configuration of teams."""

from django.apps import AppConfig


class TeamsConfig(AppConfig):
    """Wires teams into the house."""

    name = "teams"
    default_auto_field = "django.db.models.BigAutoField"
