"""App configuration of config."""

from django.apps import AppConfig
from django.utils.module_loading import autodiscover_modules


class ConfigConfig(AppConfig):
    """Wires config into the house."""

    name = "config"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Import every app's tasks, so that the queue knows what may run; lay the pages' panels."""
        autodiscover_modules("tasks")
        from config import panels

        panels.register()
