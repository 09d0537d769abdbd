"""A stand-in for the Messages API on a free loopback port, spoken to by the real `claude` client.

A script says what the model answers, turn by turn. Which script a request gets is decided by the
first segment of its path (`api.url_for("name")` as the client's base URL), else by its API key,
else it is the one named "". Every request is recorded in `api.requests`.

    api.scripts[""] = Turns(
        call("mcp__countersign__mission_show", mission=Asked("mission ([0-9a-f-]{36})")),
        call("mcp__countersign__mission_result", mission=Told("/id"), document={"verdict": "pass"}),
        say("done"),
    )

A script may be any function of the request as well: that is a model which obeys what it reads.
"""

from __future__ import annotations

import itertools
import json
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

#: How long an answer that hangs does so, at most, in seconds: longer than any test runs.
_FOR_EVER = 300.0

_numbers = itertools.count(1)


@dataclass(frozen=True)
class Request:
    """One request as it came: `script` is the name that was chosen for it."""

    method: str
    path: str
    script: str
    key: str
    headers: Mapping[str, str]
    body: dict[str, Any]

    @property
    def is_turn(self) -> bool:
        """Whether the client asks for the model's next turn (and not for a count, or a title).

        It asks again without a stream where a stream was no answer.
        """
        asked = self.path.split("?")[0].endswith("/v1/messages")
        return asked and bool(self.body.get("stream") or self.body.get("tools"))

    @property
    def tools(self) -> list[str]:
        """The names of the tools that the model may call."""
        return [str(tool["name"]) for tool in self.body.get("tools", []) if "name" in tool]

    @property
    def system(self) -> str:
        """The system prompt's whole text."""
        return _text(self.body.get("system", ""))

    @property
    def text(self) -> str:
        """Everything the model reads, as one text."""
        messages = self.body.get("messages", [])
        return "\n".join([self.system, *(_text(message["content"]) for message in messages)])

    @property
    def results(self) -> list[ToolResult]:
        """What tools have answered so far, in order."""
        return list(_results(self.body.get("messages", [])))


@dataclass(frozen=True)
class ToolResult:
    """One tool's answer as the model sees it."""

    tool: str
    text: str
    is_error: bool

    @property
    def value(self) -> Any:
        """The answer read as JSON."""
        return json.loads(self.text)


@dataclass(frozen=True)
class Asked:
    """A value for a tool's argument: the first group of a pattern in everything the model reads."""

    pattern: str

    def value(self, request: Request) -> Any:
        """The group's text; "" where nothing matches."""
        found = re.search(self.pattern, request.text)
        return found.group(1) if found else ""


@dataclass(frozen=True)
class Told:
    """A value for a tool's argument: a JSON Pointer into the last answer (of `tool`, if given)."""

    pointer: str
    tool: str = ""

    def value(self, request: Request) -> Any:
        """What the pointer points at; KeyError and its like end the connection."""
        answers = [one for one in request.results if not self.tool or one.tool == self.tool]
        found = answers[-1].value
        for step in self.pointer.split("/")[1:]:
            found = found[int(step)] if isinstance(found, list) else found[step]
        return found


@dataclass(frozen=True)
class Say:
    """A turn: text and tool calls. `delay` is how long the model thinks before it, in seconds."""

    blocks: tuple[dict[str, Any], ...]
    delay: float = 0.0
    input_tokens: int = 1000
    output_tokens: int = 500


@dataclass(frozen=True)
class Fail:
    """An error of the API."""

    status: int
    type: str = "api_error"
    message: str = "Internal server error"


@dataclass(frozen=True)
class Garbage:
    """Bytes that are no answer, under a status that says they were one."""

    content: bytes = b"<html>not a stream</html>"
    content_type: str = "text/event-stream"


@dataclass(frozen=True)
class Hang:
    """The first event of an answer, and then nothing."""


Turn = Say | Fail | Garbage | Hang
Script = Callable[[Request], Turn]


def say(text: str, **rest: Any) -> Say:
    """A turn of plain text, which ends the run."""
    return Say(({"type": "text", "text": text},), **rest)


