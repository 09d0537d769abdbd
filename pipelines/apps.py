"""App configuration of pipelines."""

from django.apps import AppConfig


class PipelinesConfig(AppConfig):
    """Wires pipelines into the house: its kinds of events, runners, planners and receivers."""

    name = "pipelines"
    verbose_name = "Work"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Register what others ask registries for."""
        from guards.registry import append_only, frozen_columns, refuse_update, register_scopes
        from pipelines import checks, kinds, receivers, registry, tasks, tools
        from pipelines.runners.cli import CliRunner
        from pipelines.services.rules import RulePlanner
        from teams.registry import register_event_kinds

        register_event_kinds("pipelines", kinds.PIPELINES)
        register_scopes(
            "pipelines",
            {
                "pipelines:read": "Read pipelines, stages, missions, commands and rules.",
                "mission:work": "Read one mission's contract and hand in its result.",
            },
        )
        for label in ("MissionResult", "Reflection", "MissionEvent"):
            append_only(f"pipelines.{label}")
        frozen_columns(
            "pipelines.Mission",
            (
                *("pipeline", "stage", "attempt", "command", "digest", "contract"),
                *("contract_sha256", "write_set", "rounds", "max_usd"),
                *("worker", "evaluator", "evaluator_digest", "opened_at"),
            ),
        )
        frozen_columns("pipelines.ToolCall", ("mission", "round", "tool", "input", "digest"))
        refuse_update(
            "pipelines.Command",
            "command_serial_never_goes_back",
            "NEW.highest_serial < OLD.highest_serial",
            "the highest serial seen of a command never goes back",
        )
        registry.register_runner(CliRunner())
        registry.register_planner(RulePlanner())
        tools.register()
        del checks, receivers, tasks  # imported to be registered
