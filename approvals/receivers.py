"""What approvals does when somebody logs in or out: a session's authority begins and ends there."""

from __future__ import annotations

from typing import Any

from django.contrib.auth.signals import user_logged_in, user_logged_out
from django.dispatch import receiver
from django.http import HttpRequest

from approvals.services import roots
from guards.types import Asker


@receiver(user_logged_in)
def begin_root(request: HttpRequest | None, user: Any, **_: object) -> None:
    """A new Root at every login; one that this browser had before has ended."""
    session = getattr(request, "session", None)
    if session is None:
        return
    principal = Asker("operator", user.get_username())
    _end_root(session, by=principal)
    # Where somebody else was logged in before, Django has emptied the session by now.
    before = getattr(request, "root", None)
    if before is not None:
        roots.end(root_id=before.pk, by=principal)
    session[roots.SESSION_KEY] = str(roots.mint(user=user, principal=principal).pk)


@receiver(user_logged_out)
def end_root(request: HttpRequest | None, user: Any, **_: object) -> None:
    """What was granted in this session ends with it."""
    session = getattr(request, "session", None)
    if session is not None and user is not None:
        _end_root(session, by=Asker("operator", user.get_username()))


def _end_root(session: Any, *, by: Asker) -> None:
    before = roots.of_session(session)
    if before is not None:
        roots.end(root_id=before.pk, by=by)
