"""What can go wrong with the synthetic Google, by name."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from mail.gateways.google.http import Request
from mail.gateways.google.mailboxes import StoredMessage
from mail.gateways.google.memory import READONLY_SCOPE, SEND_SCOPE, Answered, Issued, MemoryGoogle

#: Nothing was done when these happen.
BEFORE = frozenset(
    {
        *(f"status-{code}" for code in (400, 401, 403, 404, 408, 429, 500, 502, 503)),
        *("rate-limit", "redirect", "reset-before", "hang"),
    }
)
#: Google has acted when these happen.
AFTER = frozenset(
    {
        *("status-500-after", "reset-after", "slow", "drip", "truncated", "endless", "no-length"),
        *("garbage", "not-json", "not-object", "doubled", "nan", "deep", "gzip", "utf-16", "empty"),
        "too-large",
    }
)
ANYWHERE = BEFORE | AFTER


@dataclass(frozen=True)
class Seen:
    """One request under a fault of its endpoint's own; `answer` lets Google act."""

    google: MemoryGoogle
    request: Request
    issued: Issued | None
    answer: Callable[[Request], Answered]

    def changed(self, **fields: Any) -> Answered:
        """Google's answer with other fields; `...` takes one away."""
        answered = self.answer(self.request)
        document = {**answered.document, **fields}
        return Answered(
            answered.status, {name: one for name, one in document.items() if one is not ...}
        )

    @property
    def mailbox(self):
        """The mailbox that the request is about."""
        assert self.issued is not None
        return self.issued.person.mailbox


Own = Callable[[Seen], Answered]


def error_body(fault: str) -> bytes:
    """Google's words for a status."""
    reason = "rateLimitExceeded" if fault == "rate-limit" else "backendError"
    return json.dumps({"error": {"errors": [{"reason": reason}], "message": reason}}).encode()


def spoiled(fault: str, document: Mapping[str, Any]) -> tuple[str, bytes, dict[str, str]]:
    """Content type, body and further headers of an answer that is none."""
    kind, good = "application/json; charset=UTF-8", json.dumps(document)
    first = next(iter(document), "id")
    bodies = {
        "garbage": b'{"id": "x", ',
        "not-json": b"<html>Sorry</html>",
        "not-object": f"[{good}]".encode(),
        "doubled": good.replace("{", f'{{"{first}": "x", ', 1).encode(),
        "nan": good.replace("{", '{"z": NaN, ', 1).encode(),
        "deep": b'{"z": ' + b"[" * 6_000 + b"]" * 6_000 + b"}",
        "gzip": gzip.compress(good.encode()),
        "utf-16": good.encode("utf-16"),
        "empty": b"",
        "too-large": good.encode() + b" " * (2 * 1024 * 1024),
    }
    headers = {"content_encoding": "gzip"} if fault == "gzip" else {}
    return ("text/html" if fault == "not-json" else kind), bodies[fault], headers


def _scope(change: Callable[[tuple[str, ...]], Any]) -> Own:
    def own(seen: Seen) -> Answered:
        assert seen.issued is not None
        return seen.changed(scope=change(seen.issued.scopes))

    return own


def _joined(*more: str, without: tuple[str, ...] = ()) -> Own:
    return _scope(lambda scopes: " ".join([*(s for s in scopes if s not in without), *more]))


def _fields(**fields: Any) -> Own:
    return lambda seen: seen.changed(**fields)


_EMAIL = "https://www.googleapis.com/auth/userinfo.email"
_AUTH = "https://www.googleapis.com/auth/"

_TOKEN: dict[str, Own] = {
    "scope-omitted": _fields(scope=...),
    "scope-null": _fields(scope=None),
    "scope-number": _fields(scope=7),
    "scope-list": _scope(list),
    "scope-object": _fields(scope={}),
    "scope-empty": _fields(scope=""),
    "scope-blank": _fields(scope="   "),
    "scope-control": _scope(lambda scopes: " ".join(scopes) + "\x00"),
    "scope-newline": _scope(lambda scopes: "\n".join([*scopes, ""])),
    "scope-quoted": _scope(lambda scopes: f'"{" ".join(scopes)}"'),
    "scope-commas": _scope(lambda scopes: ",".join(scopes)),
    "scope-not-ascii": _joined("é"),
    "scope-huge": _joined(*(f"{_AUTH}x{n}" for n in range(100))),
    "scope-extra": _joined(f"{_AUTH}drive.readonly"),
    "scope-modify": _joined(f"{_AUTH}gmail.modify"),
    "scope-compose": _joined(f"{_AUTH}gmail.compose"),
    "scope-full-mail": _joined("https://mail.google.com/"),
    "scope-profile": _joined("profile"),
    "scope-missing-mail": _joined(without=(READONLY_SCOPE, SEND_SCOPE)),
    "scope-missing-openid": _joined(without=("openid",)),
    "scope-missing-email": _joined(without=(_EMAIL,)),
    "scope-duplicate": _joined("openid"),
    "scope-duplicate-mail": _scope(lambda scopes: " ".join([*scopes, scopes[0]])),
    "scope-unknown-alias": _joined(f"{_AUTH}plus.login", without=(_EMAIL,)),
    "scope-shortened": _scope(lambda scopes: " ".join(s.replace(_AUTH, "") for s in scopes)),
    "scope-upper-case": _scope(lambda scopes: " ".join(scopes).upper()),
    "scope-prefix": _scope(lambda scopes: " ".join(s + "s" for s in scopes)),
    "scope-other-use": _scope(
        lambda scopes: " ".join(
            {READONLY_SCOPE: SEND_SCOPE, SEND_SCOPE: READONLY_SCOPE}.get(s, s) for s in scopes
        )
    ),
    "scope-both-emails": _joined("email"),
    "scope-alias-only": _joined(_EMAIL, without=(_EMAIL,)),
    "scope-short-email-only": _joined("email", without=(_EMAIL,)),
    "scope-other-order": _scope(lambda scopes: " ".join(reversed(scopes))),
    "invalid-grant": lambda seen: Answered(400, {"error": "invalid_grant"}),
    "invalid-client": lambda seen: Answered(401, {"error": "invalid_client"}),
    "invalid-request": lambda seen: Answered(400, {"error": "invalid_request"}),
    "no-token": _fields(access_token=...),
    "token-number": _fields(access_token=5),
    "token-injects": _fields(access_token="a\r\nX-Evil: 1"),
    "other-type": _fields(token_type="mac"),
    "expires-text": _fields(expires_in="3599"),
    "expires-never": _fields(expires_in=0),
}

