"""The broker of the Messages API: whom it lets through, with whose key, and what may be asked."""

from __future__ import annotations

import gzip
import json

import pytest
from hypothesis import given
from hypothesis import settings as rounds
from hypothesis import strategies as st

from pipelines.runners.claude.broker import requests
from pipelines.runners.claude.broker.contents import Refused
from pipelines.runners.claude.broker.exchange import MOST_TOLD
from pipelines.runners.claude.broker.visitors import MOST_BODY
from tests.pipelines.brokers import KEY, WORD, broker, message, request

pytestmark = [pytest.mark.invariant(15), pytest.mark.fault("sister-35")]


# --- Who is let through, and as whom --------------------------------------------------------------


def test_the_word_is_replaced_by_the_key_and_only_what_the_api_knows_is_passed_on(api, desk):
    fields = ("Cookie: a=b", "Anthropic-Beta: x", "X-Other: y", "Accept-Encoding: gzip, br")
    body = {"model": "m", "temperature": 0.5}
    answer = desk.send(request(body, *fields, "Connection: keep-alive"))
    assert (answer.status, answer.is_whole, answer.body) == (200, True, message(input_tokens=1))
    ((head, sent),) = api.asked
    first, *lines = head.decode().strip().split("\r\n")
    assert first == "POST /gateway/v1/messages?beta=true HTTP/1.1"
    assert {line.lower() for line in lines} == {
        f"host: {api.url.removeprefix('http://')}",
        f"x-api-key: {KEY}",
        f"content-length: {len(sent)}",
        *("content-type: application/json", "anthropic-beta: x", "accept-encoding: identity"),
    }
    assert json.loads(sent) == body


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


def test_who_asks_in_vain_without_end_does_not_fill_the_log(api, desk, caplog):
    caplog.set_level("INFO")
    for _ in range(MOST_TOLD + 20):
        assert desk.send(request(word="x")).status == 401
    assert caplog.text.count("not-this-mission") == MOST_TOLD


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


@pytest.mark.parametrize("charset", ["utf-7", "utf-16", "shift_jis"])
def test_what_is_sent_is_named_what_it_is_whatever_it_came_as(api, desk, charset):
    """In UTF-7 the body may say other things than in UTF-8."""
    came = request().replace(b"application/json", b"application/json; charset=" + charset.encode())
    assert desk.send(came).status == 200
    assert b"\r\ncontent-type: application/json\r\n" in api.asked[0][0]
    assert charset.encode() not in api.asked[0][0]


@pytest.mark.parametrize("encoding", ["utf-16", "utf-32", "utf-8-sig"])
def test_a_body_in_another_encoding_goes_nowhere(api, desk, encoding):
    body = '{"model": "m"}'
    assert desk.ask(body.encode("utf-8")).status == 200
    assert desk.ask(body.encode(encoding)).status == 400
    assert desk.ask(gzip.compress(body.encode())).status == 400
    assert len(api.asked) == 1


@pytest.mark.parametrize(("depth", "status"), [(100, 200), (300, 400), (900, 400), (5000, 400)])
def test_a_body_that_is_nested_too_deeply_to_be_written_is_answered(api, desk, depth, status):
    nested = b"[" * depth + b"]" * depth
    assert desk.ask(b'{"model": "m", "metadata": {"a": %s}}' % nested).status == status
    assert len(api.asked) == (status == 200)


@pytest.mark.parametrize("part", [b"[],", b"{},", b'{"":0},'])
def test_a_body_of_very_many_parts_takes_no_memory(api, desk, part):
    """Sixteen megabytes of empty lists would be most of a gigabyte here."""
    many = part * (requests._MOST_PARTS + 1)
    assert desk.ask(b'{"model": "m", "metadata": [%s0]}' % many).status == 413
    few = part * 1000
    assert desk.ask(b'{"model": "m", "metadata": [%s0]}' % few).status == 200


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
_IMAGE = {"type": "image", "source": _URL}
_SEARCH = {"type": "web_search_20250305", "name": "w"}


def shown(block: dict) -> dict:
    return {"messages": [{"role": "user", "content": [block]}]}


def added(tool: dict) -> dict:
    return shown({"type": "tool_addition", "tool": {"type": "tool_definition", "definition": tool}})


