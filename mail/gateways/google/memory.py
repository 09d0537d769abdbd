"""A Google inside the process: people, credentials, mailboxes, and every contact counted.

`MemoryWire` is the sibling of `http.HttpWire`: the same client reads the same answers, so that the
contract tests run against both. It answers as Google documents it; `lose` takes an answer away
after Google has acted, `down` refuses connections.
"""

from __future__ import annotations

import base64
import itertools
import json
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

from guards.secrets import Secret
from mail.gateways.google.base import AnswerTooLarge, ConnectionBroken, Credential, NotReached
from mail.gateways.google.http import Host, Request, Response
from mail.gateways.google.mailboxes import Gone, GoogleMailbox, StoredMessage

READONLY_SCOPE: Final = "https://www.googleapis.com/auth/gmail.readonly"
SEND_SCOPE: Final = "https://www.googleapis.com/auth/gmail.send"
#: How Google spells the scope `email` in its answers.
EMAIL_SCOPE: Final = "https://www.googleapis.com/auth/userinfo.email"
#: What each credential of a person may do, by the use that it was made for.
SCOPES: Final = {
    "read": (READONLY_SCOPE, "openid", EMAIL_SCOPE),
    "send": (SEND_SCOPE, "openid", EMAIL_SCOPE),
    "readonly": (READONLY_SCOPE,),
}
#: The endpoints, as contacts are counted by.
ENDPOINTS: Final = (
    *("token", "userinfo", "profile", "thread", "message", "send", "list", "history"),
    "elsewhere",
)
_ME: Final = "/gmail/v1/users/me/"


@dataclass(slots=True)
class Person:
    """A Google account: what UserInfo says of it, and its mailbox."""

    subject: str
    email: str
    mailbox: GoogleMailbox
    email_verified: bool = True


@dataclass(slots=True)
class Issued:
    """A credential that Google issued: whom it speaks for and what for; `name` is for counting."""

    name: str
    credential: Credential
    person: Person
    scopes: tuple[str, ...]
    revoked: bool = False


@dataclass(frozen=True, slots=True)
class Contacted:
    """One request as it came. `credential` is the name of the one whose token it carried."""

    endpoint: str
    credential: str
    method: str
    target: str
    body: bytes


@dataclass(frozen=True, slots=True)
class Answered:
    """What Google says: a status and a JSON document."""

    status: int
    document: dict[str, Any]


@dataclass
class MemoryGoogle:
    """All of Google that a test or the demo needs. One lock guards it: workers are threads."""

    clock: Callable[[], float] = time.time
    people: dict[str, Person] = field(default_factory=dict)
    issued: list[Issued] = field(default_factory=list)
    contacts: list[Contacted] = field(default_factory=list)
    down: bool = False
    lock: threading.RLock = field(default_factory=threading.RLock)

    def __post_init__(self) -> None:
        self._tokens: dict[str, Issued] = {}
        self._numbers = itertools.count(1)
        self._lost: Counter[str] = Counter()

    def add_person(self, email: str, *, subject: str = "") -> Person:
        """A Google account with an empty mailbox."""
        number = next(self._numbers)
        person = Person(subject or f"1000000000000000{number:05d}", email, GoogleMailbox(email))
        self.people[email] = person
        return person

    def issue(self, person: Person, use: str, *, scopes: tuple[str, ...] = ()) -> Issued:
        """A credential for a use: `read`, `send` or `readonly`, with that use's scopes."""
        name = f"{use}:{person.email}"
        credential = Credential(
            client_id=f"client-{next(self._numbers)}.apps.example",
            client_secret=Secret(f"client-secret-{next(self._numbers)}"),
            refresh_token=Secret(f"1//refresh-{use}-{next(self._numbers)}"),
        )
        issued = Issued(name, credential, person, scopes or SCOPES[use])
        self.issued.append(issued)
        return issued

    def swap(self, one: Issued, other: Issued) -> None:
        """From now on each of them speaks for the other's person."""
        one.person, other.person = other.person, one.person

    def forget_tokens(self) -> None:
        """Every access token is over its time."""
        with self.lock:
            self._tokens.clear()

    def lose(self, endpoint: str, times: int = 1) -> None:
        """The answers of the next requests get lost after Google has acted."""
        self._lost[endpoint] += times

    def is_lost(self, endpoint: str) -> bool:
        """Whether this answer is one of those."""
        with self.lock:
            if self._lost[endpoint] <= 0:
                return False
            self._lost[endpoint] -= 1
            return True

    def count(self, endpoint: str = "", credential: str = "") -> int:
        """Requests so far, of that endpoint and credential or of all."""
        with self.lock:
            return sum(
                1
                for one in self.contacts
                if endpoint in ("", one.endpoint) and credential in ("", one.credential)
            )

    @property
    def posts(self) -> int:
        """How often a message was asked to be sent."""
        return self.count("send")

    def take(self, request: Request) -> Contacted:
        """Count a request, whatever will become of it."""
        with self.lock:
            contacted = Contacted(
                endpoint_of(request),
                self._credential_of(request),
                request.method,
                request.target,
                request.body,
            )
            self.contacts.append(contacted)
            return contacted

    def issuer_of(self, request: Request) -> Issued | None:
        """Whose token a request carries, or which credential a refresh names."""
        if endpoint_of(request) == "token":
            form = parse_qs(request.body.decode("ascii", "replace"))
            token = form.get("refresh_token", [""])[0]
            same = (one for one in self.issued if one.credential.refresh_token == Secret(token))
            return next(same, None)
        return self._tokens.get(request.token)

    def answer(self, request: Request) -> Answered:
        """What Google says to it, acting where it is asked to."""
        with self.lock:
            endpoint = endpoint_of(request)
            if endpoint == "elsewhere":
                return _error(404, "notFound")
            if endpoint == "token":
                return self._token(request)
            issued = self._tokens.get(request.token)
            if issued is None or issued.revoked:
                return _error(401, "authError")
            if not _may(issued, endpoint):
                return _error(403, "insufficientPermissions")
            try:
                return Answered(200, self._answer(endpoint, request, issued.person))
            except Gone:
                return _error(404, "notFound")
            except (KeyError, ValueError, TypeError, AttributeError):
                return _error(400, "badRequest")

    def _credential_of(self, request: Request) -> str:
        issued = self.issuer_of(request)
        return issued.name if issued else ""

    def _token(self, request: Request) -> Answered:
        form = {name: one[0] for name, one in parse_qs(request.body.decode("ascii")).items()}
        issued = self.issuer_of(request)
        if issued is None or issued.revoked:
            told = {"error": "invalid_grant", "error_description": "Token has been revoked."}
            return Answered(400, told)
        known = issued.credential
        if (form.get("client_id"), Secret(form.get("client_secret", ""))) != (
            known.client_id,
            known.client_secret,
        ):
            return Answered(401, {"error": "invalid_client", "error_description": "Unauthorized"})
        token = f"ya29.{issued.name.split(':')[0]}-{next(self._numbers)}"
        self._tokens[token] = issued
        return Answered(
            200,
            {
                "access_token": token,
                "expires_in": 3599,
                "scope": " ".join(issued.scopes),
                "token_type": "Bearer",
                **({"id_token": "e30.e30.e30"} if "openid" in issued.scopes else {}),
            },
        )

    def _answer(self, endpoint: str, request: Request, person: Person) -> dict[str, Any]:
        path, _, query = request.target.partition("?")
        asked, mailbox = parse_qs(query), person.mailbox
        if endpoint == "userinfo":
            return _userinfo(person)
        if endpoint == "profile":
            return mailbox.profile()
        if endpoint == "send":
            resource = json.loads(request.body)
            return mailbox.send(_bytes(resource["raw"]), resource.get("threadId"), self.clock())
        if endpoint == "thread":
            return mailbox.thread(path.rpartition("/")[2], asked.get("format", ["full"])[0])
        if endpoint == "message":
            return mailbox.message(path.rpartition("/")[2], asked.get("format", ["full"])[0])
        if endpoint == "list":
            return mailbox.listed(asked)
        return mailbox.history_since(asked)


