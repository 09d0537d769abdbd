"""The broker of the Messages API: what it counts of answers, and when it is enough."""

from __future__ import annotations

import itertools
import json
import socket
import threading
from decimal import Decimal

import pytest

from guards.exceptions import InvalidInput
from pipelines.runners.claude.broker import prices
from pipelines.runners.claude.broker.meter import _OF_ANY_KIND, REQUESTS_A_TURN
from pipelines.runners.claude.broker.prices import Price
from pipelines.runners.claude.broker.usage import Reading, Tokens
from tests.pipelines.brokers import (
    STREAM_HEAD,
    answered,
    broker,
    events,
    message,
    request,
)

pytestmark = [pytest.mark.invariant(15), pytest.mark.fault("sister-35")]


# --- What is counted ------------------------------------------------------------------------------


def test_what_answers_used_is_added_up_whatever_their_form(api, desk):
    cached = {"cache_read_input_tokens": 5, "cache_creation_input_tokens": 3}
    api.script = answered(message(input_tokens=100, output_tokens=20, **cached))
    desk.ask()
    api.script = answered(events(input_tokens=200, output=50), "Content-Type: text/event-stream")
    desk.ask({"stream": True})
    tally = desk.broker.meter.tally()
    assert tally.tokens == Tokens(input=300, output=70, cache_write=3, cache_read=5)
    assert (tally.requests, tally.unread, tally.usd, tally.enough) == (2, 0, None, "")


def test_what_costs_nothing_is_not_counted(api, desk):
    count = "POST /v1/messages/count_tokens HTTP/1.1"
    desk.send(request(first=count))
    for status in ("400 Bad", "429 Too Many", "500 Broken", "529 Overloaded"):
        api.script = answered(message(input_tokens=100), status=status)
        desk.ask()
    desk.ask({"mcp_servers": [1]})
    assert desk.broker.meter.tally().requests == 0


def test_an_answer_that_did_not_say_what_it_used_is_known_as_one(api, desk):
    said = ("{}", "<html>", '{"usage": 1}', message(output_tokens=1).decode())
    for body in (*said, message(input_tokens=1, output_tokens=1).decode()):
        api.script = answered(body.encode())
        desk.ask()
    whole = events(input_tokens=7)
    for body in (whole[:150], whole.replace(b"message_stop", b"other"), whole):
        api.script = answered(body, "Content-Type: text/event-stream")
        desk.ask()
    tally = desk.broker.meter.tally()
    assert (tally.requests, tally.unread) == (8, 6)
    assert tally.tokens.input == 22


@pytest.mark.parametrize("size", [1, 2, 3, 7, 64, 5000])
def test_a_stream_is_read_wherever_its_bytes_are_cut(size):
    whole = events(input_tokens=7, cache_read_input_tokens=2, output=9)
    reading = Reading()
    reading.begin("text/event-stream; charset=utf-8")
    for start in range(0, len(whole), size):
        assert not reading.is_whole or b"message_stop" in whole[:start]
        reading.take(whole[start : start + size])
    reading.finish()
    assert reading.is_whole
    assert reading.tokens == Tokens(input=7, output=9, cache_read=2)
    assert reading.model == "a-model"


@pytest.mark.parametrize(
    ("said", "is_whole", "tokens"),
    [
        ('{"input_tokens": 5.0, "output_tokens": 1e6}', True, (5, 1_000_000)),
        ('{"input_tokens": 0, "output_tokens": 0}', True, (0, 0)),
        *((f'{{"input_tokens": 5, "output_tokens": {bad}}}', False, (5, 0))
          for bad in ('"50"', "-5", "true", "null", "[]", "1.5", "1e300", "9" * 30)),
        ('{"input_tokens": "x", "output_tokens": 7}', False, (0, 7)),
        ('{"input_tokens": 5, "output_tokens": NaN}', False, (0, 0)),
        ('{"input_tokens": 5, "output_tokens": 7, "cache_read_input_tokens": "9"}', False, (5, 7)),
        ('{"input_tokens": 5, "output_tokens": 7, "cache_read_input_tokens": null}', True, (5, 7)),
        ('{"input_tokens": 5, "output_tokens": 7, "iterations": [{"input_tokens": "9"}]}', False,
         (5, 7)),
        ('{"input_tokens": 5, "output_tokens": 7, "iterations": "many"}', False, (5, 7)),
    ],
)  # fmt: skip
def test_what_is_no_number_of_tokens_is_known_as_none(said, is_whole, tokens):
    reading = Reading()
    reading.begin("application/json")
    reading.take(b'{"usage": %s}' % said.encode())
    reading.finish()
    assert reading.is_whole == is_whole
    assert (reading.tokens.input, reading.tokens.output) == tokens


