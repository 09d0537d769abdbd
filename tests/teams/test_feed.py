"""The feed: who may open it, cursors, acknowledgements, gaps, and the log as the truth."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path as Folder
from threading import Event as Flag
from typing import Any

import pytest
from asgiref.sync import SyncToAsync
from channels.db import database_sync_to_async
from channels.routing import URLRouter
from channels.sessions import SessionMiddlewareStack
from channels.testing import WebsocketCommunicator
from django.contrib.auth import get_user_model
from django.contrib.auth.models import AbstractBaseUser
from django.contrib.sessions.models import Session
from django.db import connections
from django.test import Client
from django.urls import path

from guards import triggers
from guards.models import ApiToken
from guards.services import tokens
from guards.types import Asker
from teams import consumers, selectors
from teams.frames import EventFrame
from teams.models import Event
from teams.routing import websocket_urlpatterns
from teams.tailer import Tailer, tailer
from teams.window import Window
from tests import databases
from tests.databases import shared
from tests.teams.conftest import Fill

pytestmark = pytest.mark.django_db(transaction=True)

OPERATOR = Asker("operator", "ada")
HOST = (b"host", b"localhost")
OURS = (b"origin", b"http://localhost")


@pytest.fixture(autouse=True)
def real_database(transactional_db: None, tmp_path: Folder) -> Iterator[None]:
    """One database for this thread, the tailer's and the sockets' threads."""
    with shared(tmp_path):
        yield
        tailer.join()
        # Every coroutine's database is reached from one thread, which outlives the test.
        SyncToAsync.single_thread_executor.submit(connections.close_all).result()
        assert tailer._thread is None, "a socket is still open"


def minted(*scopes: str, project: str = "") -> tuple[ApiToken, str]:
    return tokens.mint(
        label="reader", scopes=scopes or ["events:read"], project=project, by=OPERATOR
    )


def bearer(secret: str) -> tuple[bytes, bytes]:
    return (b"authorization", f"Bearer {secret}".encode())


def application(consumer: type[consumers.FeedConsumer] | None = None) -> Any:
    routes = websocket_urlpatterns
    if consumer is not None:
        routes = [path("ws/feed", consumer.as_asgi())]
    return SessionMiddlewareStack(URLRouter(routes))


@asynccontextmanager
async def feed(
    query: str,
    *headers: tuple[bytes, bytes],
    consumer: type[consumers.FeedConsumer] | None = None,
) -> AsyncIterator[WebsocketCommunicator]:
    """An open feed; the tailer has ended when it is left."""
    socket = WebsocketCommunicator(
        application(consumer), f"/ws/feed{query}", headers=[HOST, *headers]
    )
    connected, code = await socket.connect(timeout=10)
    assert connected, code
    try:
        yield socket
    finally:
        await socket.disconnect()
        await asyncio.to_thread(tailer.join)
        await database_sync_to_async(connections.close_all)()


async def refused(query: str, *headers: tuple[bytes, bytes]) -> int:
    socket = WebsocketCommunicator(application(), f"/ws/feed{query}", headers=[HOST, *headers])
    connected, code = await socket.connect(timeout=10)
    assert not connected
    await database_sync_to_async(connections.close_all)()
    return int(code)


async def receive_any(socket: WebsocketCommunicator) -> dict[str, Any]:
    frame: dict[str, Any] = json.loads(await socket.receive_from(timeout=10))
    return frame


async def receive(socket: WebsocketCommunicator) -> dict[str, Any]:
    """The next frame but for pings, which come at any time to whoever stays for long."""
    while (frame := await receive_any(socket))["type"] == "ping":
        continue
    return frame


async def receives_nothing(socket: WebsocketCommunicator) -> bool:
    """Whether there is no frame now but for pings."""
    while not await socket.receive_nothing(timeout=0.2):
        if (await receive_any(socket))["type"] != "ping":
            return False
    return True


async def events(socket: WebsocketCommunicator, number: int) -> list[int]:
    frames = [await receive(socket) for _ in range(number)]
    assert {frame["type"] for frame in frames} == {"event"}
    return [frame["event"]["seq"] for frame in frames]


in_database = database_sync_to_async


async def test_a_feed_begins_behind_its_cursor_and_goes_on_live(fill: Fill) -> None:
    _, secret = await in_database(minted)()
    await in_database(fill)(3)
    async with feed("?cursor=2", bearer(secret)) as socket:
        assert await events(socket, 2) == [3, 4]
        await in_database(fill)(2)
        assert await events(socket, 2) == [5, 6]


async def test_a_tailer_that_begins_late_wakes_those_who_wait_already(fill: Fill) -> None:
    woken = asyncio.Event()
    late = Tailer()
    await in_database(fill)(3)
    subscription = late.subscribe(woken.set)
    try:
        await asyncio.wait_for(woken.wait(), 10)
    finally:
        late.unsubscribe(subscription)
        await asyncio.to_thread(late.join)


@pytest.mark.one_database
async def test_a_tailer_that_stumbles_begins_again_and_wakes(fill: Fill) -> None:
    """What is no error of the database must not leave every socket of the process without news."""
    woken = asyncio.Event()

    class Stumbling(Tailer):
        stumbles = 1

        def _follow(self, stop: Flag, position: int | None) -> int:
            if self.stumbles:
                self.stumbles -= 1
                raise RuntimeError("something unforeseen")
            return super()._follow(stop, position)

    late = Stumbling()
    subscription = late.subscribe(woken.set)
    try:
        await asyncio.wait_for(woken.wait(), 10)
    finally:
        late.unsubscribe(subscription)
        await asyncio.to_thread(late.join)
    assert late.stumbles == 0


@pytest.mark.one_database
async def test_without_a_cursor_it_begins_at_the_head(fill: Fill) -> None:
    _, secret = await in_database(minted)()
    await in_database(fill)(3)
    async with feed("", bearer(secret)) as socket:
        await in_database(fill)(1)
        assert await events(socket, 1) == [5]


@pytest.mark.one_database
async def test_a_frame_says_everything_about_its_event(fill: Fill) -> None:
    _, secret = await in_database(minted)()
    async with feed("", bearer(secret)) as socket:
        await in_database(fill)(1, project="apollo")
        frame = await receive(socket)
    event = frame["event"]
    assert frame["type"] == "event"
    assert set(event) == {
        "seq", "at", "kind", "subject", "actor", "project", "facts", "text",
    }  # fmt: skip
    assert event["subject"] == {"type": "teams.project", "id": "p0"}
    assert event["text"] == "ada changed the project p0."
    assert event["project"] == "apollo"


_WRITER = """
import sys, django
django.setup()
from guards.services.units import unit_of_work
from guards.types import Subject
from teams.services.events import append_event
print("ready", flush=True)
sys.stdin.read(1)
for name in "abc":
    with unit_of_work():
        append_event(
            kind="project.changed", subject=Subject("teams.project", name), actor="operator:ada",
            facts={"slug": name},
        )
