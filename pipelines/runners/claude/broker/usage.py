"""What one answer of the Messages API used, read from its bytes as they pass.

A stream says it in `message_start` and, in the end, in `message_delta`; a document in `usage`. An
answer that ends before it has said all is not whole: nobody knows what it cost.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import orjson

#: A document that is longer, or a line of a stream, is passed on and not read, in bytes.
_MOST_DOCUMENT = 32 * 1024 * 1024
_MOST_LINE = 1024 * 1024

_STREAM = "text/event-stream"
_EVENTS = (b'"message_start"', b'"message_delta"', b'"message_stop"')

#: The names in an answer, and ours.
_NAMES = {
    "input_tokens": "input",
    "output_tokens": "output",
    "cache_creation_input_tokens": "cache_write",
    "cache_read_input_tokens": "cache_read",
}


@dataclass(frozen=True, slots=True)
class Tokens:
    """Numbers of tokens, by what is paid for them."""

    input: int = 0
    output: int = 0
    cache_write: int = 0
    cache_read: int = 0

    def __add__(self, other: Tokens) -> Tokens:
        return Tokens(
            self.input + other.input,
            self.output + other.output,
            self.cache_write + other.cache_write,
            self.cache_read + other.cache_read,
        )

    def covers(self, other: Tokens) -> bool:
        """Whether each number is at least the other's."""
        return all(asdict(self)[name] >= number for name, number in asdict(other).items())

    @classmethod
    def of(cls, said: Mapping[str, Any]) -> Tokens:
        """As `asdict` has written them; what is no number counts as none."""
        return cls(**{name: number(said.get(name)) for name in _NAMES.values()})


def number(value: object) -> int:
    """A number of tokens; 0 for anything that is none."""
    return value if isinstance(value, int) and value > 0 else 0


class Reading:
    """One answer: `take` its bytes in order, and `finish` when it has come to its end."""

    def __init__(self) -> None:
        self.model = ""
        self.is_whole = False
        self._used: dict[str, int] = {}
        self._rest = bytearray()
        self._is_stream = False
        self._is_skipping = False
        self._is_told = False

    @property
    def tokens(self) -> Tokens:
        """What it has used as far as it has said."""
        return Tokens(**self._used)

    def begin(self, content_type: str) -> None:
        """Its head has come."""
        self._is_stream = content_type.partition(";")[0].strip().lower() == _STREAM

    def take(self, chunk: bytes) -> None:
        """Its next bytes."""
        if not self._is_stream:
            self._keep(chunk, _MOST_DOCUMENT)
            return
        *lines, rest = chunk.split(b"\n")
        for line in lines:
            self._keep(line, _MOST_LINE)
            self._read_line()
        self._keep(rest, _MOST_LINE)

    def finish(self) -> None:
        """It has come to its end."""
        if self._is_stream:
            self._read_line()
        elif not self._is_skipping:
            said = _object(bytes(self._rest))
            self._note(said)
            self.is_whole = "output_tokens" in _mapping(said.get("usage"))
        self._rest.clear()

    def _keep(self, piece: bytes, most: int) -> None:
        if len(self._rest) + len(piece) > most:
            self._is_skipping = True
            self._rest.clear()
        if not self._is_skipping:
            self._rest += piece

    def _read_line(self) -> None:
        line, is_read = bytes(self._rest), not self._is_skipping
        self._rest.clear()
        self._is_skipping = False
        if is_read and line.startswith(b"data:") and any(event in line for event in _EVENTS):
            self._note_event(_object(line[5:]))

    def _note_event(self, event: Mapping[str, Any]) -> None:
        if event.get("type") == "message_start":
            self._note(_mapping(event.get("message")))
        elif event.get("type") == "message_delta":
            self._note(event)
            self._is_told = "output_tokens" in _mapping(event.get("usage"))
        elif event.get("type") == "message_stop":
            self.is_whole = self._is_told

    def _note(self, said: Mapping[str, Any]) -> None:
        """Later numbers are sums, and stand for earlier ones."""
        self.model = self.model or str(said.get("model") or "")[:200]
        usage = _mapping(said.get("usage"))
        for name, ours in _NAMES.items():
            self._used[ours] = max(self._used.get(ours, 0), number(usage.get(name)))


def _object(text: bytes) -> Mapping[str, Any]:
    try:
        return _mapping(orjson.loads(text))
    except orjson.JSONDecodeError:
        return {}


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}