def test_what_an_answers_sum_leaves_out_is_counted(api):
    """A summary that the API writes on its way stands in no sum, and each go has its own model."""
    goes = [
        {"type": "compaction", "input_tokens": 180_000, "output_tokens": 3_500},
        {"type": "message", "input_tokens": 23_000, "output_tokens": 1_000},
    ]
    usage = {"input_tokens": 23_000, "output_tokens": 1_000}
    api.script = answered(json.dumps({"model": "a", "usage": usage}).encode())
    table = {"a": _PRICE, "b": Price(*[Decimal(100)] * 4)}
    with broker(prices=table, usd=100) as desk:
        desk.ask({"model": "a"})
        assert desk.broker.meter.tally().tokens == Tokens(input=23_000, output=1_000)
        api.script = answered(
            json.dumps({"model": "a", "usage": {**usage, "iterations": goes}}).encode()
        )
        desk.ask({"model": "a"})
        tally = desk.broker.meter.tally()
        assert tally.tokens == Tokens(input=226_000, output=5_500)
        goes[0]["model"] = "b-1"
        api.script = answered(
            json.dumps({"model": "a", "usage": {**usage, "iterations": goes}}).encode()
        )
        desk.ask({"model": "a"})
        more = desk.broker.meter.tally().usd - tally.usd
    assert more == Decimal("18.35") + Decimal("0.25")


def test_the_sum_of_a_long_session_is_still_a_number():
    assert Tokens.of({"input": 1, "cache_read": 3 * 10**9}) == Tokens(input=1, cache_read=3 * 10**9)
    assert Tokens.of({"input": "1", "cache_read": -1}) == Tokens()


def test_a_figure_that_no_row_could_hold_is_cut(api):
    api.script = answered(message(input_tokens=10**9, output_tokens=10**9))
    with broker(prices={"": Price(*[Decimal(1000)] * 4)}, usd=1) as desk:
        assert desk.ask().status == 200
        assert desk.ask().status == 402
        assert desk.broker.meter.tally().usd == 100_000


def test_what_the_cache_keeps_for_an_hour_has_its_own_price():
    tokens = Tokens(cache_write=1_000_000)
    assert _PRICE.of(tokens) == 12
    assert _PRICE.of(tokens, hour=500_000) == 16
    reading = Reading()
    reading.begin("application/json")
    kept = {"ephemeral_5m_input_tokens": 2, "ephemeral_1h_input_tokens": 3}
    usage = {"input_tokens": 1, "output_tokens": 1, "cache_creation_input_tokens": 5}
    reading.take(json.dumps({"usage": {**usage, "cache_creation": kept}}).encode())
    reading.finish()
    (use,) = reading.uses
    assert (use.tokens.cache_write, use.hour) == (5, 3)


def test_a_line_without_end_takes_no_memory_and_hides_nothing_after_it():
    reading = Reading()
    reading.begin("text/event-stream")
    for _ in range(40):
        reading.take(b"data: " + b"x" * 100_000)
    assert len(reading._rest) <= 1024 * 1024
    reading.take(b"\n\n" + events(input_tokens=7))
    assert (reading.is_whole, reading.tokens.input) == (True, 7)


# --- When it is enough ----------------------------------------------------------------------------

_PRICE = Price(Decimal(10), Decimal(20), Decimal(12), Decimal(1))
_PRICES = {"": _PRICE}


def test_a_run_that_has_cost_its_budget_asks_nothing_more(api):
    api.script = answered(message(input_tokens=40_000, output_tokens=5_000))  # 0.5 USD
    with broker(usd=0.9, prices=_PRICES) as desk:
        assert [desk.ask().status for _ in range(2)] == [200, 200]
        answer = desk.ask()
        assert (answer.status, answer.said) == (402, "budget-spent: the worker reached its budget")
        assert b"x-should-retry: false" in answer.head.lower()
        tally = desk.broker.meter.tally()
    assert (tally.usd, tally.requests, len(api.asked)) == (Decimal(1), 2, 2)
    assert tally.enough == "the worker reached its budget"


def test_what_is_on_its_way_counts_with_what_it_has_said(api):
    goes = threading.Event()

    def hangs(line: socket.socket) -> str:
        line.sendall(STREAM_HEAD + events(input_tokens=90_000).partition(b"event: content")[0])
        goes.wait(20)
        return "close"

    api.script = hangs
    with broker(usd=0.9, prices=_PRICES) as desk, desk.connect() as line:
        line.sendall(request())
        while b"message_start" not in line.recv(1000):
            pass
        assert desk.ask().status == 402
        goes.set()