def call(tool: str, /, **arguments: Any) -> Say:
    """A turn that calls one tool. Arguments may hold Asked and Told, at any depth."""
    return Say(({"type": "tool_use", "name": tool, "input": arguments},))


class Turns:
    """One turn after the other; the last one again where more are asked for.

    It counts what it was asked, so a session that is resumed goes on where it was.
    """

    def __init__(self, *turns: Turn) -> None:
        self._turns = turns
        self._asked = 0
        self._lock = threading.Lock()

    def __call__(self, request: Request) -> Turn:
        with self._lock:
            position = min(self._asked, len(self._turns) - 1)
            self._asked += 1
        return self._turns[position]


def endless(tool: str, /, **arguments: Any) -> Script:
    """A model that calls the same tool for ever."""
    return lambda request: call(tool, **arguments)


ERRORS: Mapping[str, Fail] = {
    "bad-request": Fail(400, "invalid_request_error", "Your credit balance is too low."),
    "unauthorized": Fail(401, "authentication_error", "invalid x-api-key"),
    "too-many": Fail(429, "rate_limit_error", "rate limited"),
    "broken": Fail(500),
}


@dataclass
class MessagesApi:
    """The server; runs in threads while its block is open."""

    scripts: dict[str, Script] = field(default_factory=dict)
    requests: list[Request] = field(default_factory=list)

    def __enter__(self) -> MessagesApi:
        self.closing = threading.Event()
        self._server = _Server(("127.0.0.1", 0), _Handler)
        self._server.api = self
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True
        )
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.closing.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(10)

    @property
    def port(self) -> int:
        """Where it listens, on 127.0.0.1."""
        return int(self._server.server_address[1])

    @property
    def url(self) -> str:
        """The base URL of the client; its key decides which script answers."""
        return f"http://127.0.0.1:{self.port}"

    def url_for(self, script: str) -> str:
        """The base URL of a client that always gets this script."""
        return f"{self.url}/{script}"

    @property
    def turns(self) -> list[Request]:
        """The requests for a turn of the model, without side questions."""
        return [request for request in self.requests if request.is_turn]

    def name_for(self, path: str, key: str) -> str:
        """Which script a request gets."""
        first = path.split("/")[1]
        return first if first in self.scripts else key if key in self.scripts else ""

    def answer(self, request: Request) -> Turn:
        """The script's next turn. Without a script the model says one word."""
        script = self.scripts.get(request.script)
        return script(request) if script is not None else say("Hello.")


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    api: MessagesApi

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is what many tests are about."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def log_message(self, format: str, *arguments: Any) -> None:
        """No lines between the tests' dots."""

    def do_HEAD(self) -> None:
        self._take()
        self._json(200, {})

    def do_GET(self) -> None:
        self._take()
        self._json(404, _error("not_found_error", "there is nothing here"))

    def do_POST(self) -> None:
        request = self._take()
        path = request.path.split("?")[0]
        if path.endswith("/count_tokens"):
            self._json(200, {"input_tokens": 100})
        elif not path.endswith("/v1/messages"):
            self._json(404, _error("not_found_error", "there is nothing here"))
        elif not request.is_turn:
            self._json(200, _message(request, [{"type": "text", "text": "ok"}], Say(())))
        else:
            self._turn(request, self.server.api.answer(request))

    def _take(self) -> Request:
        content = self.rfile.read(int(self.headers.get("content-length") or 0))
        try:
            body = json.loads(content)
        except ValueError:
            body = {}
        bearer = self.headers.get("authorization", "").removeprefix("Bearer ")
        key = self.headers.get("x-api-key") or bearer
        api = self.server.api
        name = api.name_for(self.path, key)
        headers = {name.lower(): value for name, value in self.headers.items()}
        request = Request(self.command, self.path, name, key, headers, body)
        api.requests.append(request)
        return request

    def _turn(self, request: Request, turn: Turn) -> None:
        if isinstance(turn, Fail):
            self._json(turn.status, _error(turn.type, turn.message))
        elif isinstance(turn, Garbage):
            self._begin(turn.content_type)
            self.wfile.write(turn.content)
        elif isinstance(turn, Hang):
            self._begin()
            self._event("message_start", message=_message(request, [], Say(())))
            self.server.api.closing.wait(_FOR_EVER)
        else:
            self._say(request, turn)

    def _say(self, request: Request, turn: Say) -> None:
        if turn.delay:
            self.server.api.closing.wait(turn.delay)
        blocks = [_block(block, request) for block in turn.blocks]
        if request.body.get("stream"):
            self._stream(request, turn, blocks)
        else:
            self._json(200, _message(request, blocks, turn))

    def _stream(self, request: Request, turn: Say, blocks: list[dict[str, Any]]) -> None:
        self._begin()
        self._event("message_start", message=_message(request, [], turn))
        for index, block in enumerate(blocks):
            self._stream_block(index, block)
        self._event(
            "message_delta",
            delta={"stop_reason": _stop_reason(blocks), "stop_sequence": None},
            usage={"output_tokens": turn.output_tokens},
        )
        self._event("message_stop")

    def _stream_block(self, index: int, block: dict[str, Any]) -> None:
        if block["type"] == "text":
            empty: dict[str, Any] = {"type": "text", "text": ""}
            delta = {"type": "text_delta", "text": block["text"]}
        else:
            empty = {**block, "input": {}}
            delta = {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}
        self._event("content_block_start", index=index, content_block=empty)
        self._event("content_block_delta", index=index, delta=delta)
        self._event("content_block_stop", index=index)

    def _begin(self, content_type: str = "text/event-stream") -> None:
        self.close_connection = True
        self.send_response(200)
        self.send_header("content-type", content_type)
        self.send_header("request-id", "req_stand_in")
        self.send_header("connection", "close")
        self.end_headers()

    def _event(self, kind: str, /, **fields: Any) -> None:
        line = json.dumps({"type": kind, **fields})
        self.wfile.write(f"event: {kind}\ndata: {line}\n\n".encode())
        self.wfile.flush()

    def _json(self, status: int, document: Mapping[str, Any]) -> None:
        content = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(content)))
        self.send_header("request-id", "req_stand_in")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)


