"""Who may open a feed: the right origin, and a console session or a bearer token (W12).

A feed lives long, so whoever opened it is looked at again: when a token is revoked, and with every
ping.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Protocol
from urllib.parse import urlsplit

from django.conf import settings
from django.contrib import auth
from django.http import HttpRequest
from django.http.request import split_domain_port, validate_host

from guards.exceptions import NotAuthenticated, Refused
from guards.models import ApiToken
from guards.services import tokens

#: What a token needs for the feed, and a person for the console's.
SCOPE = "events:read"
PERMISSION = "teams.view_event"


class FeedReader(Protocol):
    """Somebody who reads the feed."""

    @property
    def project(self) -> str | None:
        """The only project whose events this reader sees; None for all."""
        ...

    def require_still_valid(self) -> None:
        """NotAuthenticated or Refused when this reader may no longer read."""
        ...


@dataclass(frozen=True, slots=True)
class SessionReader:
    """A person in a console session."""

    session_key: str
    project: str | None = None

    def require_still_valid(self) -> None:
        """The session stands, the person is active, staff, and may see events."""
        request = HttpRequest()
        request.session = import_module(settings.SESSION_ENGINE).SessionStore(self.session_key)
        user = auth.get_user(request)
        if not (user.is_active and getattr(user, "is_staff", False)):
            raise NotAuthenticated("no console session came with the request", rule="no-session")
        if not user.has_perm(PERMISSION):
            raise Refused("this person may not see events", rule="no-permission")


@dataclass(frozen=True, slots=True)
class TokenReader:
    """A program with a bearer token. A project's token sees that project's events only."""

    token_id: int
    project: str | None

    def require_still_valid(self) -> None:
        """The token still counts and carries the scope."""
        token = ApiToken.objects.select_related("identity").filter(pk=self.token_id).first()
        if token is None:
            raise NotAuthenticated("this token is not known here", rule="token-unknown")
        tokens.require_valid(token)
        _require_scope(token)


def admit(scope: Mapping[str, Any]) -> FeedReader:
    """Who opens this websocket. NotAuthenticated or Refused, each with its rule.

    A browser sends its Origin with cookies, so a session needs the right one; a program with a
    token sends none, and a wrong one is refused all the same.
    """
    headers = _headers(scope)
    _require_our_host(headers.get("host", ""))
    origin = headers.get("origin")
    if origin is not None and not _is_ours(origin, headers.get("host", "")):
        raise Refused(f"the origin {origin[:100]!r} may not open a feed", rule="foreign-origin")
    reader = _by_token(headers["authorization"]) if "authorization" in headers else None
    if reader is None:
        if origin is None:
            raise NotAuthenticated("no token came with the request", rule="no-token")
        session = scope.get("session")
        reader = SessionReader(getattr(session, "session_key", None) or "")
    reader.require_still_valid()
    return reader


def _by_token(header: str) -> FeedReader:
    scheme, _, secret = header.partition(" ")
    if scheme.lower() != "bearer":
        raise NotAuthenticated("send the token as `Authorization: Bearer …`", rule="no-token")
    token = tokens.authenticate(secret.strip())
    _require_scope(token)
    return TokenReader(token.pk, token.project or None)


def _require_scope(token: ApiToken) -> None:
    if SCOPE not in token.scopes:
        raise Refused(f"this token lacks the scope {SCOPE}", rule="missing-scope")


def _headers(scope: Mapping[str, Any]) -> dict[str, str]:
    """Headers by lower-case name; one that came twice and differs is kept as both, and fails."""
    headers: dict[str, str] = {}
    for name, value in scope.get("headers", ()):
        key, text = name.decode("latin-1").lower(), value.decode("latin-1")
        headers[key] = text if headers.get(key, text) == text else f"{headers[key]}, {text}"
    return headers


def _require_our_host(host: str) -> None:
    domain, _ = split_domain_port(host)
    if not domain or not validate_host(domain, settings.ALLOWED_HOSTS):
        raise Refused(f"this installation does not answer to {host[:100]!r}", rule="foreign-host")


def _is_ours(origin: str, host: str) -> bool:
    """The page that opens the feed came from this very host, or from a trusted proxy's."""
    if origin in settings.CSRF_TRUSTED_ORIGINS:
        return True
    parts = urlsplit(origin)
    return parts.scheme in ("http", "https") and parts.netloc.lower() == host.lower()