class MemoryWire:
    """Carries requests to one `MemoryGoogle`, whatever their host is."""

    def __init__(self, google: MemoryGoogle) -> None:
        self.google = google

    def exchange(self, request: Request, *, seconds: float, max_bytes: int) -> Response:
        """Count, act, answer; or lose the answer."""
        if self.google.down:
            raise NotReached("connection refused", begun=False)
        contacted = self.google.take(request)
        answered = self.google.answer(request)
        if self.google.is_lost(contacted.endpoint):
            raise ConnectionBroken
        body = json.dumps(answered.document).encode()
        if len(body) > max_bytes:
            raise AnswerTooLarge(f"the answer is larger than {max_bytes} bytes")
        return Response(answered.status, {"content-type": "application/json; charset=UTF-8"}, body)


def endpoint_of(request: Request) -> str:
    """Which of `ENDPOINTS` a request is for."""
    path = urlsplit(request.target).path
    posted = request.method == "POST"
    if request.host is Host.OAUTH:
        return "token" if posted and path == "/token" else "elsewhere"
    if request.host is Host.OPENID:
        return "userinfo" if not posted and path == "/v1/userinfo" else "elsewhere"
    if not path.startswith(_ME):
        return "elsewhere"
    words = path.removeprefix(_ME).split("/")
    if posted:
        return "send" if words == ["messages", "send"] else "elsewhere"
    known = {("profile", 1): "profile", ("history", 1): "history", ("messages", 1): "list"}
    known |= {("threads", 2): "thread", ("messages", 2): "message"}
    return known.get((words[0], len(words)), "elsewhere")


def _may(issued: Issued, endpoint: str) -> bool:
    """Gmail's own rule: sending reads nothing, reading sends nothing."""
    needed = {"userinfo": "openid", "send": SEND_SCOPE}.get(endpoint, READONLY_SCOPE)
    return needed in issued.scopes


def _userinfo(person: Person) -> dict[str, Any]:
    return {
        "sub": person.subject,
        "picture": "https://picture.example/a",
        "email": person.email,
        "email_verified": person.email_verified,
    }


def _bytes(written: str) -> bytes:
    return base64.urlsafe_b64decode(written + "=" * (-len(written) % 4))


def _error(status: int, reason: str) -> Answered:
    errors = [{"domain": "global", "reason": reason, "message": reason}]
    return Answered(status, {"error": {"code": status, "message": reason, "errors": errors}})


__all__ = [
    "ENDPOINTS",
    "SCOPES",
    "Answered",
    "Contacted",
    "GoogleMailbox",
    "Issued",
    "MemoryGoogle",
    "MemoryWire",
    "Person",
    "StoredMessage",
]
