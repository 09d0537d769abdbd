"""The live feed: events as they are appended, resumable by cursor, bounded by acknowledgements."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Sequence
from contextlib import suppress
from typing import Any
from urllib.parse import parse_qs

from channels.db import database_sync_to_async
from channels.generic.websocket import AsyncWebsocketConsumer
from django.db import DatabaseError

from guards.exceptions import CountersignError, InvalidInput
from teams import frames, selectors
from teams.admission import FeedReader, TokenReader, admit
from teams.exceptions import CursorBeyondHead
from teams.frames import EventFrame, event_frame
from teams.tailer import Subscription, tailer
from teams.types import LogHead
from teams.window import Window

logger = logging.getLogger(__name__)

#: A ping, and another look at who reads, at least this often in seconds.
PING_SECONDS = 15.0
#: Events read at once while a client catches up.
PAGE = 100
#: Close codes: a request that makes no sense, and a reader who may not (any more).
BAD_REQUEST = 4400
NOT_ALLOWED = 4401
#: The database is away: the client comes back with its cursor (RFC 6455's registry: try again).
TRY_AGAIN = 1013
#: An acknowledgement is some twenty bytes.
_LARGEST_MESSAGE = 1_000


class FeedConsumer(AsyncWebsocketConsumer):
    """`/ws/feed?cursor=N&kind=…&project=…`: frames `event`, `gap`, `ping`, `error`.

    Without a cursor it begins at the head. The client sends `{"ack": seq}`; it may acknowledge what
    it read from the log itself. A gap is sent when the cursor is older than the log keeps, and when
    `window.LIMIT` frames are unacknowledged: then nothing follows until the client has caught up.
    """

    ping_seconds = PING_SECONDS

    async def connect(self) -> None:
        """Admit the reader, accept, and start sending from its cursor."""
        self._sender: asyncio.Task[None] | None = None
        self._subscription: Subscription | None = None
        self._wake = asyncio.Event()
        try:
            self._reader: FeedReader = await database_sync_to_async(admit)(self.scope)
        except CountersignError:
            await self.close(code=NOT_ALLOWED)
            return
        await self.accept()
        try:
            await self._start()
        except (CursorBeyondHead, InvalidInput) as problem:
            await self._end(problem, BAD_REQUEST)

    async def disconnect(self, code: int) -> None:
        """Stop listening and sending."""
        if self._subscription is not None:
            tailer.unsubscribe(self._subscription)
            self._subscription = None
        sender, self._sender = self._sender, None
        if sender is not None and sender is not asyncio.current_task():
            sender.cancel()

    async def receive(self, text_data: str | None = None, bytes_data: bytes | None = None) -> None:
        """Take an acknowledgement; what comes after a refusal or the end is for nobody."""
        if self._sender is None:
            return
        try:
            seq = _acknowledged(text_data)
            if seq > self._window.position:
                await self._require_reached(seq)
        except (InvalidInput, CursorBeyondHead) as problem:
            await self._end(problem, BAD_REQUEST)
            return
        self._window.acknowledge(seq)
        self._wake.set()

    async def _start(self) -> None:
        query = parse_qs(self.scope.get("query_string", b"").decode("latin-1"))
        self._kinds = frozenset(query.get("kind", ())) or None
        self._project = self._reader.project or next(iter(query.get("project", ())), None)
        self._subscription = tailer.subscribe(self._wake.set)
        head, oldest = await database_sync_to_async(_bounds)()
        cursor = _cursor(query, head)
        self._window = Window(max(cursor, oldest - 1))
        if cursor + 1 < oldest:
            await self.send(text_data=frames.gap(oldest=oldest, head=head.seq))
        self._wake.set()
        self._sender = asyncio.create_task(self._keep_sending())

    async def _keep_sending(self) -> None:
        """The one task that sends: what is new when woken, a ping and a second look in time."""
        loop = asyncio.get_running_loop()
        look_again = loop.time() + self.ping_seconds
        try:
            while True:
                with suppress(TimeoutError):
                    async with asyncio.timeout_at(look_again):
                        await self._wake.wait()
                if loop.time() >= look_again:  # however busy the log or the client keeps us
                    await self._look_again()
                    await self.send(text_data=frames.PING)
                    look_again = loop.time() + self.ping_seconds
                elif self._wake.is_set():
                    self._wake.clear()
                    await self._send_some()
        except CountersignError as problem:
            await self._end(problem, NOT_ALLOWED)
        except DatabaseError:
            logger.warning("a feed ends: the database is not reachable", exc_info=True)
            await self.close(code=TRY_AGAIN)

    async def _send_some(self) -> None:
        """One page of what is new; the next one comes after another look at the clock."""
        if self._window.suspended:
            return
        page = tailer.recent(self._window.position, PAGE)
        if page is None:
            page = await database_sync_to_async(_read)(self._window.position)
        if page:
            await self._send_page(page)
            self._wake.set()

    async def _send_page(self, page: Sequence[EventFrame]) -> None:
        for frame in page:
            if frame.kind == "token.revoked" and isinstance(self._reader, TokenReader):
                await self._look_again()
            if not self._sees(frame):
                self._window.skipped(frame.seq)
                continue
            if self._window.is_full:
                self._window.suspended = True
                head, oldest = await database_sync_to_async(_bounds)()
                await self.send(text_data=frames.gap(oldest=oldest, head=head.seq))
                return
            await self.send(text_data=frame.text)
            self._window.sent(frame.seq)

    def _sees(self, frame: EventFrame) -> bool:
        if self._project is not None and frame.project != self._project:
            return False
        return self._kinds is None or frame.kind in self._kinds

    async def _look_again(self) -> None:
        await database_sync_to_async(self._reader.require_still_valid)()

    async def _require_reached(self, seq: int) -> None:
        head, _ = await database_sync_to_async(_bounds)()
        if seq > head.seq:
            raise CursorBeyondHead(f"event {seq} does not exist yet", field="ack")

    async def _end(self, problem: CountersignError, code: int) -> None:
        await self.send(text_data=frames.error(code=problem.code, message=problem.detail))
        await self.close(code=code)
        await self.disconnect(code)


def _bounds() -> tuple[LogHead, int]:
    return selectors.head(), selectors.oldest_seq()


def _read(after: int) -> list[EventFrame]:
    return [event_frame(event) for event in selectors.events_between(after, PAGE)]


def _cursor(query: dict[str, list[str]], head: LogHead) -> int:
    text = next(iter(query.get("cursor", ())), "")
    if not text:
        return head.seq
    if not (text.isascii() and text.isdigit() and len(text) <= 18):
        raise InvalidInput(f"cursor {text[:40]!r} is no sequence number", field="cursor")
    if int(text) > head.seq:
        raise CursorBeyondHead(f"the log ends at event {head.seq}", field="cursor")
    return int(text)


def _acknowledged(text: str | None) -> int:
    """The sequence number of `{"ack": n}`; InvalidInput for anything else."""
    message: Any = None
    if text is not None and len(text) <= _LARGEST_MESSAGE:
        try:
            message = json.loads(text)
        except (ValueError, RecursionError):
            message = None
    seq = message.get("ack") if isinstance(message, dict) else None
    if not isinstance(seq, int) or isinstance(seq, bool) or seq < 0:
        raise InvalidInput('send {"ack": <sequence number>} and nothing else', field="ack")
    return seq
