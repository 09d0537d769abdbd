"""App configuration of config."""

from django.apps import AppConfig


class ConfigConfig(AppConfig):
    """Wires config into the house."""

    name = "config"
    default_auto_field = "django.db.models.BigAutoField"
