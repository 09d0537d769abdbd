"""Who may load what, by address: the middleware that gives each part of the house its CSP.

The default is strict. Unfold's Alpine evaluates expressions from attributes and sets
style attributes, so `/admin/` gets exactly those two allowances and nothing else; a nonce would
switch `'unsafe-inline'` off again and is left out of its `style-src`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from csp.constants import NONCE, NONE, SELF, UNSAFE_EVAL, UNSAFE_INLINE
from django.http import HttpRequest, HttpResponse
from django.urls import reverse

#: Strict everywhere; the console replaces script-src and style-src with what its Alpine needs.
CONTENT_SECURITY_POLICY: dict[str, Any] = {
    "DIRECTIVES": {
        "default-src": [SELF],
        "base-uri": [SELF],
        "connect-src": [SELF],
        "form-action": [SELF],
        "frame-ancestors": [NONE],
        "frame-src": [SELF],
        "img-src": [SELF, "data:"],
        "object-src": [NONE],
        "script-src": [SELF, NONCE],
        "style-src": [SELF, NONCE],
    }
}

CONSOLE_POLICY: dict[str, list[Any]] = {
    "script-src": [SELF, UNSAFE_EVAL, NONCE],
    "style-src": [SELF, UNSAFE_INLINE],
}


class ConsoleMiddleware:
    """Below CSPMiddleware: marks the console's answers with the console's policy."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        """Pages that set a policy of their own (mail in its frame) keep it."""
        response = self.get_response(request)
        own = getattr(response, "_csp_config", None) or getattr(response, "_csp_replace", None)
        if own is None and request.path_info.startswith(reverse("admin:index")):
            response._csp_replace = CONSOLE_POLICY  # type: ignore[attr-defined]
        return response
