"""The broker of the Messages API: what it lets through, with whose key, and what it counts."""

from __future__ import annotations

import json
import socket
import ssl
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from guards.exceptions import InvalidInput, SecretUnavailable
from pipelines.runners.claude.broker import prices, upstream
from pipelines.runners.claude.broker.exchange import AT_ONCE
from pipelines.runners.claude.broker.meter import REQUESTS_A_TURN
from pipelines.runners.claude.broker.prices import Price
from pipelines.runners.claude.broker.upstream import Upstream
from pipelines.runners.claude.broker.usage import Reading, Tokens
from pipelines.runners.claude.broker.visitors import MOST_BODY
from tests.pipelines.brokers import (
    KEY,
    STREAM_HEAD,
    WORD,
    Api,
    Desk,
    answered,
    broker,
    events,
    message,
    read,
    request,
)

pytestmark = [pytest.mark.invariant(15), pytest.mark.fault("sister-35")]


@pytest.fixture
def api(settings) -> Iterator[Api]:
    with Api() as found:
        settings.CLAUDE_BASE_URL = f"{found.url}/gateway/"
        yield found


@pytest.fixture
def desk(api) -> Iterator[Desk]:
    with broker() as found:
        yield found


# --- Who is let through, and as whom --------------------------------------------------------------


def test_the_word_is_replaced_by_the_key_and_only_what_the_api_knows_is_passed_on(api, desk):
    fields = ("Cookie: a=b", "Anthropic-Beta: x", "X-Other: y", "Accept-Encoding: gzip, br")
    answer = desk.send(request({"model": "m", "n": 1.5}, *fields, "Connection: keep-alive"))
    assert (answer.status, answer.is_whole, answer.body) == (200, True, message(input_tokens=1))
    ((head, body),) = api.asked
    first, *lines = head.decode().strip().split("\r\n")
    assert first == "POST /gateway/v1/messages?beta=true HTTP/1.1"
    assert {line.lower() for line in lines} == {
        f"host: {api.url.removeprefix('http://')}",
        f"x-api-key: {KEY}",
        f"content-length: {len(body)}",
        *("content-type: application/json", "anthropic-beta: x", "accept-encoding: identity"),
    }
    assert json.loads(body) == {"model": "m", "n": 1.5}


def test_the_word_is_taken_as_a_bearers_too(api, desk):
    assert desk.send(request(None, f"Authorization: Bearer {WORD}", word="")).status == 200
    assert WORD.encode() not in api.asked[0][0]


@pytest.mark.parametrize(
    ("word", "fields"),
    [
        ("another-word", ()), ("", ()), (f"{WORD}x", ()), (WORD[:-1], ()), (KEY, ()),
        (WORD, (f"Authorization: Bearer {WORD}",)), ("", ("Authorization: Basic x",)),
        ("", (f"Proxy-Authorization: Bearer {WORD}",)),
    ],
)  # fmt: skip
def test_who_does_not_bring_the_word_once_is_not_let_through(api, desk, word, fields):
    answer = desk.send(request(None, *fields, word=word))
    assert (answer.status, answer.said[:17]) == (401, "not-this-mission:")
    assert api.asked == []


def test_the_word_of_another_mission_opens_nothing(api, desk):
    with broker(word="the-word-of-another") as other:
        assert other.send(request(word=WORD)).status == 401
        assert other.send(request(word="the-word-of-another")).status == 200
        assert desk.send(request(word="the-word-of-another")).status == 401
    assert len(api.asked) == 1


@pytest.mark.parametrize(
    "first",
    [
        "GET /v1/messages", "HEAD /", "GET /", "PUT /v1/messages", "DELETE /v1/messages",
        "post /v1/messages", "OPTIONS *", "POST /v1/files", "POST /v1/messages/batches",
        "POST /v1/messages/", "POST //v1/messages", "POST /v1/../v1/messages", "POST /v1/models",
        "POST /v1/messages?beta=false", "POST /v1/%6dessages", "POST /V1/messages",
        "POST http://192.0.2.1/v1/messages", "POST https://api.anthropic.com/v1/messages",
        "CONNECT 192.0.2.1:443", "CONNECT api.anthropic.com:443",
    ],
)  # fmt: skip
def test_another_path_method_or_host_is_refused_by_its_rule(api, desk, first):
    answer = desk.send(request(first=f"{first} HTTP/1.1"))
    assert answer.status == 403
    assert first.startswith("HEAD") or answer.said.startswith("not-for-this-door:")
    assert api.asked == []


