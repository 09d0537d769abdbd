"""App configuration of pipelines."""

from django.apps import AppConfig


class PipelinesConfig(AppConfig):
    """Wires pipelines into the house: its kinds of events, runners, planners and receivers."""

    name = "pipelines"
    verbose_name = "Work"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Register what others ask registries for."""
        from approvals.registry import register_permission
        from guards.registry import refuse_update, register_scopes
        from pipelines import checks, kinds, protections, receivers, registry, tasks
        from pipelines.deferral import ToolCallKind
        from pipelines.runners.claude.runner import ClaudeRunner
        from pipelines.runners.cli import CliRunner
        from pipelines.runners.planner import PlanCommand
        from pipelines.runners.send import SendCommand
        from pipelines.services import sending, tool_calls
        from pipelines.services.rules import RulePlanner
        from teams.registry import register_event_kinds

        register_event_kinds("pipelines", kinds.PIPELINES)
        register_scopes(
            "pipelines",
            {
                "pipelines:read": "Read pipelines, stages, missions, commands and rules.",
                "mission:work": "Work on one mission; only the token of its run can.",
            },
        )
        protections.register()
        refuse_update(
            "pipelines.Command",
            "command_serial_never_goes_back",
            "NEW.highest_serial < OLD.highest_serial",
            "the highest serial seen of a command never goes back",
        )
        registry.register_runner(CliRunner())
        registry.register_runner(ClaudeRunner())
        registry.register_planner(RulePlanner())
        registry.register_built_in(PlanCommand())
        registry.register_built_in(SendCommand())
        registry.register_waiter(tool_calls.is_answered)
        registry.register_waiter(sending.is_settled)
        register_permission(ToolCallKind())
        del checks, receivers, tasks  # imported to be registered
