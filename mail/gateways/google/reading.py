"""What is read of a mailbox: threads, messages, lists and the history."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Final, TypeVar
from urllib.parse import quote, urlencode

from guards.exceptions import InvalidInput
from guards.secrets import Secret
from mail.gateways.google import answers
from mail.gateways.google.answers import Fields
from mail.gateways.google.base import (
    SENT_CANDIDATES,
    HeaderMessage,
    HistoryGone,
    HistoryPage,
    MessageFacts,
    MessagePage,
    MessageReference,
    Missing,
    RawMessage,
    ThreadAnswer,
    ThreadHeaders,
)
from mail.gateways.google.http import Host, Request, Response

#: The most that a page of a list or of the history may weigh, in bytes.
PAGE_BYTES: Final = 1024 * 1024
#: Entries of one page, at most and as asked for.
PAGE_ENTRIES: Final = 500

_Read = TypeVar("_Read")

_MAILBOX: Final = "/gmail/v1/users/me"
_OURS: Final = re.compile(r"[0-9A-Za-z._+=-]{1,120}@[0-9A-Za-z.-]{1,120}\Z", re.ASCII)
#: Message-IDs of others, as far as none of their characters says something in Gmail's search.
_THEIRS: Final = re.compile(
    r"[0-9A-Za-z.!#$%&'*+/=?^_`~-]{1,200}@[0-9A-Za-z._-]{1,200}\Z", re.ASCII
)
_ID: Final = re.compile(r"[0-9A-Za-z_-]{1,64}\Z", re.ASCII)


def thread_request(token: Secret, thread_id: str, *, form: str = "minimal") -> Request:
    """A thread; the bytes of its messages are asked for one by one."""
    return _get(token, f"threads/{_id('thread_id', thread_id)}", {"format": form})


def read_thread(response: Response, thread_id: str) -> ThreadAnswer:
    """The whole thread that was asked for, and nothing that belongs to another one."""
    fields = answers.opened(response)
    messages = _within_thread(fields, thread_id, _facts)
    _refuse_strangers(fields, thread_id, messages)
    return ThreadAnswer(thread_id, fields.decimal("historyId"), messages)


def read_thread_headers(response: Response, thread_id: str) -> ThreadHeaders:
    """The same with headers."""
    fields = answers.opened(response)
    messages = _within_thread(fields, thread_id, _headers)
    _refuse_strangers(fields, thread_id, [one.facts for one in messages])
    return ThreadHeaders(thread_id, fields.decimal("historyId"), messages)


def _within_thread(
    fields: Fields, thread_id: str, read: Callable[[Fields], _Read]
) -> tuple[_Read, ...]:
    if fields.id("id") != thread_id:
        fields.refuse("id", "is not the thread that was asked for")
    if fields.page("nextPageToken"):
        fields.refuse("nextPageToken", "must not be there: a thread comes whole")
    return tuple(read(one) for one in fields.each("messages", most=PAGE_ENTRIES))


def _refuse_strangers(fields: Fields, thread_id: str, found: Sequence[MessageFacts]) -> None:
    for number, facts in enumerate(found):
        if facts.thread_id != thread_id:
            fields.refuse(f"messages[{number}].threadId", "is not the thread that it came with")
    if len({facts.id for facts in found}) != len(found) or not found:
        fields.refuse("messages", "must hold one or more distinct messages")


def raw_request(token: Secret, message_id: str) -> Request:
    """One message with its bytes."""
    return _get(token, f"messages/{_id('message_id', message_id)}", {"format": "raw"})


def read_raw(response: Response, message_id: str) -> RawMessage:
    """The bytes of the message that was asked for."""
    fields = answers.opened(response)
    return RawMessage(_asked(fields, message_id), fields.content("raw"))


def headers_request(token: Secret, message_id: str) -> Request:
    """One message by its header."""
    return _get(token, f"messages/{_id('message_id', message_id)}", {"format": "metadata"})


def read_headers(response: Response, message_id: str) -> HeaderMessage:
    """Names and values in the message's own order."""
    fields = answers.opened(response)
    _asked(fields, message_id)
    return _headers(fields)


def sent_request(token: Secret, rfc822_message_id: str) -> Request:
    """What Sent holds by an id of ours; one more than may be looked at, so that it shows."""
    wanted = _searchable(_OURS, rfc822_message_id)
    return _search(token, f"in:sent rfc822msgid:{wanted}", SENT_CANDIDATES + 1)


