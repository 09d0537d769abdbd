"""System checks of teams: a log that nobody writes must not start."""

from __future__ import annotations

from typing import Any

from django.core.checks import CheckMessage, Error, register

from approvals import signals as approvals_signals
from guards import signals as guards_signals
from guards.types import HOUSE_CHECKS

_RECORDED = {
    "guards.decided": guards_signals.decided,
    "guards.key_changed": guards_signals.key_changed,
    "guards.permission_changed": guards_signals.permission_changed,
    "guards.token_changed": guards_signals.token_changed,
    "guards.task_refused": guards_signals.task_refused,
    "guards.unit_closing": guards_signals.unit_closing,
    "approvals.held": approvals_signals.held,
    "approvals.hold_closed": approvals_signals.hold_closed,
    "approvals.approval_changed": approvals_signals.approval_changed,
    "approvals.effect_changed": approvals_signals.effect_changed,
    "approvals.effect_acknowledged": approvals_signals.effect_acknowledged,
    "approvals.look_changed": approvals_signals.look_changed,
    "approvals.root_changed": approvals_signals.root_changed,
    "approvals.goal_changed": approvals_signals.goal_changed,
    "approvals.consent_changed": approvals_signals.consent_changed,
    "approvals.connection_changed": approvals_signals.connection_changed,
}


@register(HOUSE_CHECKS)
def recorders_are_connected(**_: Any) -> list[CheckMessage]:
    """Every announcement that has to be recorded has a receiver."""
    return [
        Error(
            f"nobody records the signal {name}",
            hint="teams.apps.TeamsConfig.ready() connects its receivers: is `teams` installed?",
            id="teams.E001",
        )
        for name, signal in _RECORDED.items()
        if not signal.receivers
    ]
