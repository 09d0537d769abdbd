"""What a worker may ask the Messages API for: its model's next turn, and how long a text is.

Nothing of a request is passed on as it came: its body is read and written anew, and of its fields
only those that the API knows. Whatever would have the API itself fetch, run or open something for
the worker is refused: that would be a way out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

MESSAGES = "/v1/messages"
COUNT_TOKENS = "/v1/messages/count_tokens"

#: What is asked for, word by word.
_TARGETS = {
    f"{path}{query}": path for path in (MESSAGES, COUNT_TOKENS) for query in ("", "?beta=true")
}

#: Fields that are passed on, and how those begin that are.
_FIELDS = frozenset({b"accept", b"content-type", b"user-agent", b"x-app"})
_FIELDS_BEGIN = (b"anthropic-", b"x-stainless-", b"x-claude-code-")

#: Keys of a body that let the API reach other servers, or files and programs that it keeps.
_NEVER = ("mcp_servers", "container")
#: Where the API would fetch a picture or a document itself.
_FETCHED = frozenset({"url", "file"})


class Refused(Exception):
    """A request that is answered here, in the API's own form of an error."""

    def __init__(self, status: int, kind: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.kind = kind
        self.message = message

    @property
    def content(self) -> bytes:
        """The body of the answer."""
        said = {"type": self.kind, "message": self.message}
        return orjson.dumps({"type": "error", "error": said})


@dataclass(frozen=True, slots=True)
class Request:
    """What is sent to the API: `target` below its base URL."""

    target: str
    fields: Sequence[tuple[bytes, bytes]]
    body: bytes

    @property
    def costs(self) -> bool:
        """Whether its answer costs anything."""
        return _TARGETS[self.target] == MESSAGES


def forbidden(rule: str, said: str) -> Refused:
    """A refusal that names its rule."""
    return Refused(403, "permission_error", f"{rule}: {said}")


def check_target(method: str, target: str) -> None:
    """Refused for anything but the two that a worker has a use for."""
    if method != "POST" or target not in _TARGETS:
        raise forbidden(
            "not-for-this-door",
            f"a worker may POST to {MESSAGES} and {COUNT_TOKENS}, and nothing else",
        )


def fields_of(came: Sequence[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """Those that the API knows; it is told in what form answers can be read here."""
    kept = [
        (name, value) for name, value in came if name in _FIELDS or name.startswith(_FIELDS_BEGIN)
    ]
    return [*kept, (b"accept-encoding", b"identity")]


def body_of(content: bytes) -> bytes:
    """The body anew, as we have read it; Refused for what is no request of a worker."""
    try:
        said = orjson.loads(content)
    except orjson.JSONDecodeError as error:
        raise Refused(400, "invalid_request_error", f"the body is no JSON: {error}") from error
    if not isinstance(said, dict):
        raise Refused(400, "invalid_request_error", "the body is no JSON object")
    _check(said)
    return orjson.dumps(said)


def _check(said: Mapping[str, Any]) -> None:
    for name in _NEVER:
        if said.get(name):
            raise forbidden("no-way-out", f"{name} would reach what the worker may not")
    if said.get("speed", "standard") != "standard":
        raise forbidden("no-other-price", "speed changes what tokens cost")
    for tool in _mappings(said.get("tools")):
        if tool.get("type", "custom") not in ("custom", None):
            raise forbidden("no-way-out", f"the tool {_shown(tool['type'])} is run by the API")
    for block in _blocks(said):
        source = block.get("source")
        kind = source.get("type") if isinstance(source, dict) else None
        if kind in _FETCHED or block.get("type") == "container_upload":
            raise forbidden("no-way-out", f"the API would fetch a {_shown(block.get('type'))}")


def _blocks(said: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Each block that the model would be shown; what tools were called with is only text."""
    for message in (said, *_mappings(said.get("messages"))):
        for name in ("system", "content"):
            yield from _nested(message.get(name))


def _nested(content: object) -> Iterator[Mapping[str, Any]]:
    waiting = [content]
    while waiting:
        for block in _mappings(waiting.pop()):
            yield block
            source = block.get("source")
            waiting += [
                block.get("content"),
                source.get("content") if isinstance(source, dict) else None,
            ]


def _mappings(value: object) -> list[Mapping[str, Any]]:
    return [entry for entry in value if isinstance(entry, dict)] if isinstance(value, list) else []


def _shown(value: object) -> str:
    return str(value)[:64]
