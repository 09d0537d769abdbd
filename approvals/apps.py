"""App configuration of approvals."""

from django.apps import AppConfig


class ApprovalsConfig(AppConfig):
    """Wires approvals into the house."""

    name = "approvals"
    default_auto_field = "django.db.models.BigAutoField"
