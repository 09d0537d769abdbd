"""One request from inside to its answer: judged, counted, asked, passed on."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

import h11
import structlog

from pipelines.runners.claude.broker.meter import Meter
from pipelines.runners.claude.broker.requests import Refused, Request, forbidden
from pipelines.runners.claude.broker.upstream import Answer, Unreachable, Upstream
from pipelines.runners.claude.broker.usage import Reading
from pipelines.runners.claude.broker.visitors import Gone, Visitor

log = structlog.get_logger(__name__)

#: Requests that are read or answered at a time: each may be a body in memory, and cost something.
AT_ONCE = 4

#: Seconds in which a request has to come, its head and its body each.
REQUEST_SECONDS = 60.0

#: Refusals of one run that are logged: a worker could ask in vain without end.
MOST_TOLD = 100

#: Fields of an answer that are passed on, and how those begin that are.
_FIELDS = frozenset({b"content-type", b"request-id", b"retry-after", b"x-should-retry"})
_FIELDS_BEGIN = (b"anthropic-",)


@dataclass
class Broker:
    """The broker of one run: whoever has its word is answered for as long as the meter allows."""

    upstream: Upstream
    meter: Meter
    word: str = field(repr=False)
    seconds: float = REQUEST_SECONDS

    def __post_init__(self) -> None:
        self._slots = asyncio.Semaphore(AT_ONCE)
        self._told = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one connection's one request."""
        visitor = Visitor(reader, writer)
        try:
            async with asyncio.timeout(self.seconds):
                head = await visitor.head(self.word)
            async with self._slots:
                async with asyncio.timeout(self.seconds):
                    request = await visitor.request(head)
                await self._while_there(visitor, request)
        except Gone:
            self._tell("a worker left before it had its answer")
        except TimeoutError:
            await visitor.refuse(Refused(408, "invalid_request_error", "the request did not come"))
        except Refused as refused:
            self._tell("a request to the Messages API is refused", reason=refused.message)
            await visitor.refuse(refused)

    async def close(self) -> None:
        """The run has ended."""
        await self.upstream.close()

    def _tell(self, event: str, **facts: str) -> None:
        self._told += 1
        if self._told <= MOST_TOLD:
            log.info(event, **facts)

    async def _while_there(self, visitor: Visitor, request: Request) -> None:
        """Nobody is asked on for somebody who has left."""
        exchange = asyncio.ensure_future(self._exchange(visitor, request))
        leaving = asyncio.ensure_future(visitor.gone())
        try:
            await asyncio.wait({exchange, leaving}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            leaving.cancel()
            if not exchange.done():
                exchange.cancel()
            await asyncio.wait({exchange, leaving})
        if not exchange.cancelled():
            exchange.result()

    async def _exchange(self, visitor: Visitor, request: Request) -> None:
        reading = await self.meter.admit(request)
        goes_on = False
        try:
            await self._answer(visitor, request, reading)
        except (asyncio.CancelledError, Gone):  # a stream ends with whoever reads it
            goes_on = not request.is_stream
            raise
        except Unreachable as error:
            self._forget(request, reading)
            raise Refused(502, "api_error", str(error)) from error
        except (OSError, TimeoutError, h11.RemoteProtocolError) as error:
            said = self.upstream.hide(str(error)) or "it was silent for too long"
            log.warning("the Messages API did not answer to the end", detail=said)
            if not visitor.is_answered:
                message = f"the Messages API gave no answer: {said}"
                raise Refused(502, "api_error", message) from None
            visitor.break_off()
        finally:
            self.meter.settle(reading, goes_on=goes_on)

    async def _answer(self, visitor: Visitor, request: Request, reading: Reading) -> None:
        async with self.upstream.asked(request) as answer:
            if not 200 <= answer.status < 300:
                self._forget(request, reading)
            _require_passable(answer)
            await _pass_on(visitor, answer, reading)

    def _forget(self, request: Request, reading: Reading) -> None:
        if request.costs:
            self.meter.forget(reading)


def _require_passable(answer: Answer) -> None:
    """Refused for an answer that leads elsewhere, or cannot be read here."""
    if 300 <= answer.status < 400 or answer.status < 200:
        raise forbidden("no-redirect", f"the Messages API answers {answer.status}")
    if answer.said(b"content-encoding") not in ("", "identity"):
        raise Refused(502, "api_error", "the answer is encoded, which was not asked for")


async def _pass_on(visitor: Visitor, answer: Answer, reading: Reading) -> None:
    """What it used is counted before it is passed on: the next request finds it counted."""
    reading.begin(answer.said(b"content-type"))
    fields = [
        (name, value)
        for name, value in answer.fields
        if name in _FIELDS or name.startswith(_FIELDS_BEGIN)
    ]
    await visitor.begin(answer.status, fields)
    while piece := await answer.piece():
        reading.take(piece)
        await visitor.pass_on(piece)
    reading.finish()
    await visitor.end()
