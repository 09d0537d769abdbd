"""Puts the fence around django-q2: called once by guards' `ready()`."""

from __future__ import annotations

from django.core.checks import register
from django_q.signals import pre_enqueue

from guards.queue.admission import refuse_before_signing
from guards.queue.checks import check_queue
from guards.types import HOUSE_CHECKS


def install() -> None:
    """Refuse unregistered tasks before they are signed, and check django-q2's settings."""
    pre_enqueue.connect(refuse_before_signing, dispatch_uid="guards.queue.refuse_before_signing")
    register(check_queue, HOUSE_CHECKS)
