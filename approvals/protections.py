"""What the database refuses on approvals' tables, whoever writes: frozen intents, one-way moves."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from approvals.models import Approval, Effect
from guards import registry

_REQUEST = (
    "kind",
    "subject_type",
    "subject_id",
    "source_type",
    "source_id",
    "account_type",
    "account_id",
    "project",
)


def register() -> None:
    """Register them all. Called once, in `ready()`."""
    # Not the ciphertext: a new key encrypts the same plaintext again.
    registry.frozen_columns("approvals.Artifact", ("sha256", "size", "created_at"))
    registry.append_only("approvals.Observation")
    registry.frozen_columns("approvals.Hold", (*_REQUEST, "requested_by", "since"))
    registry.frozen_columns(
        "approvals.Approval",
        (
            *_REQUEST,
            "hold",
            "digest",
            "facts",
            "payload",
            "preview",
            "requested_by",
            "opened_by",
            "created_at",
            "expires_at",
            "decision",
            "root",
            "goal",
            "answer_via",
        ),
    )
    registry.frozen_columns(
        "approvals.Effect",
        (
            *_REQUEST,
            "approval",
            "digest",
            "payload",
            "facts",
            "job",
            "needs_authority",
            "root",
            "goal",
            "goal_revision",
            "consent",
            "authority",
            "created_at",
        ),
    )
    _protect_authority()
    registry.refuse_update(
        "approvals.Approval",
        "approval_moves",
        not_a_move("state", Approval.MOVES),
        "an approval moves forward only",
    )
    registry.refuse_update(
        "approvals.Effect",
        "effect_moves",
        not_a_move("phase", Effect.MOVES),
        "an effect moves forward only",
    )
    registry.refuse_update(
        "approvals.Effect",
        "effect_mark",
        MARK_REWRITTEN,
        "the mark of a contact is written once, with the phase, and never cleared",
    )
    registry.register_scopes(
        "approvals",
        {
            "approvals:answer": "Open drafts for review and answer them; a person's token only.",
            "approvals:read": "Read what waits, what was approved and what left.",
        },
    )


def _protect_authority() -> None:
    """Sessions are not prolonged, grants not widened, counts not taken back, jobs not given on."""
    registry.frozen_columns("approvals.Root", ("user", "principal", "created_at", "expires_at"))
    registry.frozen_columns(
        "approvals.Goal", ("root", "kind", "about_type", "about_id", "created_at")
    )
    registry.frozen_columns(
        "approvals.Consent",
        (
            "purpose",
            "root",
            "goal",
            "goal_revision",
            "effect",
            "connections",
            "digest",
            "request_digest",
            "created_at",
            "expires_at",
        ),
    )
    registry.frozen_columns("approvals.ContactBudget", ("consent", "contact", "cap"))
    registry.frozen_columns("approvals.Job", ("kind", "consent", "looks_at", "created_at"))
    registry.frozen_columns("approvals.Connection", ("account_type", "account_id", "use"))
    registry.refuse_update(
        "approvals.ContactBudget",
        "budget_counts_up",
        "NEW.spent < OLD.spent",
        "a contact that was counted stays counted",
    )
    for column in ("ended_at", "revoked_at"):
        registry.refuse_update(
            "approvals.Root",
            f"root_{column}_stays",
            written_once(column),
            "a session that is over stays over",
        )
    registry.refuse_update(
        "approvals.Consent",
        "consent_revoked_stays",
        written_once("revoked_at"),
        "a grant that was revoked stays revoked",
    )
    registry.refuse_update(
        "approvals.Job",
        "job_deadline_stays",
        "OLD.deadline IS NOT NULL AND (NEW.deadline IS NULL OR NEW.deadline > OLD.deadline)",
        "a job's deadline is never put off",
    )
    for column in ("quiesced_at", "finished_at"):
        registry.refuse_update(
            "approvals.Job",
            f"job_{column}_stays",
            written_once(column),
            "a job ends once",
        )
    registry.refuse_update(
        "approvals.Job",
        "job_claimed_once",
        "NEW.fence < OLD.fence OR NEW.attempts < OLD.attempts"
        " OR (OLD.attempts = 1 AND NEW.holder <> OLD.holder)",
        "a job is claimed once and never taken over",
    )


def written_once(column: str) -> str:
    """SQL that is true for an UPDATE which clears or rewrites a moment."""
    return f"OLD.{column} IS NOT NULL AND (NEW.{column} IS NULL OR NEW.{column} <> OLD.{column})"


#: The mark exists before and is another after, or it appears without the move that makes it.
MARK_REWRITTEN = (
    "(OLD.contact_marked_at IS NOT NULL AND (NEW.contact_marked_at IS NULL"
    " OR NEW.contact_marked_at <> OLD.contact_marked_at))"
    " OR (OLD.contact_marked_at IS NULL AND NEW.contact_marked_at IS NOT NULL"
    " AND NOT (OLD.phase = 'intent' AND NEW.phase = 'marked'))"
)


def not_a_move(column: str, moves: Mapping[Any, frozenset[Any]]) -> str:
    """SQL that is true for an UPDATE which takes `column` where it must not go."""
    allowed = " OR ".join(
        f"(OLD.{column} = '{old}' AND NEW.{column} IN ({_listed(new)}))"
        for old, new in moves.items()
    )
    return f"OLD.{column} <> NEW.{column} AND NOT ({allowed})"


def _listed(names: frozenset[Any]) -> str:
    return ", ".join(f"'{name}'" for name in sorted(names))
