"""App configuration of approvals."""

from django.apps import AppConfig


class ApprovalsConfig(AppConfig):
    """Wires approvals into the house: what triggers keep, and what is checked at start."""

    name = "approvals"
    verbose_name = "Sign-off"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Register protections, scopes and checks."""
        from approvals import checks, protections, receivers  # noqa: F401

        protections.register()
