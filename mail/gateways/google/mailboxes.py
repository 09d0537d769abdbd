"""One mailbox of the Google in memory: messages, threads, labels and the history of changes."""

from __future__ import annotations

import base64
import itertools
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

#: Where message ids begin; they grow with time, as Gmail's do.
_FIRST_ID: Final = 0x19A0000000000001
_HEADER_END: Final = re.compile(rb"\r?\n\r?\n")
_MESSAGE_ID: Final = re.compile(rb"(?im)^message-id:[ \t]*<([^>\r\n]*)>")

_ids = itertools.count(_FIRST_ID)


class Gone(Exception):
    """There is no such thing in this mailbox (any more)."""


@dataclass(slots=True)
class StoredMessage:
    """A message as the mailbox holds it. `internal_date` is in milliseconds."""

    id: str
    thread_id: str
    raw: bytes
    labels: set[str]
    history_id: int
    internal_date: int

    @property
    def rfc822_message_id(self) -> str:
        """Its Message-ID without brackets; empty where it has none."""
        found = _MESSAGE_ID.search(_HEADER_END.split(self.raw, 1)[0])
        return found.group(1).decode("ascii", "replace") if found else ""


@dataclass
class GoogleMailbox:
    """What a person's mailbox holds.

    Switches: `replaces_message_id` gives sent mail another Message-ID, `files_sent` says whether it
    gets the label SENT, `hidden` are ids that searches do not show (yet), `traces` are the headers
    that sent mail is given in front.
    """

    email: str
    messages: dict[str, StoredMessage] = field(default_factory=dict)
    history_id: int = 1000
    oldest_history: int = 0
    replaces_message_id: bool = False
    files_sent: bool = True
    hidden: set[str] = field(default_factory=set)
    traces: bytes = (
        b"Received: from 100000000001 named unknown by gmailapi.google.com with HTTPREST;\r\n"
        b" Tue, 1 Dec 2026 09:00:00 +0000\r\n"
    )

    def __post_init__(self) -> None:
        self._changes: list[tuple[int, str, str, frozenset[str]]] = []

    def add(
        self,
        raw: bytes,
        *,
        thread_id: str | None = None,
        labels: Iterable[str] = ("INBOX", "UNREAD"),
        at: float | None = None,
    ) -> StoredMessage:
        """File a message; without a thread it begins one, whose id is its own."""
        message_id = f"{next(_ids):x}"
        moment = int((time.time() if at is None else at) * 1000)
        stored = StoredMessage(
            message_id, thread_id or message_id, raw, set(labels), self._next(), moment
        )
        self.messages[message_id] = stored
        self._note(stored, "messagesAdded", stored.labels)
        return stored

    def label(self, message_id: str, *labels: str) -> None:
        """Give a message labels."""
        stored = self._get(message_id)
        stored.labels |= set(labels)
        stored.history_id = self._next()
        self._note(stored, "labelsAdded", labels)

    def unlabel(self, message_id: str, *labels: str) -> None:
        """Take labels away; what leaves INBOX was archived."""
        stored = self._get(message_id)
        stored.labels -= set(labels)
        stored.history_id = self._next()
        self._note(stored, "labelsRemoved", labels)

    def delete(self, message_id: str) -> None:
        """Remove a message for good."""
        stored = self._get(message_id)
        stored.history_id = self._next()
        self._note(stored, "messagesDeleted", ())
        del self.messages[message_id]

    def forget_history(self) -> None:
        """From now on every cursor that was given out is too old."""
        self.oldest_history = self._next() + 1
        self.history_id = self.oldest_history

    def sent(self) -> list[StoredMessage]:
        """What lies under SENT, oldest first."""
        return [one for one in self.messages.values() if "SENT" in one.labels]

    def send(self, raw: bytes, thread_id: object, at: float) -> dict[str, Any]:
        """File what was posted, as Gmail does; Gone where its thread is not here."""
        thread = None
        if thread_id is not None:
            thread = str(thread_id)
            self.thread(thread)
        if self.replaces_message_id:
            raw = _MESSAGE_ID.sub(b"Message-ID: <CA+replaced@mail.gmail.com>", raw, count=1)
        labels = ("SENT",) if self.files_sent else ()
        stored = self.add(self.traces + raw, thread_id=thread, labels=labels, at=at)
        return {"id": stored.id, "threadId": stored.thread_id, "labelIds": sorted(stored.labels)}

    def profile(self) -> dict[str, Any]:
        """What users.getProfile says."""
        threads = {one.thread_id for one in self.messages.values()}
        return {
            "emailAddress": self.email,
            "messagesTotal": len(self.messages),
            "threadsTotal": len(threads),
            "historyId": str(self.history_id),
        }

    def thread(self, thread_id: str, form: str = "minimal") -> dict[str, Any]:
        """A thread in the forms `minimal` and `metadata`."""
        found = [one for one in self.messages.values() if one.thread_id == thread_id]
        if not found:
            raise Gone
        return {
            "id": thread_id,
            "historyId": str(max(one.history_id for one in found)),
            "messages": [_formed(one, form) for one in found],
        }

    def message(self, message_id: str, form: str) -> dict[str, Any]:
        """A message in the forms `raw`, `metadata` and `minimal`."""
        stored = self._get(message_id)
        if form == "raw":
            return {**_facts(stored), "raw": base64.urlsafe_b64encode(stored.raw).decode()}
        return _formed(stored, form)

    def listed(self, asked: Mapping[str, Sequence[str]]) -> dict[str, Any]:
        """messages.list: by labels, by `in:sent`, by `rfc822msgid:`; newest first, in pages."""
        wanted = set(asked.get("labelIds", ()))
        words = asked.get("q", [""])[0].split()
        if "in:sent" in words:
            wanted.add("SENT")
        by_id = next((w.partition(":")[2] for w in words if w.startswith("rfc822msgid:")), None)
        found = [
            one
            for one in reversed(self.messages.values())
            if wanted <= one.labels
            and by_id in (None, one.rfc822_message_id)
            and one.id not in self.hidden
        ]
        size = int(asked.get("maxResults", ["100"])[0])
        begin = int(asked.get("pageToken", ["0"])[0])
        page = [_reference(one) for one in found[begin : begin + size]]
        more = {"nextPageToken": str(begin + size)} if begin + size < len(found) else {}
        shown = {"messages": page} if page else {}
        return {**shown, "resultSizeEstimate": len(found), **more}

    def history_since(self, asked: Mapping[str, Sequence[str]]) -> dict[str, Any]:
        """history.list: one record per change, oldest first, in pages; Gone where it is too old."""
        start, label = int(asked["startHistoryId"][0]), asked.get("labelId", [""])[0]
        if start < self.oldest_history or start > self.history_id:
            raise Gone
        kinds = {
            {"messageAdded": "messagesAdded", "labelAdded": "labelsAdded"}.get(kind, "")
            for kind in asked.get("historyTypes", ())
        }
        records = [
            self._record(change)
            for change in self._changes
            if change[0] > start and change[1] in kinds and self._has(change[2], label)
        ]
        size = int(asked.get("maxResults", ["100"])[0])
        begin = int(asked.get("pageToken", ["0"])[0])
        page = records[begin : begin + size]
        more = {"nextPageToken": str(begin + size)} if begin + size < len(records) else {}
        return {
            **({"history": page} if page else {}),
            "historyId": str(self.history_id),
            **more,
        }

    def _has(self, message_id: str, label: str) -> bool:
        stored = self.messages.get(message_id)
        return not label or (stored is not None and label in stored.labels)

    def _record(self, change: tuple[int, str, str, frozenset[str]]) -> dict[str, Any]:
        number, kind, message_id, labels = change
        stored = self._get(message_id)
        reference = {**_reference(stored), "labelIds": sorted(stored.labels)}
        entry: dict[str, Any] = {"message": reference}
        if kind == "labelsAdded":
            entry["labelIds"] = sorted(labels)
        return {"id": str(number), "messages": [_reference(stored)], kind: [entry]}

    def _note(self, stored: StoredMessage, kind: str, labels: Iterable[str]) -> None:
        self._changes.append((stored.history_id, kind, stored.id, frozenset(labels)))

    def _next(self) -> int:
        self.history_id += 7
        return self.history_id

    def _get(self, message_id: str) -> StoredMessage:
        try:
            return self.messages[message_id]
        except KeyError:
            raise Gone from None


def _facts(stored: StoredMessage) -> dict[str, Any]:
    return {
        "id": stored.id,
        "threadId": stored.thread_id,
        **({"labelIds": sorted(stored.labels)} if stored.labels else {}),
        "snippet": "",
        "sizeEstimate": len(stored.raw),
        "historyId": str(stored.history_id),
        "internalDate": str(stored.internal_date),
    }


def _formed(stored: StoredMessage, form: str) -> dict[str, Any]:
    if form == "minimal":
        return _facts(stored)
    if form == "metadata":
        payload = {"mimeType": "text/plain", "headers": _headers(stored)}
        return {**_facts(stored), "payload": payload}
    raise ValueError(form)


def _reference(stored: StoredMessage) -> dict[str, str]:
    return {"id": stored.id, "threadId": stored.thread_id}


def _headers(stored: StoredMessage) -> list[dict[str, str]]:
    head = _HEADER_END.split(stored.raw, 1)[0].decode("utf-8", "replace")
    unfolded = re.sub(r"\r?\n[ \t]+", " ", head)
    pairs = (line.partition(":") for line in unfolded.splitlines())
    return [{"name": name, "value": value.strip()} for name, _, value in pairs if name]
