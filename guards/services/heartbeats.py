"""Heartbeats: each long-lived process of the installation says that it is alive."""

from __future__ import annotations

from datetime import timedelta

from django.utils import timezone

from guards import process
from guards.models import Heartbeat
from guards.services.units import unit_of_work

#: Rows of processes that have been silent this long are of no use to anybody.
FORGET_AFTER = timedelta(days=1)


def beat(*, role: str) -> Heartbeat:
    """Say that this process is alive as `worker`, `watcher` or `web`; forget those long silent."""
    now = timezone.now()
    with unit_of_work():
        Heartbeat.objects.filter(seen_at__lt=now - FORGET_AFTER).delete()
        row, _ = Heartbeat.objects.update_or_create(
            holder=process.this_process(),
            defaults={"role": role, "seen_at": now},
            create_defaults={"role": role, "seen_at": now, "started_at": now},
        )
    return row


def stop(*, role: str) -> None:
    """Say that this process ends in good order, so that nobody waits for its next beat."""
    with unit_of_work():
        Heartbeat.objects.filter(holder=process.this_process(), role=role).delete()
