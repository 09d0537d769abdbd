"""An installation from before authority keeps its acts: each gets the job that its claim was."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import timedelta
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from django.db import IntegrityError, connection, transaction
from django.db.migrations.executor import MigrationExecutor
from django.utils import timezone

from approvals import freezing, registry, sealing
from approvals.models import Approval, Effect, Job
from approvals.protections.acts import MARK_REWRITTEN
from approvals.protections.moves import not_a_move
from approvals.services import authority, effects
from guards import triggers
from guards.registry import Protection, RowRule
from tests.approvals.kinds import CountingKind
from tests.databases import empty

pytestmark = pytest.mark.django_db(transaction=True)

BEFORE = ("approvals", "0002_allowed_holds")
NOW = timezone.now()
PAYLOAD = b"exactly these bytes"
_REQUEST = ("kind", "subject_type", "subject_id", "source_type", "source_id", "project")
#: Effects of the version before: phase, who held it, under which fence.
ACTS = {
    "unclaimed": ("intent", "", 0),
    "held": ("intent", "elsewhere:boot/1:7:99", 1),
    "marked": ("marked", "elsewhere:boot/1:7:99", 1),
    "accepted": ("accepted", "elsewhere:boot/1:7:99", 1),
    "verified": ("verified", "elsewhere:boot/1:7:99", 1),
    "failed": ("failed", "elsewhere:boot/1:7:99", 1),
    "unknown": ("unknown", "elsewhere:boot/1:7:99", 1),
    "cancelled": ("cancelled", "", 0),
}


@pytest.fixture
def old(transactional_db: None, tmp_path: Path) -> Iterator[Any]:
    """A database of the version before, with its triggers; the models as they were."""
    with empty(tmp_path):
        executor = MigrationExecutor(connection)
        executor.migrate([BEFORE])
        yield executor.loader.project_state([BEFORE]).apps


def install_old_triggers(models: Any) -> None:
    """What the version before kept by trigger."""
    protection, rule = triggers._RENDERERS[connection.vendor]
    effect, approval = (models.get_model("approvals", name) for name in ("Effect", "Approval"))
    frozen = Protection("approvals.Effect", (*_REQUEST, "approval", "digest", "payload", "facts"))
    phases = not_a_move("phase", Effect.MOVES)
    states = not_a_move("state", Approval.MOVES)
    made = [
        *protection(effect, frozen, connection),
        *rule(effect, RowRule("", "effect_mark", MARK_REWRITTEN, "kept", ("update",))),
        *rule(effect, RowRule("", "effect_moves", phases, "forward", ("update",))),
        *rule(approval, RowRule("", "approval_moves", states, "forward", ("update",))),
    ]
    with connection.cursor() as cursor:
        for statement in (one for trigger in made for one in trigger.create):
            cursor.execute(statement)


def act(models: Any, name: str) -> Any:
    """One act as the version before wrote it, its bytes sealed as they are now."""
    phase, holder, fence = ACTS[name]
    settled = phase not in ("intent", "marked")
    columns = {
        "kind": "tests.counting",
        "subject_type": "mail.outbound",
        "subject_id": name,
        "source_type": "mail.message",
        "source_id": f"to-{name}",
        "account_type": "mail.account",
        "account_id": "1",
        "project": "",
    }
    facts = {"revision": 1, "message_id": f"{name}@x"}
    shared = {
        **columns,
        "digest": freezing._digest(columns, facts, sha256(PAYLOAD).hexdigest()),
        "facts": sealed(models, json.dumps(facts).encode()),
        "payload": sealed(models, PAYLOAD),
    }
    approval = models.get_model("approvals", "Approval").objects.create(
        **shared,
        preview=shared["facts"],
        requested_by="identity:bot",
        state="consumed",
        expires_at=NOW + timedelta(seconds=300),
        decided_at=NOW,
    )
    return models.get_model("approvals", "Effect").objects.create(
        **shared,
        approval=approval,
        phase=phase,
        claimed_by=holder,
        fence=fence,
        deadline=NOW - timedelta(seconds=1) if holder else None,
        contact_marked_at=NOW if phase not in ("intent", "cancelled", "failed") else None,
        settled_at=NOW if settled else None,
        reason="because" if settled else "",
    )


def sealed(models: Any, content: bytes) -> Any:
    made = sealing.encrypt(content)
    columns = {"ciphertext": made.ciphertext, "sha256": made.sha256, "size": made.size}
    return models.get_model("approvals", "Artifact").objects.create(**columns)


def test_every_act_keeps_its_phase_gets_its_job_and_goes_on(old: Any, tmp_path: Path) -> None:
    before = {name: act(old, name).pk for name in ACTS}
    install_old_triggers(old)
    call_command("migrate", verbosity=0)
    each_has_its_job(before)
    the_triggers_of_this_version_stand(kept=before["unknown"])
    what_nobody_held_leaves_once_and_what_somebody_held_is_settled(before, tmp_path)


def each_has_its_job(before: dict[str, Any]) -> None:
    for name, (phase, holder, fence) in ACTS.items():
        effect = Effect.objects.select_related("job", "approval").get(pk=before[name])
        assert effect.phase == phase
        assert (effect.job.kind, effect.job.holder, effect.job.fence) == ("execute", holder, fence)
        assert effect.job.attempts == (1 if holder else 0)
        is_over = phase not in ("intent", "marked")
        assert (effect.job.finished_at is not None) == is_over
        assert effect.job.outcome == (phase if is_over else "")
        assert effect.authority == authority.binding(effect.approval, None, None)
    assert Job.objects.count() == len(ACTS)


def the_triggers_of_this_version_stand(kept: Any) -> None:
    assert triggers.missing() == []
    for change in ({"phase": "verified"}, {"digest": "1" * 64}, {"needs_authority": True}):
        with pytest.raises(IntegrityError), transaction.atomic():
            Effect.objects.filter(pk=kept).update(**change)
    with pytest.raises(IntegrityError), transaction.atomic():
        Effect.objects.filter(pk=kept).delete()


def what_nobody_held_leaves_once_and_what_somebody_held_is_settled(
    before: dict[str, Any], directory: Path
) -> None:
    kind = CountingKind(directory / "contacts", body=PAYLOAD)
    registry.register_kind(kind)
    try:
        for _ in range(2):
            effects.reconcile()
            phases = {
                name: effects.dispatch(effect_id=before[name]).phase
                for name in ("unclaimed", "held", "marked")
            }
            assert phases == {"unclaimed": "accepted", "held": "cancelled", "marked": "unknown"}
        assert len(kind.contacts()) == 1
    finally:
        registry.forget_kind(kind.name)