"""


@pytest.mark.invariant(25)
@pytest.mark.fault("feed-04")
async def test_it_sees_events_of_other_processes() -> None:
    """Without Redis and without a channel layer: what another process commits arrives."""
    writer = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        _WRITER,
        env={
            **os.environ,
            "DATABASE_URL": await in_database(databases.url)(),
            "DJANGO_SETTINGS_MODULE": "config.settings",
        },
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert writer.stdin is not None and writer.stdout is not None
    assert await writer.stdout.readline() == b"ready\n"
    _, secret = await in_database(minted)()
    async with feed("", bearer(secret)) as socket:
        await writer.communicate(b".")
        assert await events(socket, 3) == [2, 3, 4]
    assert writer.returncode == 0


@pytest.mark.one_database
@pytest.mark.invariant(25)
@pytest.mark.fault("feed-02", "feed-04")
async def test_a_reconnecting_client_misses_nothing(fill: Fill) -> None:
    """Drop, and come back with the last sequence number: the stream equals the log."""
    _, secret = await in_database(minted)()
    seen: list[int] = []
    cursor = 0
    for _ in range(4):
        async with feed(f"?cursor={cursor}", bearer(secret)) as socket:
            await in_database(fill)(2)
            expected = (await in_database(selectors.head)()).seq - cursor
            taken = max(1, expected - 1)  # the last one is lost with the connection
            seen += await events(socket, taken)
            cursor = seen[-1]
    async with feed(f"?cursor={cursor}", bearer(secret)) as socket:
        seen += await events(socket, (await in_database(selectors.head)()).seq - cursor)
    log = await in_database(lambda: [event.seq for event in selectors.events_after(0)])()
    assert seen == log


@pytest.mark.one_database
async def test_a_cursor_beyond_the_head_is_an_error(fill: Fill) -> None:
    _, secret = await in_database(minted)()
    async with feed("?cursor=99", bearer(secret)) as socket:
        frame = await receive(socket)
        assert (frame["type"], frame["code"]) == ("error", "cursor-beyond-head")
        assert (await socket.receive_output(timeout=10))["code"] == consumers.BAD_REQUEST


@pytest.mark.one_database
async def test_a_cursor_that_is_none_is_an_error() -> None:
    _, secret = await in_database(minted)()
    for cursor in ("-1", "x", "1e3", "9" * 30, "%EF%BC%91"):
        async with feed(f"?cursor={cursor}", bearer(secret)) as socket:
            assert (await receive(socket))["code"] == "invalid-input", cursor


@pytest.mark.one_database
@pytest.mark.invariant(25)
async def test_a_slow_client_gets_a_gap_and_goes_on_when_it_has_caught_up(fill: Fill) -> None:
    _, secret = await in_database(minted)()
    async with feed("?cursor=0", bearer(secret)) as socket:
        assert await events(socket, 1) == [1]
        await in_database(fill)(600, at_once=True)
        assert await events(socket, 499) == list(range(2, 501))
        frame = await receive(socket)
        assert frame["type"] == "gap"
        assert frame["oldest"] == 1
        assert frame["head"] >= 501
        assert await receives_nothing(socket)
        await socket.send_to(text_data='{"ack": 500}')
        assert await events(socket, 101) == list(range(501, 602))


@pytest.mark.one_database
async def test_a_client_that_read_the_log_itself_goes_on_behind_it(fill: Fill) -> None:
    _, secret = await in_database(minted)()
    await in_database(fill)(550, at_once=True)
    async with feed("?cursor=0", bearer(secret)) as socket:
        await events(socket, 500)
        head = (await receive(socket))["head"]
        await socket.send_to(text_data=json.dumps({"ack": head}))
        await in_database(fill)(1)
        assert await events(socket, 1) == [head + 1]


NO_ACKNOWLEDGEMENTS = (
    " ", "nonsense", "[]", '{"ack": "1"}', '{"ack": -1}', '{"ack": true}', "[" * 900,
)  # fmt: skip


@pytest.mark.one_database
async def test_what_is_no_acknowledgement_ends_the_feed() -> None:
    _, secret = await in_database(minted)()
    for message in NO_ACKNOWLEDGEMENTS:
        async with feed("", bearer(secret)) as socket:
            await socket.send_to(text_data=message)
            assert (await receive(socket))["type"] == "error", message


@pytest.mark.one_database
async def test_an_acknowledgement_of_what_does_not_exist_is_an_error(fill: Fill) -> None:
    _, secret = await in_database(minted)()
    async with feed("", bearer(secret)) as socket:
        await socket.send_to(text_data='{"ack": 1000}')
        assert (await receive(socket))["code"] == "cursor-beyond-head"


@pytest.mark.one_database
@pytest.mark.invariant(25)
async def test_an_older_cursor_than_the_log_keeps_gets_a_gap(fill: Fill) -> None:
    def prune() -> None:
        triggers.lift("teams")
        Event.objects.filter(seq__lte=4).delete()
        triggers.install("teams")

    _, secret = await in_database(minted)()
    await in_database(fill)(6)
    await in_database(prune)()
    async with feed("?cursor=1", bearer(secret)) as socket:
        assert await receive(socket) == {"type": "gap", "oldest": 5, "head": 7}
        assert await events(socket, 3) == [5, 6, 7]


@pytest.mark.one_database
async def test_kinds_and_a_project_narrow_the_feed(fill: Fill) -> None:
    _, secret = await in_database(minted)()
    async with feed("?kind=project.created&project=apollo", bearer(secret)) as socket:
        await in_database(fill)(2, project="apollo")
        await in_database(fill)(1, project="gemini", kind="project.created")
        await in_database(fill)(1, project="apollo", kind="project.created")
        assert (await receive(socket))["event"]["project"] == "apollo"
        assert await socket.receive_nothing(timeout=0.1)


@pytest.mark.one_database
async def test_a_projects_token_sees_its_own_project_only(fill: Fill) -> None:
    _, secret = await in_database(minted)(project="apollo")
    async with feed("?cursor=0&project=gemini", bearer(secret)) as socket:
        await in_database(fill)(2, project="gemini")
        await in_database(fill)(1)
        await in_database(fill)(1, project="apollo")
        seen = [(await receive(socket))["event"] for _ in range(2)]
        assert [event["project"] for event in seen] == ["apollo", "apollo"]
        assert seen[0]["kind"] == "token.minted"


# --- Who may --------------------------------------------------------------------------------------


@pytest.mark.one_database
@pytest.mark.fault("W12")
async def test_a_feed_needs_a_token_that_counts_and_carries_the_scope() -> None:
    _, good = await in_database(minted)()
    _, narrow = await in_database(minted)("approvals:read")
    revoked, dead = await in_database(minted)()
    await in_database(tokens.revoke)(token=revoked, by=OPERATOR)
    for headers in (
        [],
        [bearer("cs_nonsense")],
        [bearer(dead)],
        [bearer(narrow)],
        [(b"authorization", b"Basic YTpi")],
        [(b"authorization", b"Bearer " + good.encode()), (b"authorization", b"Bearer x")],
    ):
        assert await refused("", *headers) == consumers.NOT_ALLOWED
    assert await refused(f"?token={good}") == consumers.NOT_ALLOWED
    async with feed("", bearer(good)):
        pass


@pytest.mark.one_database
@pytest.mark.fault("W12")
async def test_a_foreign_page_opens_nothing() -> None:
    _, secret = await in_database(minted)()
    session = await in_database(signed_in)()
    for origin in (
        b"http://evil.example",
        b"null",
        b"http://localhost.evil.example",
        b"file://",
        b"",
    ):
        foreign = (b"origin", origin)
        assert await refused("", bearer(secret), foreign) == consumers.NOT_ALLOWED, origin
        assert await refused("", cookie(session), foreign) == consumers.NOT_ALLOWED, origin
    assert await refused("", cookie(session)) == consumers.NOT_ALLOWED  # a browser always says
    async with feed("", cookie(session), OURS):
        pass


@pytest.mark.one_database
@pytest.mark.fault("W12")
async def test_a_foreign_host_name_opens_nothing() -> None:
    session = await in_database(signed_in)()
    socket = WebsocketCommunicator(
        application(),
        "/ws/feed",
        headers=[(b"host", b"evil.example"), (b"origin", b"http://evil.example"), cookie(session)],
    )
    assert (await socket.connect(timeout=10))[0] is False
    await in_database(connections.close_all)()


@pytest.mark.one_database
async def test_a_session_needs_a_person_of_the_console() -> None:
    for rights in (
        {"is_staff": False},
        {"is_staff": True},
        {"is_superuser": True},
        {"is_active": False},
    ):
        session = await in_database(signed_in)(**rights)
        assert await refused("", cookie(session), OURS) == consumers.NOT_ALLOWED, rights


@pytest.mark.one_database
async def test_a_revoked_token_ends_its_feed_at_once(fill: Fill) -> None:
    token, secret = await in_database(minted)()
    async with feed("", bearer(secret)) as socket:
        await in_database(tokens.revoke)(token=token, by=OPERATOR)
        frame = await receive(socket)
        assert frame["code"] == "not-authenticated"
        assert (await socket.receive_output(timeout=10))["code"] == consumers.NOT_ALLOWED


class ImpatientFeed(consumers.FeedConsumer):
    ping_seconds = 0.1


@pytest.mark.one_database
async def test_a_ping_looks_again_who_reads() -> None:
    session = await in_database(signed_in)()
    async with feed("", cookie(session), OURS, consumer=ImpatientFeed) as socket:
        assert await receive_any(socket) == {"type": "ping"}
        await in_database(sign_out)()
        while (frame := await receive(socket))["type"] == "ping":
            pass
        assert frame["code"] == "not-authenticated"


class RestlessFeed(ImpatientFeed):
    """A client that acknowledges so often that there is always something to wake up for."""

    async def _send_some(self) -> None:
        await super()._send_some()
        self._wake.set()


@pytest.mark.one_database
async def test_a_client_that_never_lets_the_feed_rest_is_looked_at_all_the_same() -> None:
    session = await in_database(signed_in)()
    async with feed("", cookie(session), OURS, consumer=RestlessFeed) as socket:
        assert await receive_any(socket) == {"type": "ping"}
        await in_database(sign_out)()
        while (frame := await receive(socket))["type"] == "ping":
            pass
        assert frame["code"] == "not-authenticated"


@pytest.mark.one_database
async def test_what_a_client_says_after_its_feed_ended_is_for_nobody() -> None:
    _, secret = await in_database(minted)()
    async with feed("?cursor=none", bearer(secret)) as socket:
        await socket.send_to(text_data='{"ack": 0}')
        assert (await receive(socket))["type"] == "error"
        await socket.send_to(text_data="nonsense")
        assert (await socket.receive_output(timeout=10))["code"] == consumers.BAD_REQUEST
        assert await socket.receive_nothing(timeout=0.2)


# --- The parts ------------------------------------------------------------------------------------


@pytest.mark.one_database
def test_a_window_never_grows_beyond_its_limit() -> None:
    window = Window(position=0, limit=4)
    for seq in range(1, 5):
        assert not window.is_full
        window.sent(seq)
    assert window.is_full
    window.suspended = True
    window.acknowledge(1)
    assert (window.is_full, window.suspended) == (False, True)
    window.acknowledge(2)
    assert not window.suspended
    window.acknowledge(90)
    assert (window.position, window.is_full) == (90, False)
    window.acknowledge(3)
    assert window.position == 90


@pytest.mark.one_database
async def test_there_is_one_tailer_for_all_sockets_and_none_without_any(fill: Fill) -> None:
    _, secret = await in_database(minted)()
    async with feed("", bearer(secret)) as one, feed("", bearer(secret)) as two:
        thread = tailer._thread
        assert thread is not None
        await in_database(fill)(1)
        assert await events(one, 1) == await events(two, 1)
        assert tailer._thread is thread
    assert tailer._thread is None


@pytest.mark.one_database
def test_a_tailer_keeps_recent_frames_only_where_they_follow_each_other() -> None:
    ours = Tailer()
    frames = [EventFrame(seq, "k", "", "{}") for seq in range(1, 6)]
    assert ours.recent(0, 10) is None
    ours._keep(frames[2:4])
    assert ours.recent(1, 10) is None
    assert [frame.seq for frame in ours.recent(2, 10) or ()] == [3, 4]
    ours._keep(frames[4:])
    assert [frame.seq for frame in ours.recent(3, 1) or ()] == [4]
    assert ours.recent(5, 10) is None
    ours._keep(frames[:1])
    assert ours.recent(3, 10) is None


def signed_in(**rights: bool) -> str:
    """A browser's session of a person with these rights; an operator where nothing is said."""
    rights = rights or {"is_staff": True, "is_superuser": True}
    person: AbstractBaseUser = get_user_model().objects.create_user(
        username=f"ada{get_user_model().objects.count()}",
        password="a long one",
        **{"is_active": True, **rights},
    )
    browser = Client()
    browser.force_login(person, backend="django.contrib.auth.backends.ModelBackend")
    return browser.cookies["sessionid"].value


def sign_out() -> None:
    Session.objects.all().delete()


def cookie(session: str) -> tuple[bytes, bytes]:
    return (b"cookie", f"sessionid={session}".encode())