@pytest.mark.parametrize("query", ["", "?beta=true"])
@pytest.mark.parametrize("path", ["/v1/messages", "/v1/messages/count_tokens"])
def test_what_the_client_asks_for_is_let_through(api, desk, path, query):
    assert desk.send(request(first=f"POST {path}{query} HTTP/1.1")).status == 200
    assert api.asked[0][0].startswith(f"POST /gateway{path}{query} HTTP/1.1\r\n".encode())


# --- Heads and bodies that two could read differently ---------------------------------------------


@pytest.mark.parametrize(
    "fields",
    [
        ("Content-Length: 13",), ("Content-Length: 999",), ("content-length : 13",),
        ("Transfer-Encoding: chunked",), ("Transfer-Encoding: identity",), ("TE: trailers",),
        ("transfer-ENCODING : chunked",), ("X: a", " folded: b"), ("X: a", "\tfolded: b"),
        ("X: a\nContent-Length: 1",), ("X: a\rY: b",), ("X: \x00",), ("X",), (": x",), ("X y: z",),
        ("Upgrade: websocket", "Connection: upgrade"), ("Upgrade: h2c",), ("Expect: 100-continue",),
        ("Host: api.anthropic.com",), (f"X-Api-Key: {WORD}",), ("Trailer: X",),
    ],
)  # fmt: skip
def test_a_head_that_is_not_in_the_plainest_form_goes_nowhere(api, desk, fields):
    assert desk.send(request(None, *fields)).status == 400
    assert api.asked == []


@pytest.mark.parametrize("length", ["+13", "-1", "0x13", "13,14", "1 3", "", "9" * 30])
def test_a_length_that_is_no_number_goes_nowhere(api, desk, length):
    answer = desk.send(request(None, f"Content-Length: {length}", length=False))
    assert answer.status in (400, 413)
    assert api.asked == []


@pytest.mark.parametrize(
    "first", ["", "POST", "POST /v1/messages", "POST  /v1/messages HTTP/1.1", "X" * 100]
)
def test_what_is_no_request_goes_nowhere(api, desk, first):
    assert desk.send(request(first=first)).status in (400, 403)
    assert api.asked == []


def test_what_comes_after_the_body_goes_nowhere(api, desk):
    assert desk.send(request() + request(first="POST /v1/files HTTP/1.1") + request()).status == 200
    assert len(api.asked) == 1


def test_heads_and_bodies_are_bounded(api, desk):
    assert desk.send(request(None, f"X-Other: {'x' * 30_000}")).status == 200
    assert desk.send(request(None, f"X-Other: {'x' * 70_000}")).status == 431
    assert desk.send(request(None, *[f"X-{n}: {'x' * 100}" for n in range(700)])).status == 431
    long = f"Content-Length: {MOST_BODY + 1}"
    assert desk.send(request(None, long, length=False)).status == 413
    assert len(api.asked) == 1


@pytest.mark.parametrize("body", [b"", b"no json", b"[]", b'"text"', b"\xff", b'{"a": NaN}'])
def test_a_body_that_is_no_object_goes_nowhere(api, desk, body):
    assert desk.ask(body).status == 400
    assert api.asked == []


def test_a_key_that_stands_twice_is_judged_and_sent_as_the_same_one(api, desk):
    server = b'[{"type": "web_fetch_20250910", "name": "w"}]'
    assert desk.ask(b'{"tools": [], "tools": %s}' % server).status == 403
    assert desk.ask(b'{"tools": %s, "tools": []}' % server).status == 200
    assert json.loads(api.asked[0][1]) == {"tools": []}