def _message(request: Request, blocks: list[dict[str, Any]], turn: Say) -> dict[str, Any]:
    return {
        "id": f"msg_{next(_numbers):06d}",
        "type": "message",
        "role": "assistant",
        "model": request.body.get("model"),
        "content": blocks,
        "stop_reason": _stop_reason(blocks) if blocks else None,
        "stop_sequence": None,
        "usage": {
            "input_tokens": turn.input_tokens,
            "output_tokens": turn.output_tokens,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": 0,
        },
    }


def _stop_reason(blocks: list[dict[str, Any]]) -> str:
    return "tool_use" if any(block["type"] == "tool_use" for block in blocks) else "end_turn"


def _block(block: dict[str, Any], request: Request) -> dict[str, Any]:
    if block["type"] != "tool_use":
        return block
    found = {**block, "input": _filled(block["input"], request)}
    found.setdefault("id", f"toolu_{next(_numbers):06d}")
    return found


def _filled(value: Any, request: Request) -> Any:
    if isinstance(value, Asked | Told):
        return value.value(request)
    if isinstance(value, dict):
        return {name: _filled(one, request) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_filled(one, request) for one in value]
    return value


def _error(kind: str, message: str) -> dict[str, Any]:
    return {"type": "error", "error": {"type": kind, "message": message}}


def _text(content: Any) -> str:
    """A content's text: blocks, tool inputs and tool results alike."""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "\n".join(_text(block) for block in content)
    if isinstance(content, dict):
        return _text(content.get("text") or content.get("content") or "")
    return ""


def _results(messages: list[dict[str, Any]]) -> Iterator[ToolResult]:
    names: dict[str, str] = {}
    for message in messages:
        blocks = message["content"] if isinstance(message["content"], list) else []
        for block in blocks:
            if block.get("type") == "tool_use":
                names[block["id"]] = block["name"]
            elif block.get("type") == "tool_result":
                tool = names.get(block["tool_use_id"], "")
                content = _text(block.get("content"))
                yield ToolResult(tool, content, bool(block.get("is_error")))
