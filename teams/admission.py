"""Who may open a feed: the right origin, and a console session or a bearer token (W12).

A feed lives long, so whoever opened it is looked at again: when a token is revoked, and with every
ping.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Protocol

from django.conf import settings
from django.contrib import auth
from django.http import HttpRequest

from guards.exceptions import NotAuthenticated, Refused
from guards.fronts import origins
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
    headers = origins.headers_of(scope)
    origins.require_ours(headers)
    reader = _by_token(headers) if "authorization" in headers else None
    if reader is None:
        if "origin" not in headers:
            raise NotAuthenticated("no token came with the request", rule="no-token")
        session = scope.get("session")
        reader = SessionReader(getattr(session, "session_key", None) or "")
    reader.require_still_valid()
    return reader


def _by_token(headers: Mapping[str, str]) -> FeedReader:
    token = tokens.authenticate(origins.bearer_of(headers))
    _require_scope(token)
    return TokenReader(token.pk, token.project or None)


def _require_scope(token: ApiToken) -> None:
    if SCOPE not in token.scopes:
        raise Refused(f"this token lacks the scope {SCOPE}", rule="missing-scope")
