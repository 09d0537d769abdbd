"""Console requests under an operator's session: they keep it alive, and one that is over ends."""

from __future__ import annotations

from collections.abc import Callable

from django.contrib.auth import logout
from django.http import HttpRequest, HttpResponse
from django.urls import reverse

from approvals.models import Root
from approvals.services import roots


class RootMiddleware:
    """Sets `request.root` for the console. Only its requests move a session's idleness.

    Somebody whose session has expired or was revoked is logged out: the next login has a new one.
    """

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self._get_response = get_response
        self._console = reverse("admin:index")

    def __call__(self, request: HttpRequest) -> HttpResponse:
        """Look at the session of a console request, then answer it."""
        request.root = None  # type: ignore[attr-defined]
        if request.path.startswith(self._console) and request.user.is_authenticated:
            request.root = self._live(request)  # type: ignore[attr-defined]
        return self._get_response(request)

    def _live(self, request: HttpRequest) -> Root | None:
        root = roots.of_session(request.session)
        if root is None or not roots.is_live(root):
            logout(request)
            return None
        roots.touch(root)
        return root


def root_of(request: HttpRequest) -> Root | None:
    """The live session of a console request."""
    root: Root | None = getattr(request, "root", None)
    return root
