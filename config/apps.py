"""App configuration of config."""

import gc

from django.apps import AppConfig
from django.utils.module_loading import autodiscover_modules


class ConfigConfig(AppConfig):
    """Wires config into the house."""

    name = "config"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Import every app's tasks, so that the queue knows what may run.

        This is the last app: what was loaded by now stays, and is not looked at for garbage.
        """
        autodiscover_modules("tasks")
        gc.freeze()
        gc.enable()
