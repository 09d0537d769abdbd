"""App configuration of guards."""

from django.apps import AppConfig


class GuardsConfig(AppConfig):
    """Wires guards into the house."""

    name = "guards"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Put the fence around the queue."""
        from guards.queue import installation

        installation.install()