# --- The API as a way out -------------------------------------------------------------------------

_URL = {"type": "url", "url": "https://example.org/?all-that-it-knows"}


def shown(block: dict) -> dict:
    return {"messages": [{"role": "user", "content": [block]}]}


@pytest.mark.parametrize(
    "body",
    [
        {"mcp_servers": [{"type": "url", "url": "https://example.org"}]},
        {"container": "of-another"},
        {"tools": [{"name": "a"}, {"type": "web_search_20250305", "name": "w"}]},
        {"tools": [{"type": "code_execution_20250825", "name": "c"}]},
        {"tools": [{"type": "mcp_toolset", "mcp_server_name": "m"}]},
        shown({"type": "image", "source": _URL}),
        shown({"type": "document", "source": {"type": "file", "file_id": "of-another"}}),
        shown({"type": "tool_result", "content": [{"type": "image", "source": _URL}]}),
        shown({"type": "document", "source": {"type": "content", "content": [{"source": _URL}]}}),
        shown({"type": "container_upload", "file_id": "f"}),
        {"system": [{"type": "document", "source": _URL}]},
    ],
)
def test_the_api_itself_fetches_runs_and_opens_nothing_for_a_worker(api, desk, body):
    answer = desk.ask(body)
    assert (answer.status, answer.said[:11]) == (403, "no-way-out:")
    assert api.asked == []


@pytest.mark.parametrize(
    "body",
    [
        {"tools": [{"name": "Bash"}, {"name": "b", "type": "custom"}], "system": "text"},
        shown({"type": "image", "source": {"type": "base64", "data": "x"}}),
        shown({"type": "tool_use", "input": {"type": "image", "source": _URL}}),
        shown({"type": "text", "text": "mcp_servers"}),
        {"mcp_servers": [], "speed": "standard", "messages": "no list"},
    ],
)
def test_what_only_looks_like_it_is_let_through(api, desk, body):
    assert desk.ask(body).status == 200
    assert json.loads(api.asked[0][1]) == body


def test_a_dearer_speed_is_refused(api, desk):
    assert desk.ask({"speed": "fast"}).said.startswith("no-other-price:")


# --- Answers --------------------------------------------------------------------------------------


def test_a_redirect_is_not_followed(api, desk):
    with Api() as elsewhere:
        place = f"Location: {elsewhere.url}/v1/messages"
        for status in ("301 Moved", "302 Found", "307 Temporary Redirect", "308 Permanent"):
            api.script = answered(b"", place, status=status)
            answer = desk.ask()
            assert (answer.status, answer.said[:12]) == (403, "no-redirect:")
            assert elsewhere.url.encode() not in answer.head + answer.body
        assert elsewhere.asked == []
    assert len(api.asked) == 4


def test_of_an_answers_fields_only_those_are_passed_on_that_a_client_needs(api, desk):
    fields = ("Request-Id: r", "Retry-After: 3", "Set-Cookie: a=b", "Anthropic-Ratelimit-X: 1")
    api.script = answered(b'{"error": 1}', *fields, "Server: s", status="429 Too Many")
    answer = desk.ask()
    assert (answer.status, answer.body) == (429, b'{"error": 1}')
    for name in (b"request-id: r", b"retry-after: 3", b"anthropic-ratelimit-x: 1"):
        assert name in answer.head.lower()
    assert b"cookie" not in answer.head.lower() and b"server" not in answer.head.lower()


def test_an_answer_in_a_form_that_was_not_asked_for_is_not_passed_on(api, desk):
    api.script = answered(b"\x1f\x8b", "Content-Encoding: gzip")
    assert desk.ask().status == 502


def test_a_stream_is_passed_on_as_it_comes(api, desk):
    has_come = threading.Event()
    whole = events()

    def slowly(line: socket.socket) -> str:
        line.sendall(STREAM_HEAD + whole[:60])
        assert has_come.wait(20)
        line.sendall(whole[60:])
        return "close"

    api.script = slowly
    with desk.connect() as line:
        line.sendall(request({"stream": True}))
        said = b""
        while whole[:60] not in said:
            said += line.recv(1000)
        has_come.set()
        rest = read(line)
        assert whole[60:] in said + rest.body or whole[60:] in rest.head + rest.body


