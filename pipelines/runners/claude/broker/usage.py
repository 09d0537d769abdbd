"""What one answer of the Messages API used, read from its bytes as they pass.

A stream says it in `message_start` and, in the end, in `message_delta`; a document in `usage`. An
answer that ends before it has said all is not whole: nobody knows what it cost.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import orjson

#: A document that is longer, or a line of a stream, is passed on and not read, in bytes.
_MOST_DOCUMENT = 32 * 1024 * 1024
_MOST_LINE = 1024 * 1024
#: More than that is no number of tokens.
_MOST_TOKENS = 10**12

#: Tokens that a model writes in a second at most, and seconds until it notices that nobody reads.
_FASTEST = 300
_NOTICED = 5.0

_STREAM = "text/event-stream"
_EVENTS = (b'"message_start"', b'"message_delta"', b'"message_stop"', b'"error"')

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

    def beyond(self, other: Tokens) -> Tokens:
        """What each number has more than the other's."""
        more = {name: number - asdict(other)[name] for name, number in asdict(self).items()}
        return Tokens(**{name: max(0, number) for name, number in more.items()})

    @classmethod
    def of(cls, said: Mapping[str, Any]) -> Tokens:
        """As `asdict` has written them; what is no number counts as none."""
        return cls(**{name: number(said.get(name)) for name in _NAMES.values()})


@dataclass(frozen=True, slots=True)
class Use:
    """What one model used. `hour` of what was written to the cache stays there for an hour."""

    model: str
    tokens: Tokens
    hour: int = 0


def is_number(value: object) -> bool:
    """Whether that is a number of tokens, as any writer of JSON may write it."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return 0 <= value <= _MOST_TOKENS and value == int(value)


def number(value: object) -> int:
    """A number of tokens; 0 for anything that is none."""
    return int(value) if isinstance(value, int | float) and is_number(value) else 0


class Reading:
    """One answer: `take` its bytes in order, and `finish` when it has come to its end.

    `asked` is the most that it may use, by the model that was asked for; `began` when that was.
    """

    def __init__(self, asked: Use | None = None, began: float = 0.0) -> None:
        self.asked = asked or Use("", Tokens())
        self.began = began
        self.model = ""
        self.is_open = True
        self.is_whole = False
        self.is_failed = False
        self._most_output = self.asked.tokens.output
        self._used: dict[str, int] = {}
        self._hour = 0
        self._parts: list[Use] = []
        self._rest = bytearray()
        self._is_stream = False
        self._is_skipping = False
        self._is_told = False
        self._is_garbled = False

    @property
    def tokens(self) -> Tokens:
        """What it has used as far as it has said."""
        return sum((use.tokens for use in self.uses), Tokens())

    @property
    def uses(self) -> Sequence[Use]:
        """The same by model: an answer may be made in several goes, which its sum leaves out."""
        whole = Tokens(**self._used)
        parts = sum((part.tokens for part in self._parts), Tokens())
        hours = sum(part.hour for part in self._parts)
        return [*self._parts, Use(self.model, whole.beyond(parts), max(0, self._hour - hours))]

    @property
    def at_most(self) -> Sequence[Use]:
        """What it may have used by its end, whether it has come to that or not."""
        if self.is_whole or self.is_failed:
            return self.uses
        unsaid = 0 if "input" in self._used else self.asked.tokens.input
        most = Tokens(input=unsaid, output=self._most_output)
        return [*self.uses, Use(self.model, most.beyond(self.tokens))]

    def close(self, seconds: float | None) -> None:
        """Nothing more of it comes; no model wrote longer than those seconds, None: nobody knows.

        A model writes no faster than it can.
        """
        self.is_open = False
        if seconds is not None:
            written = int((seconds + _NOTICED) * _FASTEST)
            self._most_output = min(self._most_output, written)

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
            self._note(_object(bytes(self._rest)))
            self.is_whole = self._has_told()
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
            self.is_whole = self._is_told and self._has_told()
        elif event.get("type") == "error":
            self.is_failed = True

    def _note(self, said: Mapping[str, Any]) -> None:
        """Later numbers are sums, and stand for earlier ones."""
        self.model = self.model or str(said.get("model") or "")[:200]
        usage = _mapping(said.get("usage"))
        for name, ours in _NAMES.items():
            value = usage.get(name)
            if is_number(value):
                self._used[ours] = max(self._used.get(ours, 0), number(value))
            elif value is not None:
                self._is_garbled = True
        self._hour = max(self._hour, _of_an_hour(usage))
        if usage.get("iterations"):
            self._note_parts(usage["iterations"])

    def _note_parts(self, iterations: object) -> None:
        parts = iterations if isinstance(iterations, list) else [iterations]
        self._is_garbled |= not all(_is_part(part) for part in parts)
        self._parts = [_part(part) for part in parts if isinstance(part, dict)]

    def _has_told(self) -> bool:
        return not self._is_garbled and self._used.keys() >= {"input", "output"}


def _is_part(said: object) -> bool:
    part = _mapping(said)
    needed = all(is_number(part.get(name)) for name in ("input_tokens", "output_tokens"))
    return needed and all(part.get(name) is None or is_number(part[name]) for name in _NAMES)


def _part(said: Mapping[str, Any]) -> Use:
    tokens = Tokens(**{ours: number(said.get(name)) for name, ours in _NAMES.items()})
    return Use(str(said.get("model") or "")[:200], tokens, _of_an_hour(said))


def _of_an_hour(usage: Mapping[str, Any]) -> int:
    return number(_mapping(usage.get("cache_creation")).get("ephemeral_1h_input_tokens"))


def _object(text: bytes) -> Mapping[str, Any]:
    try:
        return _mapping(orjson.loads(text))
    except orjson.JSONDecodeError:
        return {}


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}
