"""How runs of the `claude` program end, from lines that the real one printed (DES-027's table)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from guards import process
from guards.process import ProcessResult
from pipelines.models import MissionResult
from pipelines.pipes import check_storable
from pipelines.runners.claude import rounds
from pipelines.runners.claude.outcome import Outcome, classify
from pipelines.runners.claude.stream import AFTER_RESULT, TAIL, Stream
from pipelines.runners.claude.surroundings import Surroundings, forms

RECORDINGS = Path(__file__).with_name("recordings")
INIT = {
    "type": "system",
    "subtype": "init",
    "tools": ["Bash", "mcp__countersign__mission_show"],
    "mcp_servers": [{"name": "countersign", "status": "connected"}],
}
SUCCESS: dict[str, Any] = json.loads((RECORDINGS / "success.json").read_text())


def recorded(name: str) -> dict[str, Any]:
    return json.loads((RECORDINGS / f"{name}.json").read_text())


def ended(code: int = 0, **fields: Any) -> ProcessResult:
    """A process that ended by itself, until a test changes it."""
    known: dict[str, Any] = {
        "stdout": b"", "stderr": b"", "timed_out": False, "overflowed": False, "duration": 1.0,
    }  # fmt: skip
    return ProcessResult(code, **{**known, **fields})


def read(*lines: Any, **fields: Any) -> Stream:
    """A stream that printed these lines."""
    stream = Stream(frozenset({"countersign"}), **fields)
    for line in lines:
        text = line if isinstance(line, bytes) else json.dumps(line, separators=(",", ":")).encode()
        stream.follow(text + b"\n")
    stream.finish()
    return stream


def came(result: Any, code: int = 0, **fields: Any) -> Outcome:
    """What a run with that result line came to."""
    return classify(ended(code, **fields), read(INIT, result), timeout=60)


def test_success_is_exit_0_a_result_no_error_and_completed():
    outcome = came(SUCCESS)
    assert (outcome.ok, outcome.usd, outcome.turns) == (True, 0.014, 1)
    assert outcome.session == "ab565653-5dc3-4e74-b658-b337dbc30f13"
    assert not came(SUCCESS, 1).ok
    assert not came({**SUCCESS, "is_error": True}).ok
    assert not came({**SUCCESS, "terminal_reason": "api_error"}).ok
    for name in ("is_error", "terminal_reason"):
        assert not came({key: value for key, value in SUCCESS.items() if key != name}).ok
    assert came({**SUCCESS, "subtype": "whatever"}).ok


@pytest.mark.parametrize(
    ("name", "code", "retriable", "said"),
    [
        ("max", 1, True, "maximum number of turns"),
        ("budget", 1, False, "budget"),
        ("err400", 1, False, "the Messages API failed (400): Credit balance is too low"),
        ("err401b", 1, False, "the Messages API failed (401)"),
        ("err500r", 1, True, "the Messages API failed (500)"),
    ],
)
def test_a_failure_is_named_and_says_whether_another_run_may_help(name, code, retriable, said):
    outcome = came(recorded(name), code)
    assert not outcome.ok
    assert said in outcome.error
    assert (outcome.retriable, outcome.asks) == (retriable, False)


def test_an_api_error_is_no_success_whatever_its_subtype_says():
    line = recorded("err400")
    assert line["subtype"] == "success"
    assert not came(line, 0).ok


def test_what_a_failed_run_cost_is_known_all_the_same():
    assert (came(recorded("max"), 1).usd, came(recorded("max"), 1).turns) == (0.028, 3)
    assert came(recorded("budget"), 1).usd == 0.042


def test_a_run_that_stops_at_a_tool_call_may_wait_for_a_person():
    assert came(recorded("defer")).asks
    aborted = {**SUCCESS, "terminal_reason": "aborted_tools", "subtype": "error_during_execution"}
    outcome = came({**aborted, "is_error": True}, 1)
    assert (outcome.ok, outcome.asks) == (False, True)
    assert not came(recorded("denied")).asks
    assert came(recorded("denied")).ok


def test_a_run_without_a_result_is_no_success_even_with_exit_0():
    """SIGINT ends the program with exit 0 and nothing on standard output."""
    silent = classify(ended(0), read(), timeout=60)
    assert (silent.ok, silent.retriable, silent.usd) == (False, True, None)
    assert "without a result" in silent.error
    terminated = classify(ended(143), read(INIT), timeout=60)
    assert "exit code 143 and no result" in terminated.error
    usage = classify(ended(1, stderr=b"error: unknown option --x\n"), read(), timeout=60)
    assert "unknown option" in usage.error


def test_malformed_output_fails_and_its_end_is_kept():
    noise = b"<html>" + b"x" * 2 * TAIL + b"the end"
    outcome = classify(ended(0), read(INIT, noise, b'{"type":"result"', b"[1]"), timeout=60)
    assert not outcome.ok
    assert len(outcome.raw) == TAIL
    assert b"the end" in outcome.raw
    assert came(SUCCESS).raw == b""


def test_the_time_limit_is_named_and_a_result_before_it_counts():
    assert (
        "longer than 60 seconds"
        in classify(ended(-9, timed_out=True), read(INIT), timeout=60).error
    )
    assert came(SUCCESS, -9, timed_out=True).ok
    assert "too much" in classify(ended(-9, overflowed=True), read(INIT), timeout=60).error


@pytest.mark.parametrize("status", ["failed", "pending", "needs-auth", "disabled"])
def test_an_mcp_server_that_is_not_connected_ends_the_run_at_once(status):
    servers = [{"name": "countersign", "status": status}]
    stream = Stream(frozenset({"countersign"}))
    line = json.dumps({**INIT, "mcp_servers": servers}, separators=(",", ":")).encode()
    assert stream.follow(line + b"\n") == 0
    outcome = classify(ended(-9, cut_short=True), stream, timeout=60)
    assert outcome.error == "the worker began without the MCP server countersign"
    assert outcome.usd == 0


def test_a_server_that_is_missing_fails_even_a_run_that_says_it_succeeded():
    assert not classify(ended(), read({**INIT, "mcp_servers": []}, SUCCESS), timeout=60).ok
    assert not classify(ended(), read(SUCCESS), timeout=60).ok
    assert classify(ended(), read(INIT, SUCCESS), timeout=60).ok
    assert read({**INIT, "mcp_servers": "countersign"}).absent


def test_a_declared_tool_that_is_not_there_ends_the_run_at_once():
    stream = read(INIT, tools=frozenset({"Bash", "Glob"}))
    assert stream.absent == ["the tool Glob"]
    assert not read(INIT, tools=frozenset({"Bash"})).absent


def test_lines_arrive_in_any_pieces():
    text = b"".join(json.dumps(line).encode() + b"\n" for line in (INIT, SUCCESS))
    for size in (1, 7, 1000):
        stream = Stream(frozenset({"countersign"}))
        pieces = [text[at : at + size] for at in range(0, len(text), size)]
        left = [stream.follow(piece) for piece in pieces]
        assert left[-1] == AFTER_RESULT
        assert stream.init is not None
        assert stream.result is not None
    unended = Stream(frozenset({"countersign"}))
    unended.follow(text[:-1])
    unended.finish()
    assert unended.result is not None


def test_what_a_worker_prints_about_results_is_no_result():
    told = {"type": "user", "message": {"content": [{"type": "tool_result", "content": SUCCESS}]}}
    text = {"type": "assistant", "message": {"content": json.dumps(SUCCESS)}}
    assert read(INIT, told, text).result is None


@pytest.mark.parametrize("value", [[], {}, ["completed"], 7, True, None])
def test_a_word_of_the_result_line_that_is_none_is_no_success_and_breaks_nothing(value):
    """A program inside may write to the worker's own output, whatever it likes."""
    for name in ("terminal_reason", "is_error"):
        outcome = came({**SUCCESS, name: value})
        assert (outcome.ok, outcome.asks) == (False, False)
    assert "nothing it names" in came({**SUCCESS, "terminal_reason": value, "subtype": value}).error