def source_request(token: Secret, rfc822_message_id: str) -> Request:
    """Where a message with an id of somebody's is; a second one shows."""
    return _search(token, f"rfc822msgid:{_searchable(_THEIRS, rfc822_message_id)}", 2)


def _searchable(pattern: re.Pattern[str], rfc822_message_id: str) -> str:
    """Nothing but an id goes into a search: there, other characters are words of its own."""
    if pattern.match(rfc822_message_id) is None:
        raise InvalidInput(
            "rfc822_message_id must be local@domain, without brackets, spaces or quotes",
            field="rfc822_message_id",
        )
    return rfc822_message_id


def _search(token: Secret, query: str, most: int) -> Request:
    return _get(token, "messages", {"q": query, "maxResults": most})


def list_request(token: Secret, label: str, page: str) -> Request:
    """One page of the messages under a label."""
    query: dict[str, object] = {"labelIds": _id("label", label), "maxResults": PAGE_ENTRIES}
    return _get(token, "messages", {**query, **({"pageToken": page} if page else {})})


def read_list(response: Response) -> MessagePage:
    """Distinct messages, and the way to the next page."""
    fields = answers.opened(response)
    found = [_reference(one) for one in fields.each("messages", most=PAGE_ENTRIES)]
    if len({one.id for one in found}) != len(found):
        fields.refuse("messages", "must hold distinct messages")
    return MessagePage(tuple(found), fields.page("nextPageToken"))


def history_request(token: Secret, label: str, start: int, page: str) -> Request:
    """One page of what came under a label since `start`."""
    query: list[tuple[str, object]] = [
        ("startHistoryId", start),
        ("labelId", _id("label", label)),
        ("historyTypes", "messageAdded"),
        ("historyTypes", "labelAdded"),
        ("maxResults", PAGE_ENTRIES),
    ]
    return _get(token, "history", [*query, *([("pageToken", page)] if page else [])])


def read_history(response: Response, label: str) -> HistoryPage:
    """Messages that came or were given the label, each once, oldest first."""
    try:
        fields = answers.opened(response)
    except Missing:
        raise HistoryGone from None
    found: dict[str, MessageReference] = {}
    for record in fields.each("history", most=PAGE_ENTRIES):
        for one in _came_under(record, label):
            found.setdefault(one.id, one)
    return HistoryPage(
        fields.decimal("historyId"), tuple(found.values()), fields.page("nextPageToken")
    )


def _came_under(record: Fields, label: str) -> Iterator[MessageReference]:
    for added in record.each("messagesAdded", most=10_000):
        yield _reference(added.within("message"))
    for labelled in record.each("labelsAdded", most=10_000):
        if label in labelled.labels("labelIds"):
            yield _reference(labelled.within("message"))


def _asked(fields: Fields, message_id: str) -> MessageFacts:
    facts = _facts(fields)
    if facts.id != message_id:
        fields.refuse("id", "is not the message that was asked for")
    return facts


def _headers(fields: Fields) -> HeaderMessage:
    headers = []
    for one in fields.within("payload").each("headers", most=1000):
        name, value = one.token("name", longest=200), one.value("value")
        if not isinstance(value, str):
            one.refuse("value", "must be a text")
        headers.append((name, value))
    size = fields.whole("sizeEstimate", least=0, most=2**40)
    return HeaderMessage(_facts(fields), tuple(headers), size)


def _facts(fields: Fields) -> MessageFacts:
    return MessageFacts(
        id=fields.id("id"),
        thread_id=fields.id("threadId"),
        labels=fields.labels("labelIds"),
        history_id=fields.decimal("historyId"),
        internal_date=fields.decimal("internalDate"),
    )


def _reference(fields: Fields) -> MessageReference:
    return MessageReference(fields.id("id"), fields.id("threadId"))


def _get(
    token: Secret, path: str, query: dict[str, object] | dict[str, str] | list[tuple[str, object]]
) -> Request:
    written = urlencode(query, quote_via=quote)
    return Request("GET", Host.GMAIL, f"{_MAILBOX}/{path}?{written}", token=token.reveal())


def _id(name: str, value: str) -> str:
    """Nothing but an id goes into a path."""
    if _ID.match(value) is None:
        raise InvalidInput(f"{name} must be one of Google's ids", field=name)
    return value
