"""App configuration of teams."""

from django.apps import AppConfig


class TeamsConfig(AppConfig):
    """Wires teams into the house: event kinds, receivers, append-only tables."""

    name = "teams"
    verbose_name = "Record"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Register what teams records, and listen to the apps below."""
        from guards import registry
        from teams import checks, kinds, receivers  # noqa: F401

        registry.append_only("teams.Event")
        registry.append_only("teams.Checkpoint")
        registry.register_scopes("teams", {"events:read": "Read the event log and its feed."})
        kinds.register()
        receivers.connect()