_USERINFO: dict[str, Own] = {
    "other-subject": _fields(sub="999999999999999999999"),
    "no-subject": _fields(sub=...),
    "subject-number": _fields(sub=12345),
    "subject-huge": _fields(sub="1" * 256),
    "unverified": _fields(email_verified=False),
    "verified-text": _fields(email_verified="true"),
    "no-verified": _fields(email_verified=...),
    "other-email": _fields(email="somebody.else@gmail.test"),
    "no-email": _fields(email=...),
    "email-upper-case": lambda seen: seen.changed(email=_person(seen).email.upper()),
    "email-plus": lambda seen: seen.changed(email=_person(seen).email.replace("@", "+x@")),
    "other-issuer": _fields(iss="https://accounts.example.org"),
}

_PROFILE: dict[str, Own] = {
    "other-mailbox": _fields(emailAddress="somebody.else@gmail.test"),
    "mailbox-upper-case": lambda seen: seen.changed(emailAddress=_person(seen).email.upper()),
    "mailbox-dots": lambda seen: seen.changed(emailAddress=_dotted(_person(seen).email)),
    "no-mailbox": _fields(emailAddress=...),
    "history-number": _fields(historyId=12345),
}


def _person(seen: Seen):
    assert seen.issued is not None
    return seen.issued.person


def _dotted(email: str) -> str:
    return f"{email[0]}.{email[1:]}"


_LATER = (
    b"From: Later <later@example.org>\r\nTo: agent@gmail.test\r\nSubject: Re: Later\r\n\r\nMore\r\n"
)


def _thread_grows(seen: Seen) -> Answered:
    answered = seen.answer(seen.request)
    if answered.status == 200:
        seen.mailbox.add(_LATER, thread_id=answered.document.get("threadId", _last(seen)))
    return answered


def _last(seen: Seen) -> str:
    return seen.request.target.partition("?")[0].rpartition("/")[2]


def _eleven(seen: Seen) -> Answered:
    answered = seen.answer(seen.request)
    messages = answered.document["messages"]
    more = [{**messages[0], "id": f"19b000000000000{n:x}"} for n in range(11 - len(messages))]
    return seen.changed(messages=[*messages, *more])


def _foreign_message(seen: Seen) -> Answered:
    messages = seen.answer(seen.request).document["messages"]
    other = {**messages[0], "id": "19b0000000000001", "threadId": "19b0000000000001"}
    return seen.changed(messages=[*messages, other])


_THREAD: dict[str, Own] = {
    "grows-after": _thread_grows,
    "eleven-messages": _eleven,
    "next-page": _fields(nextPageToken="2"),
    "other-thread": _fields(id="19b0000000000009"),
    "foreign-message": _foreign_message,
    "no-messages": _fields(messages=...),
    "message-twice": lambda seen: seen.changed(
        messages=seen.answer(seen.request).document["messages"] * 2
    ),
    "history-number": _fields(historyId=5),
}


def _source_changes(seen: Seen) -> Answered:
    """From the second look on, other bytes under the same id."""
    answered = seen.answer(seen.request)
    stored = seen.mailbox.messages[_last(seen)]
    stored.raw = stored.raw.replace(b"\r\n\r\n", b"\r\n\r\nChanged. ", 1)
    return answered


_MESSAGE: dict[str, Own] = {
    "grows-after": _thread_grows,
    "changes-after": _source_changes,
    "other-thread": _fields(threadId="19b0000000000009"),
    "other-message": _fields(id="19b0000000000009"),
    "no-raw": _fields(raw=...),
    "raw-plain-base64": _fields(raw="a+b/"),
    "raw-stray-bits": _fields(raw="QR"),
    "raw-empty": _fields(raw=""),
    "not-in-sent": _fields(labelIds=["INBOX"]),
    "label-twice": _fields(labelIds=["SENT", "SENT"]),
}