def _says_all_but_the_end(line: socket.socket) -> None:
    line.sendall(STREAM_HEAD + events(input_tokens=1_000).partition(b"event: message_delta")[0])


class Clock:
    """Goes on by so many seconds with each look: once when a request begins, once at its end."""

    def __init__(self, seconds: float) -> None:
        self._ticks = itertools.count(step=seconds)

    def __call__(self) -> float:
        return next(self._ticks)


@pytest.mark.parametrize("leaves", ["worker", "api"])
def test_a_stream_that_is_broken_off_counts_with_what_a_model_may_have_written(api, leaves):
    """Else a worker reads all but the last line, leaves, and has it for nothing."""

    def broken(line: socket.socket) -> str:
        _says_all_but_the_end(line)
        while leaves == "worker" and line.recv(1000):
            pass
        return "close"

    api.script = broken
    asks = request({"model": "m", "max_tokens": 20_000, "stream": True})
    with broker(usd=0.2, prices=_PRICES, clock=Clock(15.0)) as desk:
        for _ in range(2):
            with desk.connect() as line:
                line.sendall(asks)
                while b"content_block_delta" not in line.recv(65536):
                    pass
        assert desk.send(asks).said == "budget-spent: the worker reached its budget"
        tally = desk.broker.meter.tally()
    assert (tally.requests, tally.unread) == (2, 2)
    assert tally.usd == 2 * _PRICE.of(Tokens(input=1_000, output=20 * 300))
    assert tally.tokens == Tokens(input=2_000, output=2)  # what was said stays what was said


