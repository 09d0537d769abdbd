"""Puts the fence around django-q2: called once by guards' `ready()`."""

from __future__ import annotations

from django.contrib import admin
from django.core.checks import register
from django_q.models import Failure, OrmQ, Schedule, Success
from django_q.signals import pre_enqueue

from guards.queue.admission import refuse_before_signing
from guards.queue.checks import check_queue


def install() -> None:
    """Refuse unregistered tasks before they are signed, hide django-q2's admin, check its settings.

    django-q2's admin pages edit rows that name functions and show pickles.
    """
    pre_enqueue.connect(refuse_before_signing, dispatch_uid="guards.queue.refuse_before_signing")
    register(check_queue)
    for model in (Schedule, Success, Failure, OrmQ):
        if admin.site.is_registered(model):
            admin.site.unregister(model)
