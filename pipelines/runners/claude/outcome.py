"""How a run ended, by DES-027's table and by what the program really does.

Success is exit code 0, a result line, `is_error` false and `terminal_reason` `completed`; never
`subtype`, which says `success` of an API error. A signal may end the program with exit code 0 and
no output. What hung after its result was ended by us, and its result counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from guards.process import ProcessResult
from pipelines.runners.claude.broker.usage import Tokens, number
from pipelines.runners.claude.stream import Stream

#: `terminal_reason` of a run whose tool call was refused with an interrupt, or put off by a hook.
_ASKED_FOR_A_PERSON = frozenset({"aborted_tools", "tool_deferred"})

#: Statuses of the Messages API after which asking again may help.
_PASSING = frozenset({408, 409, 425, 429})

_SHOWN = 500

#: More than that is no figure: nor does a row hold it.
_MOST = 999_999


@dataclass(frozen=True, slots=True)
class Outcome:
    """One run's end. `usd` counts the whole session, `turns` this run; None: it did not say.

    `tokens` are those that it says the whole session has used.
    `asks` says that it stopped at a tool call: whether that waits for a person, our record knows.
    `raw` is the end of what it wrote where no result could be read.
    """

    ok: bool
    error: str = ""
    retriable: bool = False
    asks: bool = False
    usd: float | None = None
    tokens: Tokens = field(default_factory=Tokens)
    turns: int = 0
    session: str = ""
    raw: bytes = b""


def classify(ended: ProcessResult, stream: Stream, *, timeout: float, enough: str = "") -> Outcome:
    """What a run came to. `timeout` in seconds is what it had.

    `enough` says why its model was not asked any more, where it was not: that is why a run failed
    which did, whatever the program makes of it.
    """
    usd, turns, session = _figures(stream)
    error, retriable = _failure(ended, stream, timeout)
    if error and enough:
        error, retriable = enough, False
    return Outcome(
        ok=not error,
        error=_storable(error),
        retriable=retriable,
        asks=_word(stream.result or {}, "terminal_reason") in _ASKED_FOR_A_PERSON,
        usd=usd,
        tokens=_tokens(stream),
        turns=turns,
        session=session,
        raw=b"" if stream.result is not None else stream.tail,
    )


def _failure(ended: ProcessResult, stream: Stream, timeout: float) -> tuple[str, bool]:
    """What went wrong, in one sentence, and whether another run could end otherwise."""
    if stream.absent:
        return f"the worker began without {', '.join(stream.absent)}", True
    if stream.result is None:
        return _without_result(ended, timeout)
    if stream.init is None:
        return "the worker did not say which MCP servers it had", False
    if ended.overflowed:
        return "the worker wrote too much and was ended", False
    said = _said(stream.result)
    if said is not None:
        return said
    if ended.exit_code != 0 and not ended.cut_short and not ended.timed_out:
        return f"the worker ended with exit code {ended.exit_code} after its result", True
    return "", False


def _without_result(ended: ProcessResult, timeout: float) -> tuple[str, bool]:
    if ended.timed_out:
        return f"the worker took longer than {timeout:.0f} seconds and was ended", True
    if ended.overflowed:
        return "the worker wrote too much and was ended", False
    if ended.exit_code != 0:
        lines = ended.stderr.decode("utf-8", "replace").strip().splitlines()
        why = f": {lines[-1][:_SHOWN]}" if lines else ""
        return f"the worker ended with exit code {ended.exit_code} and no result{why}", True
    return "the worker ended without a result that can be read", True


def _said(result: Mapping[str, Any]) -> tuple[str, bool] | None:
    """What the result line itself says went wrong."""
    reason, subtype = _word(result, "terminal_reason"), _word(result, "subtype")
    if reason == "completed" and result.get("is_error") is False:
        return None
    if reason in _ASKED_FOR_A_PERSON:
        return "a tool call was refused, and the worker stopped there", False
    if reason == "max_turns" or subtype == "error_max_turns":
        return "the worker reached its maximum number of turns", True
    if reason == "budget_exhausted" or subtype == "error_max_budget_usd":
        return "the worker reached its budget", False
    if reason == "api_error":
        return _api_error(result)
    return f"the worker ended as {reason or subtype or 'nothing it names'}{_text(result)}", True


def _word(result: Mapping[str, Any], name: str) -> str:
    """A text of the result line; "" for anything else that stands there."""
    value = result.get(name)
    return value[:_SHOWN] if isinstance(value, str) else ""


def _storable(text: str) -> str:
    """A text that was written by the worker's side, without what a database refuses."""
    return text.encode("utf-8", "replace").decode().replace("\0", "\ufffd")


def _api_error(result: Mapping[str, Any]) -> tuple[str, bool]:
    status = result.get("api_error_status")
    passing = not isinstance(status, int) or status >= 500 or status in _PASSING
    shown = status if isinstance(status, int) else "no answer"
    return f"the Messages API failed ({shown}){_text(result)}", passing


def _text(result: Mapping[str, Any]) -> str:
    errors = result.get("errors")
    said = result.get("result") or (errors[0] if isinstance(errors, list) and errors else "")
    return f": {str(said)[:_SHOWN]}" if said else ""


def _tokens(stream: Stream) -> Tokens:
    """What it says that all models have used, side questions and subagents included."""
    said = (stream.result or {}).get("modelUsage")
    used = said.values() if isinstance(said, dict) else ()
    return sum((_used(one) for one in used if isinstance(one, dict)), Tokens())


def _used(said: Mapping[str, Any]) -> Tokens:
    return Tokens(
        input=number(said.get("inputTokens")),
        output=number(said.get("outputTokens")),
        cache_write=number(said.get("cacheCreationInputTokens")),
        cache_read=number(said.get("cacheReadInputTokens")),
    )


def _figures(stream: Stream) -> tuple[float | None, int, str]:
    """Cost, turns and session as the result line has them; nothing that is no such figure."""
    line = stream.result
    if line is None:
        began = stream.init is not None and not stream.asked and bool(stream.absent)
        return (0.0 if began else None), 0, ""
    session = line.get("session_id")
    turns = int(_amount(line.get("num_turns")) or 0)
    return (
        _amount(line.get("total_cost_usd")),
        turns,
        session if isinstance(session, str) else "",
    )


def _amount(value: Any) -> float | None:
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= _MOST:
        return float(value)
    return None
