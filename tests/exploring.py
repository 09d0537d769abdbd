"""Any order of a machine's rules, and a log that verifies afterwards."""

from __future__ import annotations

from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test

from teams.services import verification


def explore(machine: type[RuleBasedStateMachine], *, examples: int, steps: int) -> None:
    """So many orders of so many steps; whatever the machine asserts holds after each step."""
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
    assert verification.verify().ok