@pytest.mark.parametrize(
    ("stream", "seconds", "output"),
    [(False, 1.0, 20_000), (True, 1.0, 6 * 300), (True, 1_000.0, 20_000)],
)
def test_an_answer_that_nobody_waits_for_counts_with_all_that_it_may_come_to(
    api, stream, seconds, output
):
    """One in one piece may be written on; a stream ends with whoever reads it."""
    came, gone = threading.Event(), threading.Event()
    api.script = lambda line: (came.set(), line.recv(1000), gone.set())
    body = {"model": "m", "max_tokens": 20_000, "stream": stream}
    with broker(usd=9, prices=_PRICES, clock=Clock(seconds)) as desk:
        with desk.connect() as line:
            line.sendall(request(body))
            assert came.wait(20)
        assert gone.wait(20)
    sent = len(api.asked[0][1])
    assert desk.broker.meter.tally().usd == _PRICE.of(Tokens(sent // 2, output))


def test_an_answer_that_the_api_breaks_off_is_told_from_one_that_it_gives(api):
    api.script = lambda line: "close"
    body = {"model": "m", "max_tokens": 20_000}
    with broker(usd=9, prices=_PRICES, clock=Clock(1.0)) as desk:
        assert desk.ask(body).status == 502
        before = desk.broker.meter.tally().usd
        assert before == _PRICE.of(Tokens(len(api.asked[0][1]) // 2, 6 * 300))
        api.script = answered(message(input_tokens=1, output_tokens=1))
        assert desk.ask(body).status == 200
        assert desk.broker.meter.tally().usd - before == _PRICE.of(Tokens(input=1, output=1))


def test_an_answer_that_says_itself_that_it_failed_costs_what_it_had_used(api, desk):
    failed = b'event: error\ndata: {"type": "error", "error": {"type": "overloaded_error"}}\n\n'

    def fails(line: socket.socket) -> str:
        _says_all_but_the_end(line)
        line.sendall(failed)
        return "close"

    api.script = fails
    with broker(prices=_PRICES) as desk:
        assert desk.ask({"model": "m", "max_tokens": 20_000}).status == 200
        tally = desk.broker.meter.tally()
    assert (tally.unread, tally.usd) == (1, _PRICE.of(Tokens(input=1_000, output=1)))


@pytest.mark.parametrize(("usd", "at_once"), [(0.4, 1), (3.0, 4)])
def test_what_is_asked_at_once_costs_no_more_than_one_answer_beyond_the_budget(api, usd, at_once):
    """Where it all has room it is answered at once."""
    lock, inside, most = threading.Lock(), 0, 0

    def slow(line: socket.socket) -> None:
        nonlocal inside, most
        with lock:
            inside += 1
            most = max(most, inside)
        threading.Event().wait(0.2)
        with lock:
            inside -= 1
        answered(message(input_tokens=40_000, output_tokens=5_000))(line)  # 0.5 USD

    api.script = slow
    body = {"model": "m", "max_tokens": 20_000}
    with broker(prices=_PRICES, usd=usd) as desk:
        threads = [threading.Thread(target=desk.ask, args=(body,)) for _ in range(4)]
        [thread.start() for thread in threads]
        [thread.join(20) for thread in threads]
        assert (most, len(api.asked)) == (at_once, at_once)
        assert desk.broker.meter.tally().usd == at_once * Decimal("0.5")


@pytest.mark.parametrize(
    "body",
    [{"model": "dear"}, {"model": ""}, {}, {"model": "a-1", "fallbacks": [{"model": "dear"}]}],
)
def test_a_model_that_has_no_price_is_not_asked(api, body):
    """Whoever may choose the model could choose one that costs many times what is counted."""
    with broker(prices={"a-": _PRICE}) as desk:
        answer = desk.send(request(json.dumps(body).encode()))
        assert (answer.status, answer.said[:9]) == (400, "no-price:")
        assert api.asked == []
        assert desk.ask({"model": "a-1", "fallbacks": [{"model": "a-2"}]}).status == 200
    with broker(prices={"a-": _PRICE, "": _PRICE}) as desk:
        assert desk.send(request(json.dumps(body).encode())).status == 200
    with broker() as desk:
        assert desk.send(request(json.dumps(body).encode())).status == 200


def test_without_prices_a_run_asks_so_many_times_for_each_of_its_turns(api):
    with broker(turns=2, usd=0.001) as desk:
        api.script = answered(b"{}", status="529 Overloaded")
        assert [desk.ask().status for _ in range(3)] == [529] * 3
        api.script = answered(message(output_tokens=1))
        most = 2 * REQUESTS_A_TURN
        assert [desk.ask().status for _ in range(most)] == [200] * most
        assert (
            desk.ask().said
            == f"budget-spent: the worker asked its model {most} times in a run of 2 turns"
        )
        tally = desk.broker.meter.tally()
    assert (tally.requests, tally.usd, bool(tally.enough)) == (most, None, True)


def test_what_costs_nothing_or_fails_is_not_asked_without_end(api):
    """It counts against our key's rates, which all missions share."""
    most = REQUESTS_A_TURN * _OF_ANY_KIND
    count = request(first="POST /v1/messages/count_tokens HTTP/1.1")
    with broker(turns=1) as desk:
        assert [desk.send(count).status for _ in range(most // 2)] == [200] * (most // 2)
        api.script = answered(b"{}", status="400 Bad")
        assert [desk.ask().status for _ in range(most // 2)] == [400] * (most // 2)
        said = "budget-spent: the worker asked the Messages API"
        assert desk.send(count).said == f"{said} {most} times"
        assert (desk.ask().status, len(api.asked)) == (402, most)
        assert desk.broker.meter.tally().enough


def test_what_is_on_its_way_when_a_run_ends_counts_with_all_that_it_may_come_to(api):
    came = threading.Event()
    api.script = lambda line: (came.set(), line.recv(1000))
    with broker(prices=_PRICES) as desk, desk.connect() as line:
        line.sendall(request({"model": "m", "max_tokens": 10_000}))
        assert came.wait(20)
        assert desk.broker.meter.tally().usd == 0
    tally = desk.broker.meter.tally()
    assert (tally.requests, tally.unread) == (1, 1)
    assert tally.usd == _PRICE.of(Tokens(len(api.asked[0][1]) // 2, 10_000))


def test_the_longest_beginning_of_a_models_name_has_its_price(settings):
    row = {"input": 1, "output": 2.5, "cache_write": 1, "cache_read": 0}
    table = {"a": row, "a-b": {**row, "input": 3}, "c": {**row, "output": 9}}
    settings.CLAUDE_PRICES = json.dumps(table)
    known = prices.declared()
    assert [known.of(name).input for name in ("a-1", "a-b-1", "ab", "c")] == [1, 3, 1, 1]
    assert [known.has(name) for name in ("a-1", "unknown")] == [True, False]
    assert known.of("unknown", "c").output == 9
    assert known.of("unknown") == Price(Decimal(3), Decimal(9), Decimal(1), Decimal(0))
    assert known.of("a").of(Tokens(input=1000, output=1000)) == Decimal("0.0035")
    settings.CLAUDE_PRICES = ""
    assert not prices.declared()


@pytest.mark.parametrize(
    "said",
    [
        "[]", "x", '{"a": 1}', '{"a": {"input": 1}}', "{",
        *(f'{{"a": {{"input": 1, "output": 1, "cache_write": 1, "cache_read": {bad}}}}}'
          for bad in ('"1"', "null", "-1", "true", "Infinity", "NaN", "1e6")),
    ],
)  # fmt: skip
def test_what_is_no_table_of_prices_is_refused(settings, said):
    settings.CLAUDE_PRICES = said
    with pytest.raises(InvalidInput) as refused:
        prices.declared()
    assert refused.value.field == "CLAUDE_PRICES"