def test_two_are_answered_at_once(api, desk):
    both = threading.Barrier(2, timeout=20)

    def together(line: socket.socket) -> None:
        both.wait()
        answered(message())(line)

    api.script = together
    threads = [threading.Thread(target=desk.ask) for _ in range(2)]
    [thread.start() for thread in threads]
    [thread.join(20) for thread in threads]
    assert not both.broken
    assert len(api.asked) == 2


def test_no_more_than_a_few_are_answered_at_once(api, desk):
    """The control of the one above: what waits is answered when another one has been."""
    inside, most, lock = 0, 0, threading.Lock()
    goes = threading.Event()

    def counting(line: socket.socket) -> None:
        nonlocal inside, most
        with lock:
            inside += 1
            most = max(most, inside)
            if inside == AT_ONCE:
                threading.Timer(0.2, goes.set).start()
        assert goes.wait(20)
        with lock:
            inside -= 1
        answered(message())(line)

    api.script = counting
    answers = []
    threads = [threading.Thread(target=lambda: answers.append(desk.ask().status)) for _ in range(8)]
    [thread.start() for thread in threads]
    [thread.join(20) for thread in threads]
    assert (answers, most) == ([200] * 8, AT_ONCE)


def test_a_connection_to_the_api_is_used_again_and_a_dead_one_is_not(api, desk):
    assert [desk.ask().status for _ in range(3)] == [200] * 3
    assert api.connections == 1
    plain = api.script
    api.script = lambda line: (plain(line), "close")[1]
    assert [desk.ask().status for _ in range(2)] == [200] * 2
    api.script = plain
    assert desk.ask().status in (200, 502)  # it may learn of the end while it asks
    assert desk.ask().status == 200


@pytest.mark.parametrize(
    ("said", "status", "is_whole"),
    [
        (b"", 502, True), (b"HTTP/1.1 200", 502, True), (b"no http at all\r\n\r\n", 502, True),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf", 200, False),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n", 200, False),
        (b"HTTP/1.1 200 OK\r\n" + b"X: %s\r\n" % (b"x" * 300_000) + b"\r\n", 502, True),
        (b"HTTP/1.1 101 Switching Protocols\r\n\r\n", 502, True),
        (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}", 200, True),
    ],
)  # fmt: skip
@pytest.mark.parametrize("then", ["ends", "hangs"])
def test_an_api_that_ends_early_or_hangs_is_told_from_one_that_answers(
    api, said, status, is_whole, then
):
    api.script = lambda line: (line.sendall(said), "close" if then == "ends" else None)[1]
    with broker(silence=0.3) as desk:
        answer = desk.ask()
        assert (answer.status, answer.is_whole) == (status, is_whole)
        api.script = answered(message())
        assert desk.ask().status == 200


def test_an_api_that_is_not_there_is_an_error_that_may_pass(settings):
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        settings.CLAUDE_BASE_URL = f"http://127.0.0.1:{unused.getsockname()[1]}"
        with broker() as desk:
            answer = desk.ask()
            assert answer.status == 502
            assert b"x-should-retry: true" in answer.head.lower()
        assert desk.broker.meter.tally().requests == 0


def test_who_is_too_slow_is_told_so_and_holds_up_nobody(api):
    for begun in (b"", b"POST /v1/messages HT", request()[:-3]):
        with broker(seconds=0.3) as desk, desk.connect() as slow:
            slow.sendall(begun)
            assert desk.ask().status == 200
            assert read(slow).status == 408


def test_for_who_has_left_nobody_is_asked_on(api, desk):
    has_ended = threading.Event()

    def hangs(line: socket.socket) -> str:
        line.sendall(STREAM_HEAD + events(input_tokens=7)[:150])
        while line.recv(1000):
            pass
        has_ended.set()
        return "close"

    api.script = hangs
    with desk.connect() as line:
        line.sendall(request())
        line.recv(1000)
        assert not has_ended.is_set()
    assert has_ended.wait(20)


