"""App configuration of pipelines."""

from django.apps import AppConfig


class PipelinesConfig(AppConfig):
    """Wires pipelines into the house."""

    name = "pipelines"
    default_auto_field = "django.db.models.BigAutoField"