def test_an_error_is_text_that_every_database_takes():
    hostile = {**SUCCESS, "is_error": True, "result": "a\0b\ud800c"}
    for line in ({**hostile, "terminal_reason": "api_error"}, {**hostile, "terminal_reason": "\0"}):
        error = came(line).error
        assert error.endswith("a\ufffdb?c")
        check_storable(error)
    assert len(came({**SUCCESS, "terminal_reason": "x" * 1_000_000}).error) < 2_000
    usage = classify(ended(1, stderr=b"no\0 \xff\n"), read(), timeout=60)
    assert usage.error.endswith("no\ufffd \ufffd")


@pytest.mark.parametrize(
    "value", [True, "1", -1, 1e9, 999_999.9999999, None, float("inf"), float("nan")]
)
def test_a_cost_that_is_no_amount_counts_as_unknown(value):
    assert came({**SUCCESS, "total_cost_usd": value}).usd is None
    assert came({**SUCCESS, "num_turns": value}).turns == 0


PEM = '-----BEGIN KEY-----\nMIIE"ö\\\n-----END KEY-----'


@pytest.mark.fault("sister-35")
def test_a_secret_of_several_lines_is_found_and_hidden_inside_json_too():
    around = Surroundings({}, forms(["short", PEM, "sk-the-workers-own-key"]))
    output = json.dumps({"found": PEM}, ensure_ascii=False)
    assert around.hide_in(f"{PEM} {output} short") == '[secret] {"found": "[secret]"} short'
    assert around.betrayed_by(output.encode())
    assert not around.betrayed_by(json.dumps({"found": PEM[:19]}).encode())


@pytest.mark.fault("sister-35")
@pytest.mark.parametrize(
    "told",
    [
        {"output": {"deep": [PEM]}},
        {"output": f"look: {PEM}"},
        {"prose": f"I found {PEM}."},
        {"open_questions": [f"is {PEM} right?"]},
        {"files": [PEM]},
    ],
)
def test_a_result_betrays_a_secret_wherever_it_says_it(told):
    around = Surroundings({}, forms([PEM]))
    assert rounds.betrays(MissionResult(**told), around)
    assert not rounds.betrays(MissionResult(output="fine", prose="It is safe."), around)


@pytest.mark.invariant(16)
def test_a_program_that_hangs_after_its_result_is_ended_and_its_result_is_kept(tmp_path):
    lines = tmp_path / "lines"
    lines.write_text("".join(json.dumps(line) + "\n" for line in (INIT, SUCCESS)))
    stream = Stream(frozenset({"countersign"}), grace=0.2)
    run = process.run(
        ["/bin/sh", "-c", f"cat {lines}; sleep 100 & exec sleep 100"],
        timeout=60,
        vouched=True,
        follow=stream.follow,
    )
    assert run.cut_short
    assert run.duration < 20
    assert classify(run, stream, timeout=60).ok