# --- TLS ------------------------------------------------------------------------------------------


def test_a_certificate_that_the_system_does_not_know_is_not_spoken_to(
    settings, tmp_path, monkeypatch
):
    certificate, private = tls_files(tmp_path)
    secure = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    secure.load_cert_chain(certificate, private)
    with Api(secure=secure) as found:
        url = found.url.replace("http://127.0.0.1", "https://localhost")
        settings.CLAUDE_BASE_URL = url
        upstream._verified.cache_clear()
        with broker() as desk:
            answer = desk.ask()
            assert (answer.status, "CERTIFICATE_VERIFY_FAILED" in answer.said) == (502, True)
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        upstream._verified.cache_clear()
        with broker() as desk:
            assert desk.ask().status == 200
        settings.CLAUDE_BASE_URL = url.replace("localhost", "127.0.0.1")
        with broker() as desk:  # known, and of another host
            assert desk.ask().status == 502
        assert len(found.asked) == 1
    upstream._verified.cache_clear()


@pytest.mark.parametrize(
    "url", ["ftp://x", "http://", "https://x:99999", "https://a:b@x", "https://x/?a=b", "x"]
)
def test_what_is_no_address_of_an_api_is_refused(settings, url):
    settings.CLAUDE_BASE_URL = url
    with pytest.raises(InvalidInput) as refused:
        Upstream(KEY)
    assert refused.value.field == "CLAUDE_BASE_URL"


@pytest.mark.parametrize("key", ["", " ", "a\nb", "a\r\nHost: x", "\u00e4", "a\x00"])
def test_what_could_be_no_key_is_never_sent(settings, key):
    settings.CLAUDE_BASE_URL = ""
    with pytest.raises(SecretUnavailable):
        Upstream(key)


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
    for body in (b"{}", b"<html>", b'{"usage": 1}', b'{"usage": {"output_tokens": 1}}'):
        api.script = answered(body)
        desk.ask()
    whole = events(input_tokens=7)
    for body in (whole[:150], whole.replace(b"message_stop", b"other"), whole):
        api.script = answered(body, "Content-Type: text/event-stream")
        desk.ask()
    tally = desk.broker.meter.tally()
    assert (tally.requests, tally.unread) == (7, 5)
    assert tally.tokens.input == 21


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


def test_a_line_without_end_takes_no_memory_and_hides_nothing_after_it():
    reading = Reading()
    reading.begin("text/event-stream")
    for _ in range(40):
        reading.take(b"data: " + b"x" * 100_000)
    assert len(reading._rest) <= 1024 * 1024
    reading.take(b"\n\n" + events(input_tokens=7))
    assert (reading.is_whole, reading.tokens.input) == (True, 7)


# --- When it is enough ----------------------------------------------------------------------------

_PRICES = {"a-model": Price(Decimal(10), Decimal(20), Decimal(12), Decimal(1))}


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


def test_the_longest_beginning_of_a_models_name_has_its_price_and_an_unknown_one_the_dearest(
    settings,
):
    row = {"input": 1, "output": 2.5, "cache_write": 1, "cache_read": 0}
    table = {"a": row, "a-b": {**row, "input": 3}, "c": {**row, "output": 9}}
    settings.CLAUDE_PRICES = json.dumps(table)
    known = prices.declared()
    assert [known.of(name).input for name in ("a-1", "a-b-1", "ab", "c")] == [1, 3, 1, 1]
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


def tls_files(directory: Path) -> tuple[Path, Path]:
    """A certificate of `localhost` that nobody signed, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    now, day = datetime.now(UTC), timedelta(days=1)
    names = x509.SubjectAlternativeName([x509.DNSName("localhost")])
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - day)
        .not_valid_after(now + day)
        .add_extension(names, critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    certificate, private = directory / "certificate.pem", directory / "key.pem"
    certificate.write_bytes(made.public_bytes(Encoding.PEM))
    plain = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    private.write_bytes(plain)
    return certificate, private