@pytest.mark.parametrize(
    "body",
    [
        {"mcp_servers": [{"type": "url", "url": "https://example.org"}]},
        {"container": "of-another"},
        {"tools": [{"name": "a"}, _SEARCH]},
        {"tools": [{"type": "code_execution_20250825", "name": "c"}]},
        {"tools": [{"type": "mcp_toolset", "mcp_server_name": "m"}]},
        added(_SEARCH),
        shown(_IMAGE),
        shown({"type": "document", "source": {"type": "file", "file_id": "of-another"}}),
        shown({"type": "tool_result", "content": [_IMAGE]}),
        shown({"type": "document", "source": {"type": "content", "content": [_IMAGE]}}),
        shown({"type": "container_upload", "file_id": "f"}),
        shown({"type": ["image"]}),
        shown({"type": {}}),
        shown({}),
        shown({"type": "server_tool_use", "name": "web_search", "input": {}}),
        {"system": [{"type": "document", "source": _URL}]},
        # as a reader in front of the API might take it
        shown({"type": "image", "source": {"url": "https://example.org"}}),
        shown({"type": "image", "source": {"type": "base64", "data": "", "url": "https://x"}}),
        shown({"type": "image_url", "image_url": {"url": "https://example.org"}}),
        shown({"type": "text", "text": "", "image_url": "https://example.org"}),
        {"api_base": "https://example.org"}, {"Tools": [_SEARCH]}, {"extra_headers": {"a": "b"}},
        # what came later
        {"compaction": {"type": "any"}}, {"inference_geo": "us"}, {"service_tier": "priority"},
    ],
)  # fmt: skip
def test_the_api_itself_fetches_runs_and_opens_nothing_for_a_worker(api, desk, body):
    answer = desk.ask(body)
    assert (answer.status, answer.said[:11]) == (403, "no-way-out:")
    assert api.asked == []


@pytest.mark.parametrize(
    "body",
    [
        {"messages": "no list"}, {"messages": {"content": [_IMAGE]}}, {"messages": [[_IMAGE]]},
        {"messages": [{"content": _IMAGE}]}, shown({"type": "tool_result", "content": _IMAGE}),
        {"tools": _SEARCH}, {"tools": [[_SEARCH]]}, {"tools": [{"Type": "web_search"}]},
        {"messages": [{"content": "hello", "Content": [_IMAGE]}]}, {"model": ["m"]},
        shown({"type": "image", "\u017fource": _URL}), shown({"type": "image", "source": "x"}),
        {"fallbacks": {"model": "m"}}, {"fallbacks": [{"Model": "m"}]},
    ],
)  # fmt: skip
def test_what_another_reader_might_take_for_it_goes_nowhere(api, desk, body):
    answer = desk.ask(body)
    assert (answer.status, answer.said[:8]) == (400, "the body")
    assert api.asked == []


@pytest.mark.parametrize(
    "body",
    [
        {"tools": [{"name": "Bash"}, {"name": "b", "type": "custom"}], "system": "text"},
        shown({"type": "image", "source": {"type": "base64", "data": "x"}}),
        shown({"type": "document", "source": {"type": "content", "content": "text"}}),
        shown({"type": "search_result", "source": "https://example.org", "content": []}),
        shown({"type": "tool_use", "input": _IMAGE}),
        shown({"type": "tool_use", "input": {"Type": 1, "Content": {"url": "x"}}}),
        shown({"type": "tool_result", "content": [{"type": "tool_reference", "tool_name": "a"}]}),
        shown({"type": "text", "text": "mcp_servers"}),
        added({"name": "a", "input_schema": {"properties": {"url": {"type": "string"}}}}),
        {"mcp_servers": [], "container": None, "speed": "standard", "messages": []},
        {"messages": [{"role": "user", "content": "Type: url"}], "system": [], "tools": None},
        {"fallbacks": "default"}, {"fallbacks": [{"model": "m", "max_tokens": 5}]},
    ],
)  # fmt: skip
def test_what_only_looks_like_it_is_let_through(api, desk, body):
    assert desk.ask(body).status == 200
    assert json.loads(api.asked[0][1]) == body


_NAMES = ("type", "source", "content", "tool", "definition", "tools", "messages", "system", "Type")
_MORE = ("fallbacks", "speed", "max_tokens", "model", "stream", "url", "other")
_VALUES = (None, True, 0, -1, 1.5, 2**63, "", "text", "image", "tool_addition", "base64", "default")
_JSON = st.recursive(
    st.sampled_from(_VALUES),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(_NAMES + _MORE), inner, max_size=4)
    ),
)


@rounds(max_examples=60, deadline=None)
@given(st.dictionaries(st.sampled_from(_NAMES + _MORE), _JSON, max_size=5))
def test_of_whatever_is_asked_a_request_is_made_or_a_refusal(body):
    try:
        made = requests.read("/v1/messages", [], json.dumps(body).encode())
    except Refused as refused:
        assert refused.status in (400, 403)
    else:
        assert json.loads(made.body) == body
        assert made.most > 0


@pytest.mark.parametrize("body", [{"speed": "fast"}, {"fallbacks": [{"speed": "fast"}]}])
def test_a_dearer_speed_is_refused(api, desk, body):
    assert desk.ask(body).said.startswith("no-other-price:")
    assert api.asked == []