def _filed(seen: Seen) -> tuple[Answered, StoredMessage | None]:
    answered = seen.answer(seen.request)
    return answered, seen.mailbox.messages.get(answered.document.get("id", ""))


def _rewritten(pattern: bytes, replacement: bytes) -> Own:
    """Google files something else than it was given."""

    def own(seen: Seen) -> Answered:
        answered, stored = _filed(seen)
        assert stored is not None
        changed = re.sub(pattern, replacement, stored.raw, count=1)
        assert changed != stored.raw, "this message has nothing to change there"
        stored.raw = changed
        return answered

    return own


def _files_in_other_thread(seen: Seen) -> Answered:
    answered, stored = _filed(seen)
    assert stored is not None
    stored.thread_id = stored.id
    return Answered(answered.status, {**answered.document, "threadId": stored.id})


def _replaces_message_id(seen: Seen) -> Answered:
    seen.mailbox.replaces_message_id = True
    try:
        return seen.answer(seen.request)
    finally:
        seen.mailbox.replaces_message_id = False


def _not_in_sent(seen: Seen) -> Answered:
    answered, stored = _filed(seen)
    assert stored is not None
    stored.labels.discard("SENT")
    return answered


def _vanishes(seen: Seen) -> Answered:
    answered, stored = _filed(seen)
    assert stored is not None
    seen.mailbox.delete(stored.id)
    return answered


def _twice(seen: Seen) -> Answered:
    seen.answer(seen.request)
    return seen.answer(seen.request)


def _hidden(seen: Seen) -> Answered:
    answered, stored = _filed(seen)
    assert stored is not None
    seen.mailbox.hidden.add(stored.id)
    return answered


_SEND: dict[str, Own] = {
    "other-thread": _files_in_other_thread,
    "wrong-thread-answer": _fields(threadId="19b0000000000009"),
    "no-thread-answer": _fields(threadId=...),
    "no-id": _fields(id=...),
    "replaces-message-id": _replaces_message_id,
    "not-in-sent": _not_in_sent,
    "vanishes": _vanishes,
    "twice": _twice,
    "not-found-yet": _hidden,
    "changes-body": _rewritten(rb"(\r\n\r\n)([A-Za-z0-9+/])", rb"\g<1>A"),
    "changes-subject": _rewritten(rb"(?im)^subject: ", b"Subject: Fwd: "),
    "changes-from": _rewritten(rb"(?im)^from: [^\r]*", b"From: somebody.else@gmail.test"),
    "changes-to": _rewritten(rb"(?im)^to: [^\r]*", b"To: somebody.else@example.org"),
    "adds-cc": _rewritten(rb"(?im)^to: ", b"Cc: third@example.org\r\nTo: "),
    "adds-subject": _rewritten(rb"(?im)^subject: ", b"Subject: Other\r\nSubject: "),
    "changes-in-reply-to": _rewritten(
        rb"(?im)^in-reply-to: [^\r]*", b"In-Reply-To: <o@example.org>"
    ),
    "changes-references": _rewritten(rb"(?im)^references: [^\r]*", b"References: <o@example.org>"),
    "truncates": _rewritten(rb"(?s)(\r\n\r\n.{4}).*", rb"\g<1>"),
}


def _copies(count: int) -> Own:
    """That many of the same lie in Sent, wherever they came from."""

    def own(seen: Seen) -> Answered:
        answered = seen.answer(seen.request)
        found = [one["id"] for one in answered.document.get("messages", [])]
        for _ in range(count - len(found)):
            stored = seen.mailbox.messages[found[0]]
            seen.mailbox.add(stored.raw, thread_id=stored.thread_id, labels=stored.labels)
        return seen.answer(seen.request)

    return own


_LIST: dict[str, Own] = {
    "none": _fields(messages=...),
    "two": _copies(2),
    "six": _copies(6),
    "next-page": _fields(nextPageToken="6"),
    "same-twice": lambda seen: seen.changed(
        messages=seen.answer(seen.request).document.get("messages", []) * 2
    ),
    "no-thread": lambda seen: seen.changed(
        messages=[{"id": one["id"]} for one in seen.answer(seen.request).document["messages"]]
    ),
    "messages-null": _fields(messages=None),
}

_HISTORY: dict[str, Own] = {
    "gone": lambda seen: Answered(404, {"error": {"code": 404, "message": "Not Found"}}),
    "no-history-id": _fields(historyId=...),
}

#: The faults that an endpoint has beside those of `ANYWHERE`.
OF_THEIR_OWN: Mapping[str, Mapping[str, Own]] = {
    "token": _TOKEN,
    "userinfo": _USERINFO,
    "profile": _PROFILE,
    "thread": _THREAD,
    "message": _MESSAGE,
    "send": _SEND,
    "list": _LIST,
    "history": _HISTORY,
}
