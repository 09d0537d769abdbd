"""What a request to the Messages API may say.

What would have the API itself fetch, run or open something for the worker is a way out. So is what
nobody here knows: a key, a kind of block or a kind of source passes only where it is on a list.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import orjson

#: Keys of a request. A later client may need more.
_KEYS = frozenset(
    {
        *("model", "max_tokens", "messages", "system", "stream", "metadata", "stop_sequences"),
        *("tools", "tool_choice", "thinking", "temperature", "top_k", "top_p", "speed"),
        *("output_config", "output_format", "context_management", "cache_control"),
        *("fallbacks", "fallback_credit_token", "context_hint", "safeguards", "diagnostics"),
    }
)
#: Kinds of blocks: what is said, thought, shown, and asked of tools that the client runs.
_BLOCKS = frozenset(
    {
        *("text", "image", "document", "search_result", "thinking", "redacted_thinking"),
        *("tool_use", "tool_result", "tool_reference", "tool_addition", "tool_removal"),
        *("compaction", "fallback"),
    }
)
#: Kinds of sources that bring what they show, and the one of blocks that have a text for a source.
_SOURCES = ("base64", "text", "content")
_CITED = "search_result"
#: Keys that name what lies elsewhere.
_ELSEWHERE = frozenset(
    {"url", "image_url", "file_url", "file_id", "file_ids", "files", "container"}
)
#: Keys that are judged here. Another reader may not tell capitals from small letters.
_JUDGED = frozenset(
    {*_ELSEWHERE, "type", "role", "source", "content", "tool", "definition", "model", "speed"}
)
#: Nearly all that have keys have these, and need no second look.
_USUAL = (_JUDGED - _ELSEWHERE) | {
    *("text", "id", "name", "input", "tool_use_id", "is_error", "cache_control", "thinking"),
    *("signature", "description", "input_schema", "media_type", "data"),
}
#: Where no answer's length is asked for: more than any model gives.
_MOST_TOKENS = 128_000
_NO_MORE = 1_000_000


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


def forbidden(rule: str, said: str) -> Refused:
    """A refusal that names its rule."""
    return Refused(403, "permission_error", f"{rule}: {said}")


def check(said: Mapping[str, Any]) -> None:
    """Refused for what leads out, costs more than its price, or is not known here."""
    for name, value in said.items():
        if name not in _KEYS and value:
            raise forbidden("no-way-out", f"the key {_shown(name)} of a request is not known here")
    for asked in (said, *_instead(said)):
        if asked.get("speed", "standard") != "standard":
            raise forbidden("no-other-price", "speed changes what tokens cost")
    for tool in _list(said.get("tools")):
        _check_tool(tool)
    for message in (*_list(said.get("messages")), {"content": said.get("system")}):
        _check_keys(message)
        for block in _nested(message.get("content")):
            _check_block(block)


def models(said: Mapping[str, Any]) -> Sequence[str]:
    """The models that may answer: the one that is asked, and those that stand in for it.

    Where the API chooses one itself, its answer says which.
    """
    named = [said.get("model", ""), *(entry.get("model", "") for entry in _instead(said))]
    if not all(isinstance(name, str) for name in named):
        raise _unreadable()
    return named


def most_tokens(said: Mapping[str, Any]) -> int:
    """How many tokens all that answer may use."""
    first = _number(said.get("max_tokens"), _MOST_TOKENS)
    return first + sum(_number(entry.get("max_tokens"), first) for entry in _instead(said))


def _instead(said: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    """What is asked where the model refuses, unless that is left to the API."""
    others = said.get("fallbacks")
    entries = [] if others == "default" else _list(others)
    for entry in entries:
        _check_keys(entry)
    return entries


def _check_tool(tool: Mapping[str, Any]) -> None:
    _check_keys(tool)
    if tool.get("type", "custom") not in ("custom", None):
        raise forbidden("no-way-out", f"the tool {_shown(tool['type'])} is run by the API")


def _check_block(block: Mapping[str, Any]) -> None:
    _check_keys(block)
    kind, source, tool = block.get("type"), block.get("source"), block.get("tool")
    if not isinstance(kind, str) or kind not in _BLOCKS:
        raise forbidden("no-way-out", f"a block of the kind {_shown(kind)} is not known here")
    if isinstance(source, dict):
        _check_keys(source)
        if source.get("type") not in _SOURCES:
            raise forbidden("no-way-out", f"the API would fetch a {_shown(kind)}")
    elif source and kind != _CITED:
        raise _unreadable()
    if tool:
        (found,) = _list([tool])
        _check_keys(found)
        _check_tool(*_list([found.get("definition") or {}]))


def _check_keys(said: Mapping[str, Any]) -> None:
    """Refused for what names something elsewhere, or may be read as if it did."""
    if said.keys() <= _USUAL:
        return
    for name, value in said.items():
        if name in _ELSEWHERE and value:
            raise forbidden("no-way-out", f"{name} would have the API fetch something")
        if name not in _JUDGED and name.casefold() in _JUDGED:
            raise _unreadable()


def _nested(content: object) -> Iterator[Mapping[str, Any]]:
    """Each block that the model would be shown; what tools were called with is only text."""
    waiting = [content]
    while waiting:
        found = waiting.pop()
        for block in () if isinstance(found, str) else _list(found):
            yield block
            source = block.get("source")
            waiting += [
                block.get("content"),
                source.get("content") if isinstance(source, dict) else None,
            ]


def _list(value: object) -> Sequence[Mapping[str, Any]]:
    """A list of objects, or nothing; Refused for what another reader may take for one."""
    if value is None:
        return []
    if not isinstance(value, list) or not all(isinstance(entry, dict) for entry in value):
        raise _unreadable()
    return value


def _unreadable() -> Refused:
    said = "the body is not in the form that the API's documentation gives"
    return Refused(400, "invalid_request_error", said)


def _number(value: object, otherwise: int) -> int:
    return value if isinstance(value, int) and 0 < value <= _NO_MORE else otherwise


def _shown(value: object) -> str:
    return str(value)[:64]
