"""Authority: what began stays as it began, what ended stays ended, and counts only grow."""

from __future__ import annotations

from approvals.protections.moves import written_once
from guards import registry


def register() -> None:
    """Sessions are not prolonged, grants not widened, counts not taken back, jobs not given on.

    Called once, in `ready()`.
    """
    _freeze()
    _protect_sessions_and_grants()
    _protect_jobs()
    _bind_together()
    _raise_revisions()


def _freeze() -> None:
    """What a row was made as."""
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
    registry.frozen_columns(
        "approvals.Connection", ("account_type", "account_id", "use", "created_at", "created_by")
    )


def _protect_sessions_and_grants() -> None:
    """What is over stays over, and what was counted stays counted."""
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
        "approvals.Root",
        "root_over_stays_idle",
        "NEW.idle_until > OLD.idle_until"
        " AND (OLD.ended_at IS NOT NULL OR OLD.revoked_at IS NOT NULL)",
        "a session that is over is not kept alive",
    )
    for column in ("closed_at", "deleted_at"):
        registry.refuse_update(
            "approvals.Goal",
            f"goal_{column}_stays",
            written_once(column),
            "a goal that has ended stays so",
        )


def _protect_jobs() -> None:
    """One claim, one end, and a deadline that is never put off."""
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


def _bind_together() -> None:
    """What belongs together is of one session, and a grant begins unspent."""
    registry.refuse_rows(
        registry.RowRule(
            "approvals.ContactBudget",
            "budget_begins_unspent",
            "NEW.spent <> 0",
            "a grant begins with nothing spent",
            events=("insert",),
        )
    )
    registry.refuse_rows(
        registry.RowRule(
            "approvals.Consent",
            "consent_of_one_session",
            "NOT EXISTS (SELECT 1 FROM approvals_goal g"
            " WHERE g.id = NEW.goal_id AND g.root_id = NEW.root_id)",
            "a grant and its goal belong to one session",
            events=("insert",),
        )
    )
    registry.refuse_rows(
        registry.RowRule(
            "approvals.Effect",
            "effect_of_one_grant",
            "NEW.consent_id IS NOT NULL AND NOT EXISTS (SELECT 1 FROM approvals_consent c"
            " JOIN approvals_job j ON j.consent_id = c.id WHERE c.id = NEW.consent_id"
            " AND c.goal_id = NEW.goal_id AND c.root_id = NEW.root_id"
            " AND c.goal_revision = NEW.goal_revision AND c.purpose = 'execute'"
            " AND j.id = NEW.job_id AND j.kind = 'execute')",
            "an act's grant, job, goal and session belong together",
            events=("insert",),
        )
    )


def _raise_revisions() -> None:
    """A change is seen by whoever bound the revision before it."""
    for table, columns in _REVISED.items():
        changed = " OR ".join(f"NEW.{column} <> OLD.{column}" for column in columns)
        registry.refuse_update(
            f"approvals.{table}",
            f"{table.lower()}_revision_grows",
            f"NEW.revision < OLD.revision OR (NEW.revision = OLD.revision AND ({changed}))",
            "a change is another revision",
        )
    registry.refuse_update(
        "approvals.Connection",
        "connection_revoked_stays",
        "OLD.state = 'revoked' AND NEW.state <> 'revoked'",
        "a connection that was revoked stays revoked",
    )


#: What raises the revision of a row when it changes.
_REVISED = {
    "Goal": ("principal",),
    "Connection": (
        "client_id",
        "client_secret_ref",
        "refresh_token_ref",
        "subject",
        "address",
        "observed_digest",
    ),
}
