"""App configuration of guards."""

from __future__ import annotations

from django.apps import AppConfig
from django.db.models.signals import post_migrate, pre_migrate


class GuardsConfig(AppConfig):
    """Wires guards into the house."""

    name = "guards"
    verbose_name = "Who may"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Protect the tables that must not change, name the scopes, fence the queue."""
        from guards import book_rules, checks, registry, triggers
        from guards.queue import installation

        registry.append_only("guards.Decision")
        registry.append_only("guards.ReplayEntry")
        book_rules.register()
        registry.register_scopes(
            "guards",
            {
                "contacts:read": "Look at the address book, with the rights for its own identity.",
                "decisions:read": "Read what was decided under its own identity.",
                "identities:read": "Look at its own identity.",
            },
        )
        pre_migrate.connect(triggers.lift_before_migration, dispatch_uid="guards.triggers.lift")
        post_migrate.connect(
            triggers.install_after_migration, dispatch_uid="guards.triggers.install"
        )
        checks.register()
        installation.install()
