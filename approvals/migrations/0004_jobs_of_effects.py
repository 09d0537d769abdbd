"""Give each effect the job that its claim was: the same holder, fence and deadline."""

from typing import Any

from django.db import migrations


def give_jobs(apps: Any, schema_editor: Any) -> None:
    """One execute job for each effect without one; ended where the effect has settled."""
    effects, jobs = apps.get_model("approvals", "Effect"), apps.get_model("approvals", "Job")
    for effect in effects.objects.filter(job=None).iterator():
        effect.job = jobs.objects.create(
            kind="execute",
            created_at=effect.created_at,
            holder=effect.claimed_by,
            fence=effect.fence,
            attempts=1 if effect.claimed_by else 0,
            claimed_at=effect.created_at if effect.claimed_by else None,
            deadline=effect.deadline,
            quiesced_at=effect.settled_at,
            finished_at=effect.settled_at,
            outcome=effect.phase if effect.settled_at else "",
            reason=effect.reason,
        )
        effect.save(update_fields=["job"])


class Migration(migrations.Migration):
    dependencies = [("approvals", "0003_authority")]
    operations = [migrations.RunPython(give_jobs, migrations.RunPython.noop)]
