"""The only way out of a sandbox, and each door of it leads to one place.

The sandbox has no network. Before the worker starts, `inside` opens listening sockets there and
passes them out over a socket pair; whoever connects to one of them is connected here, outside, to
exactly the host and port that this door stands for. There is no protocol that a worker could talk
to it, and no name that it could ask for. Two doors look at what is asked: the one to our own server
(`one_path`), and the one to the Messages API, which is not connected at all (`broker`).
"""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import AsyncIterator, Coroutine, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import TYPE_CHECKING, Any

import structlog

from pipelines.runners.claude import one_path
from pipelines.runners.claude.destinations import MODEL, Destination

if TYPE_CHECKING:
    from pipelines.runners.claude.broker.exchange import Broker

log = structlog.get_logger(__name__)

#: Connections of one worker at a time, each with one request in memory; more wait at the door.
MAX_CONNECTIONS = 16

#: Seconds until a place that does not answer counts as not reachable.
CONNECT_SECONDS = 10.0

_CHUNK = 64 * 1024

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Egress:
    """The way out of one run: `with Egress(destinations) as egress`, then pass `egress.channel`.

    One thread with its own event loop; it ends with the block, and every connection with it. While
    the doors are `shut`, whoever comes waits in front of them, until `open` is called. `broker`
    answers at the door to the Messages API. `doors` are there already where nobody hands them out.
    """

    def __init__(
        self,
        destinations: Sequence[Destination],
        *,
        shut: bool = False,
        broker: Broker | None = None,
        doors: Sequence[socket.socket] = (),
    ) -> None:
        self._destinations = list(destinations)
        self._is_shut = shut
        self._broker = broker
        self._waiting = list(doors)
        self._ours, self._theirs = socket.socketpair()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._serve, name="egress", daemon=True)
        self._connections = asyncio.Semaphore(MAX_CONNECTIONS)
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def channel(self) -> int:
        """The descriptor that the first program inside needs."""
        return self._theirs.fileno()

    def open(self) -> None:
        """Let those through who wait in front of shut doors, and all who come later."""
        self._loop.call_soon_threadsafe(self._open)

    def __enter__(self) -> Egress:
        self._ours.setblocking(False)
        if self._waiting:
            self._loop.call_soon(self._open)
        else:
            self._loop.add_reader(self._ours, self._take_doors)
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._ours.close()
        self._theirs.close()

    def _serve(self) -> None:
        try:
            self._loop.run_forever()
            ending = list(self._tasks)
            for task in ending:
                task.cancel()
            if ending:
                self._loop.run_until_complete(asyncio.wait(ending))
            if self._broker is not None:
                self._loop.run_until_complete(self._broker.close())
            for door in self._waiting:
                door.close()
        finally:
            self._loop.close()

    def _take_doors(self) -> None:
        """Take the listening sockets, once: whatever comes later finds nobody here."""
        self._loop.remove_reader(self._ours)
        try:
            _, descriptors, _, _ = socket.recv_fds(self._ours, 64, len(self._destinations))
        except OSError as error:
            log.warning("a sandbox handed over no doors", detail=error.strerror)
            return
        doors = [socket.socket(fileno=descriptor) for descriptor in descriptors]
        if len(doors) != len(self._destinations):
            log.warning("a sandbox handed over the wrong doors", doors=len(doors))
            for door in doors:
                door.close()
            return
        self._waiting = doors
        if not self._is_shut:
            self._open()

    def _open(self) -> None:
        self._is_shut = False
        doors, self._waiting = self._waiting, []
        for door, destination in zip(doors, self._destinations, strict=False):  # none: not yet here
            self._begin(self._attend(door, destination))

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _attend(self, door: socket.socket, destination: Destination) -> None:
        door.setblocking(False)
        with door:
            while True:
                visitor, _ = await self._loop.sock_accept(door)
                await self._connections.acquire()
                self._begin(self._join(visitor, destination))

    async def _join(self, visitor: socket.socket, destination: Destination) -> None:
        """Join one connection to its place; whatever goes wrong ends that connection alone."""
        near = await asyncio.open_connection(sock=visitor)
        try:
            if destination == MODEL and self._broker is not None:
                await self._broker.serve(*near)
            elif destination.path:
                await _join_to_path(near, destination)
            else:
                async with _connected(destination) as far:
                    await asyncio.gather(_pump(near[0], far[1]), _pump(far[0], near[1]))
        except (OSError, TimeoutError) as error:
            log.info("a worker's connection failed", host=destination.place.host, detail=str(error))
        except asyncio.CancelledError:
            near[1].transport.abort()
            raise
        finally:
            await _finish(near[1])
            self._connections.release()


@contextmanager
def on_loopback(broker: Broker) -> Iterator[str]:
    """The Messages API for a worker without walls: its URL on this host."""
    with socket.create_server(("127.0.0.1", 0)) as door:
        port = door.getsockname()[1]
        with Egress([MODEL], broker=broker, doors=[door]):
            yield f"http://127.0.0.1:{port}"


async def _finish(writer: asyncio.StreamWriter) -> None:
    """Close it once it is read to its end; a reader that takes for ever is cut off."""
    writer.close()
    try:
        await asyncio.wait_for(writer.wait_closed(), CONNECT_SECONDS)
    except (OSError, TimeoutError):
        writer.transport.abort()


async def _join_to_path(near: Streams, destination: Destination) -> None:
    try:
        request = await one_path.read_request(near[0], destination.path)
    except one_path.NotForThisDoor:
        await one_path.refuse(near[1])
        return
    async with _connected(destination) as far:
        await one_path.exchange(request, far, near[1])


@asynccontextmanager
async def _connected(destination: Destination) -> AsyncIterator[Streams]:
    """A connection to the place itself."""
    opening = asyncio.open_connection(destination.place.host, destination.place.port)
    reader, writer = await asyncio.wait_for(opening, CONNECT_SECONDS)
    try:
        yield reader, writer
    finally:
        writer.transport.abort()


async def _pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    """Pass on what comes, no faster than it is taken, then its end."""
    with suppress(OSError):
        while chunk := await source.read(_CHUNK):
            sink.write(chunk)
            await sink.drain()
        sink.write_eof()
