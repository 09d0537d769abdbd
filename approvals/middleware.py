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
        if root is not None and root.user_id == request.user.pk:
            roots.keep_login(root, request.user)
        if root is None or root.user_id != request.user.pk or not roots.is_live(root):
            logout(request)
            return None
        if not is_background(request):
            roots.touch(root)
        return root


def is_background(request: HttpRequest) -> bool:
    """A request that a page makes by itself, to show what is new: nobody need be sitting there.

    Browsers say so (Fetch Metadata); the console's own scripts do, for those that do not.
    """
    mode = request.headers.get("Sec-Fetch-Mode", "navigate")
    return mode != "navigate" or "X-Requested-With" in request.headers


def root_of(request: HttpRequest) -> Root | None:
    """The live session of a console request."""
    root: Root | None = getattr(request, "root", None)
    return root
