"""Give each effect the job that its claim was, and what binds it to its approval."""

from datetime import UTC
from typing import Any

from django.db import migrations


def give_jobs(apps: Any, schema_editor: Any) -> None:
    """One execute job for each effect without one; ended where the effect has settled.

    One that somebody holds keeps holder, fence and deadline: it is settled as it would have been.
    """
    effects, jobs = apps.get_model("approvals", "Effect"), apps.get_model("approvals", "Job")
    for effect in effects.objects.filter(job=None).select_related("approval").iterator():
        effect.job = jobs.objects.create(
            kind="execute",
            created_at=effect.created_at,
            holder=effect.claimed_by,
            fence=max(effect.fence, 1) if effect.claimed_by else 0,
            attempts=1 if effect.claimed_by else 0,
            claimed_at=effect.created_at if effect.claimed_by else None,
            deadline=(effect.deadline or effect.created_at) if effect.claimed_by else None,
            quiesced_at=effect.settled_at,
            finished_at=effect.settled_at,
            outcome=effect.phase if effect.settled_at else "",
            reason=effect.reason,
        )
        effect.authority = _binding(effect.approval)
        effect.save(update_fields=["job", "authority"])


def _binding(approval: Any) -> dict[str, object]:
    """What `authority.binding` gives for an approval without session, goal and grant."""
    return {
        "approval": str(approval.pk),
        "digest": approval.digest,
        "expiry": approval.expires_at.astimezone(UTC).isoformat(),
        "root": "",
        "goal": "",
        "goal_revision": None,
        "consent": "",
    }


class Migration(migrations.Migration):
    dependencies = [("approvals", "0003_authority")]
    operations = [migrations.RunPython(give_jobs, migrations.RunPython.noop)]
