"""What the database refuses on the tables of missions, whoever writes.

The core of the gate stands here once more: no service, no console and no SQL closes a mission
without a result of its round that passed, and what has ended stays as it ended.
"""

from __future__ import annotations

from guards.registry import RowRule, append_only, frozen_columns, refuse_rows, refuse_update

_MISSION = "pipelines.Mission"
_ROUND_HAS = (
    "EXISTS (SELECT 1 FROM {table} AS handed WHERE handed.mission_id = NEW.id "
    "AND handed.round = {round}{more})"
)
_MISSION_STANDS = (
    "EXISTS (SELECT 1 FROM pipelines_mission AS standing WHERE standing.id = NEW.mission_id "
    "AND standing.status = 'open' AND standing.round = NEW.round{more})"
)


def _round_has(table: str, of: str, more: str = "") -> str:
    return _ROUND_HAS.format(table=f"pipelines_{table}", round=of, more=more)


def register() -> None:
    """Register them all. Called once, in `ready()`."""
    for label in ("MissionResult", "Reflection", "MissionEvent"):
        append_only(f"pipelines.{label}")
    frozen_columns(
        _MISSION,
        (
            *("pipeline", "stage", "attempt", "command", "digest", "contract"),
            *("contract_sha256", "write_set", "rounds", "max_usd"),
            *("worker", "evaluator", "evaluator_digest", "opened_at"),
        ),
    )
    frozen_columns("pipelines.ToolCall", ("mission", "round", "tool", "input", "digest"))
    _protect_gate()
    _protect_course()
    _protect_results()


def _protect_gate() -> None:
    passed = _round_has("missionresult", "NEW.round", " AND handed.verdict = 'pass'")
    refuse_rows(
        RowRule(
            _MISSION,
            "mission_closes_only_with_a_result_that_passed",
            f"NEW.status = 'closed' AND (NEW.released_at IS NOT NULL OR NOT {passed})",
            "a mission closes only with a result of its round that passed",
        )
    )
    refuse_rows(
        RowRule(
            _MISSION,
            "mission_is_not_judged_by_its_worker",
            "NEW.worker = NEW.evaluator",
            "a mission's worker cannot be its evaluator",
        )
    )


def _protect_course() -> None:
    refuse_update(
        _MISSION,
        "mission_stays_ended",
        "OLD.status <> 'open' AND NEW.status <> OLD.status",
        "a mission that has ended stays as it ended",
    )
    refuse_update(
        _MISSION,
        "mission_stays_dispatched_and_released",
        "(OLD.dispatched_at IS NOT NULL AND NEW.dispatched_at IS NULL) "
        "OR (OLD.released_at IS NOT NULL AND NEW.released_at IS NULL)",
        "a mission stays dispatched, and a released write set stays released",
    )
    refuse_update(
        _MISSION,
        "mission_costs_only_rise",
        "NEW.usd < OLD.usd OR NEW.turns < OLD.turns",
        "what a mission has cost only rises",
    )
    handed_in = (
        f"{_round_has('missionresult', 'OLD.round')} OR {_round_has('reflection', 'OLD.round')}"
    )
    refuse_update(
        _MISSION,
        "mission_round_follows_the_one_before",
        f"NEW.round <> OLD.round AND (NEW.round <> OLD.round + 1 OR NOT ({handed_in}))",
        "a round follows the one before, once that has a result or a look back",
    )


def _protect_results() -> None:
    """Results come for the round that runs, of a mission whose worker was started."""
    dispatched = " AND standing.dispatched_at IS NOT NULL"
    for label, more in (("MissionResult", dispatched), ("Reflection", "")):
        refuse_rows(
            RowRule(
                f"pipelines.{label}",
                f"{label.lower()}_is_for_the_round_that_runs",
                f"NOT {_MISSION_STANDS.format(more=more)}",
                "a mission takes results and looks back for the round that runs, while it is open",
                events=("insert",),
            )
        )
