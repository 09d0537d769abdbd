"""The stand-in for the Messages API, proved with the real client: what other tests rest on."""

from __future__ import annotations

import pytest

from tests.servers import Claude, MessagesApi
from tests.servers.messages_api import Asked, Garbage, Told, Turns, call, endless, say

pytestmark = pytest.mark.acceptance

_STREAM = ("--bare", "--output-format", "stream-json", "--verbose")


def test_the_real_client_follows_a_script_whose_arguments_come_from_earlier_answers(
    claude: Claude, messages_api: MessagesApi
) -> None:
    messages_api.scripts[claude.key] = Turns(
        call("Bash", command=Asked("please run `(.+)`"), description="first"),
        call("Bash", command=Told("/next", tool="Bash"), description="second"),
        say("all done"),
    )

    run = claude.run(
        *_STREAM,
        *("--permission-mode", "dontAsk", "--allowedTools", "Bash(echo:*)"),
        prompt='please run `echo \'{"next": "echo from the answer"}\'`',
    )

    assert run.code == 0, run.stderr
    assert run.result["result"] == "all done"
    assert messages_api.turns[-1].results[-1].text == "from the answer"
    assert {request.key for request in messages_api.requests} == {claude.key}


def test_a_stream_that_is_none_is_asked_for_again_without_a_stream(
    claude: Claude, messages_api: MessagesApi
) -> None:
    messages_api.scripts[""] = Turns(Garbage(), say("in one piece"))

    run = claude.run(*_STREAM, prompt="hello")

    assert run.result["result"] == "in one piece"
    assert [bool(turn.body.get("stream")) for turn in messages_api.turns] == [True, False]


def test_a_path_chooses_its_script_before_the_key_does(
    claude: Claude, messages_api: MessagesApi
) -> None:
    messages_api.scripts["looping"] = endless("Bash", command="echo x", description="x")
    claude.base_url = messages_api.url_for("looping")

    run = claude.run(
        *_STREAM,
        *("--max-turns", "1", "--permission-mode", "dontAsk", "--allowedTools", "Bash"),
        prompt="hello",
    )

    assert (run.code, run.result["terminal_reason"]) == (1, "max_turns")
    assert [turn.script for turn in messages_api.turns] == ["looping"]
