"""What a worker may ask the Messages API for: its model's next turn, and how long a text is.

Nothing of a request is passed on as it came: its body is read and written anew, and of its fields
only those that the API knows. What it may say is in `contents`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import orjson

from pipelines.runners.claude.broker import contents
from pipelines.runners.claude.broker.contents import Refused, forbidden

__all__ = ["Refused", "Request", "check_target", "forbidden", "read"]

MESSAGES = "/v1/messages"
COUNT_TOKENS = "/v1/messages/count_tokens"

#: What is asked for, word by word.
_TARGETS = {
    f"{path}{query}": path for path in (MESSAGES, COUNT_TOKENS) for query in ("", "?beta=true")
}

#: Fields that are passed on, and how those begin that are.
_FIELDS = frozenset({b"accept", b"user-agent", b"x-app"})
_FIELDS_BEGIN = (b"anthropic-", b"x-stainless-", b"x-claude-code-")
#: Ours: what we write, whatever it came as, and in what form answers can be read here.
_FIELDS_OURS = ((b"content-type", b"application/json"), (b"accept-encoding", b"identity"))

#: Objects and lists of a body: each takes far more memory than the bytes that it is written in.
_MOST_PARTS = 500_000


@dataclass(frozen=True, slots=True)
class Request:
    """What is sent to the API: `target` below its base URL.

    `model` is asked for at most `most` tokens. `models` are all that may answer.
    """

    target: str
    fields: Sequence[tuple[bytes, bytes]]
    body: bytes
    models: Sequence[str] = ("",)
    most: int = 0
    is_stream: bool = False

    @property
    def model(self) -> str:
        """The model that is asked."""
        return self.models[0]

    @property
    def costs(self) -> bool:
        """Whether its answer costs anything."""
        return _TARGETS[self.target] == MESSAGES


def check_target(method: str, target: str) -> None:
    """Refused for anything but the two that a worker has a use for."""
    if method != "POST" or target not in _TARGETS:
        raise forbidden(
            "not-for-this-door",
            f"a worker may POST to {MESSAGES} and {COUNT_TOKENS}, and nothing else",
        )


def read(target: str, came: Sequence[tuple[bytes, bytes]], content: bytes) -> Request:
    """The request anew, as we have read it; Refused for what is none of a worker."""
    if content.count(b"{") + content.count(b"[") > _MOST_PARTS:
        raise Refused(413, "request_too_large", f"a body has {_MOST_PARTS} parts at most")
    try:
        said = orjson.loads(content)
        body = orjson.dumps(said)
    except orjson.JSONDecodeError as error:
        raise Refused(400, "invalid_request_error", f"the body is no JSON: {error}") from error
    except orjson.JSONEncodeError as error:
        raise Refused(400, "invalid_request_error", "the body is nested too deeply") from error
    if not isinstance(said, dict):
        raise Refused(400, "invalid_request_error", "the body is no JSON object")
    contents.check(said)
    return Request(
        target=target,
        fields=_fields(came),
        body=body,
        models=contents.models(said),
        most=contents.most_tokens(said),
        is_stream=said.get("stream") is True,
    )


def _fields(came: Sequence[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    kept = [
        (name, value) for name, value in came if name in _FIELDS or name.startswith(_FIELDS_BEGIN)
    ]
    return [*kept, *_FIELDS_OURS]
