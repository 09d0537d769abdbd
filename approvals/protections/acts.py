"""Acts: frozen intents, moves that only go on, marks and outcomes that stay."""

from __future__ import annotations

from approvals.models import Approval, Effect
from approvals.protections.moves import not_a_move, written_once
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
    """What of acts the database refuses. Called once, in `ready()`."""
    _freeze()
    _move_forward()


def _freeze() -> None:
    """What was asked for, shown and intended stays as it was."""
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


def _move_forward() -> None:
    """States, phases, marks and outcomes only go on."""
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
    registry.refuse_update(
        "approvals.Effect",
        "effect_unknown_stays",
        UNKNOWN_REWRITTEN,
        "what is unknown stays what it was: a later look adds an observation",
    )
    registry.refuse_update(
        "approvals.Effect",
        "effect_acknowledged_stays",
        written_once("acknowledged_at"),
        "an acknowledgement is given once",
    )


#: The mark exists before and is another after, or it appears without the move that makes it.
MARK_REWRITTEN = (
    "(OLD.contact_marked_at IS NOT NULL AND (NEW.contact_marked_at IS NULL"
    " OR NEW.contact_marked_at <> OLD.contact_marked_at))"
    " OR (OLD.contact_marked_at IS NULL AND NEW.contact_marked_at IS NOT NULL"
    " AND NOT (OLD.phase = 'intent' AND NEW.phase = 'marked'))"
)

#: The result of an act of unknown outcome is another after. Its revision and a person's own word
#: about it may change.
UNKNOWN_REWRITTEN = (
    "OLD.phase = 'unknown' AND (NEW.reason <> OLD.reason OR NEW.detail <> OLD.detail"
    f" OR ({written_once('settled_at')}))"
)
