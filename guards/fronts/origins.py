"""Who calls from where: our own hosts, and pages of ours; nobody else's (DNS rebinding, W12).

For what is served beside Django's own views, which look at `Host` themselves.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from django.conf import settings
from django.http.request import split_domain_port, validate_host

from guards.exceptions import ForeignHost, NotAuthenticated, Refused
from guards.types import Refusal


def headers_of(scope: Mapping[str, Any]) -> dict[str, str]:
    """Headers by lower-case name; one that came twice and differs is kept as both, and fails."""
    headers: dict[str, str] = {}
    for name, value in scope.get("headers", ()):
        key, text = name.decode("latin-1").lower(), value.decode("latin-1")
        headers[key] = text if headers.get(key, text) == text else f"{headers[key]}, {text}"
    return headers


def require_ours(headers: Mapping[str, str]) -> None:
    """ForeignHost for a host that is not ours, Refused for a page that came from elsewhere.

    Programs send no Origin. A browser does: it is this very host's, or one of
    `CSRF_TRUSTED_ORIGINS`.
    """
    host, origin = headers.get("host", ""), headers.get("origin")
    domain, _ = split_domain_port(host)
    if not domain or not validate_host(domain, settings.ALLOWED_HOSTS):
        raise ForeignHost(
            f"this installation does not answer to {host[:100]!r}", rule=Refusal.FOREIGN_HOST
        )
    if origin is not None and not _is_ours(origin, host):
        raise Refused(f"pages of {origin[:100]!r} may not call here", rule=Refusal.FOREIGN_ORIGIN)


def bearer_of(headers: Mapping[str, str]) -> str:
    """The secret of `Authorization: Bearer …`; NotAuthenticated where there is none."""
    scheme, _, secret = headers.get("authorization", "").partition(" ")
    if scheme.lower() != "bearer" or not secret.strip():
        raise NotAuthenticated(
            "send the token as `Authorization: Bearer …`", rule=Refusal.TOKEN_MISSING
        )
    return secret.strip()


def _is_ours(origin: str, host: str) -> bool:
    if origin in settings.CSRF_TRUSTED_ORIGINS:
        return True
    parts = urlsplit(origin)
    return parts.scheme in ("http", "https") and parts.netloc.lower() == host.lower()
