"""The door to our own server lets one plain request through, and nothing that could be two."""

from __future__ import annotations

import asyncio

import pytest

from pipelines.runners.claude.one_path import MOST_BYTES, NotForThisDoor, read_request


def request(*fields: str, first: str = "POST /mcp HTTP/1.1", body: bytes = b"") -> bytes:
    return "\r\n".join([first, *fields, "", ""]).encode("latin-1") + body


def read(sent: bytes, path: str = "/mcp") -> bytes:
    """What of those bytes is let through."""

    async def reading() -> bytes:
        reader = asyncio.StreamReader()
        reader.feed_data(sent)
        reader.feed_eof()
        return await read_request(reader, path)

    return asyncio.run(reading())


def test_a_plain_request_passes_as_the_only_one_of_its_connection():
    sent = request("Host: x", "connection: keep-alive", "Content-Length: 2", body=b"hi")
    assert read(sent) == (
        b"POST /mcp HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nConnection: close\r\n\r\nhi"
    )
    assert read(request("Host: x", first="GET /mcp HTTP/1.1")).endswith(b"close\r\n\r\n")


def test_what_comes_after_its_body_goes_nowhere():
    second = request("Host: x", first="GET /admin/ HTTP/1.1")
    assert b"/admin/" not in read(request("Content-Length: 2", body=b"hi" + second))
    assert b"/admin/" not in read(request("Host: x") + second)


@pytest.mark.parametrize(
    "first",
    [
        "POST /admin/ HTTP/1.1", "POST /mcp/../admin/ HTTP/1.1", "POST /mcp?x HTTP/1.1",
        "POST //mcp HTTP/1.1", "POST http://x/mcp HTTP/1.1", "POST /mcp HTTP/1.0",
        "PUT /mcp HTTP/1.1", "post /mcp HTTP/1.1", "POST  /mcp HTTP/1.1", "POST /mcp HTTP/1.1 x",
        "POST /%6dcp HTTP/1.1", "POST /mcp\n HTTP/1.1", "POST /MCP HTTP/1.1", "", "POST /mcp",
    ],
)  # fmt: skip
def test_another_path_method_or_form_is_not_let_through(first: str):
    with pytest.raises(NotForThisDoor):
        read(request("Host: x", first=first))


@pytest.mark.parametrize(
    "fields",
    [
        ["Transfer-Encoding: chunked"], ["transfer-ENCODING : chunked"], ["Upgrade: websocket"],
        ["Content-Length: 1", "Content-Length: 2"], ["Content-Length: +1"], ["Content-Length: 1,1"],
        ["Content-Length: 0x1"], ["Content-Length: -1"], [f"Content-Length: {MOST_BYTES + 1}"],
        ["Content-Length: "], ["X: a", " folded: b"], ["X: a\nContent-Length: 1"], ["X: a\rY: b"],
        ["X"], [": x"], ["X: \x00"], ["Expect: 100-continue"], ["Content-Length: 999"],
    ],
)  # fmt: skip
def test_a_field_that_two_readers_could_read_differently_is_not_let_through(fields: list[str]):
    with pytest.raises(NotForThisDoor):
        read(request("Host: x", *fields, body=b"hi"))


def test_a_head_without_end_is_not_let_through():
    for sent in (b"", b"POST /mcp HTTP/1.1\r\n", b"X" * 200_000):
        with pytest.raises(NotForThisDoor):
            read(sent)
