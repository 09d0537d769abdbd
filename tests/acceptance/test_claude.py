"""From a signed mail to its answer, with the real `claude` as the worker, and every way it can end.

One installation: the real watcher, worker and web process (whose /mcp the workers use), a real
mailbox and a real SMTP server. Only the model behind the Messages API is a script.
"""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass, field, replace
from email import message_from_bytes
from email.policy import default
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance import world
from tests.servers import DovecotServer, Installation, MessagesApi, SmtpServer
from tests.servers.claude import FAKE_KEY, require_claude
from tests.servers.dovecot import PASSWORD
from tests.servers.messages_api import (
    ERRORS,
    Garbage,
    Hang,
    Script,
    Told,
    Turns,
    call,
    endless,
    say,
)
from tests.servers.presence import require_binaries, wait_until

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(240)]

SHOW, RESULT = "mcp__countersign__mission_show", "mcp__countersign__mission_result"
FAILED = "This request could not be completed. Reference: pipeline-"


def _command(name: str, **fields: Any) -> dict[str, Any]:
    return {
        "schema": "command/1",
        "name": name,
        "serial": 1,
        "description": f"Does {name}.",
        "prompt": "Do what the contract's arguments say.",
        "args": [{"name": "topic", "type": "string", "required": True, "max_length": 100}],
        "budget": {"rounds": 1, "max_usd": 0.4, "max_turns": 4},
        "output_schema": "text",
        "timeout": "60s",
        **fields,
    }


_COMMANDS = (
    _command("summarize"),
    _command("hurry", timeout="3s"),
    _command("build", tools=["Bash(true)"]),
)
_RULES = tuple(
    {
        "name": command["name"],
        "kind": "regex",
        "match": rf"{command['name']} (?P<topic>\w+)",
        "calls": [{"command": command["name"], "args": {"topic": {"group": "topic"}}}],
    }
    for command in _COMMANDS
)

_ALLOW = """
from approvals.models import Hold
from approvals.services import holds, permissions
from guards.types import Asker

by = Asker("operator", "ada")
hold = Hold.objects.get(kind="pipelines.tool-call", state="waiting")
opened = holds.open_for_review(hold_id=hold.pk, by=by)
from approvals import selectors
answer = selectors.preview(opened)
permissions.permit(approval_id=opened.pk, by=by, via="console", digest=opened.digest)
"""


@dataclass
class House:
    """The installation, its mailbox, and who may ask it for work."""

    installation: Installation
    dovecot: DovecotServer
    smtp: SmtpServer
    api: MessagesApi
    keys: Any
    user: str = ""
    sent: list[str] = field(default_factory=list)

    def ask(self, text: str, script: Script) -> str:
        """Send a signed mail to an agent whose model answers so; the mail's Message-ID."""
        self.api.scripts[""] = script
        self.api.requests.clear()
        message_id, raw = world.signed_mail(self.keys.alice, text, subject=text)
        self.dovecot.append(self.user, raw)
        return message_id

    def answer(self, message_id: str) -> str:
        """The text of the one reply to that mail."""
        moving = "SELECT 1 FROM pipelines_pipeline WHERE status IN ('planned', 'queued', 'running')"
        wait_until(lambda: self._replies(message_id), f"the reply to {message_id}", 60)
        wait_until(lambda: not self.rows(moving), "the pipeline to end", 60)
        (reply,) = self._replies(message_id)
        return str(reply.get_content()).replace("\r\n", "\n").strip()

    def _replies(self, message_id: str) -> list[Any]:
        arrived = [message_from_bytes(one.content, policy=default) for one in self.smtp.accepted]
        return [reply for reply in arrived if reply["In-Reply-To"] == message_id]

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        """What the database says, read from outside."""
        path = self.installation.directory / "countersign.sqlite3"
        with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=20)) as database:
            return database.execute(query).fetchall()

    def last_stage(self) -> tuple[str, str, bool]:
        """Status, error, and whether another try may help, of the work stage made last."""
        query = "SELECT status, error, retriable FROM pipelines_stage WHERE command <> 'reply'"
        (found,) = self.rows(f"{query} ORDER BY id DESC LIMIT 1")
        return str(found[0]), str(found[1]), bool(found[2])

    def workers(self) -> list[int]:
        """The processes of `claude` that belong to this installation."""
        mark = os.fsencode(self.installation.directory / "missions")
        return [pid for pid in _processes() if mark in _read(pid, "cmdline")]


def _processes() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]


def _read(pid: int, name: str) -> bytes:
    try:
        return Path("/proc", str(pid), name).read_bytes()
    except OSError:
        return b""


@pytest.fixture(scope="module")
def house(dovecot: DovecotServer, keys: Any) -> Iterator[House]:
    binary = require_claude()
    require_binaries("bwrap")
    directory = Path(tempfile.mkdtemp(prefix="cs-", dir="/tmp"))
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, directory, ignore_errors=True)
        api, smtp = stack.enter_context(MessagesApi()), stack.enter_context(SmtpServer())
        environment = {
            **world.owner_environment(keys.owner, directory),
            "PLANNER": "claude",
            "CLAUDE_BINARY": binary,
            "CLAUDE_BASE_URL": api.url,
        }
        installation = stack.enter_context(Installation(directory, **environment))
        made = House(installation, dovecot, smtp, api, keys)
        _build(made)
        _, url = installation.web()
        installation.worker(MCP_URL=f"{url}/mcp")
        installation.watcher()
        world.wait_for_first_passes(installation, 1)
        yield made


def _build(house: House) -> None:
    house.user = house.dovecot.new_user()
    account = {
        "name": "agent",
        "host": house.dovecot.host,
        "port": house.dovecot.imap_port,
        "username": house.user,
        "imap_password": PASSWORD,
        "smtp_host": house.smtp.host,
        "smtp_port": house.smtp.smtp_port,
    }
    world.build(
        house.installation,
        owner=house.keys.owner,
        sender=house.keys.alice,
        commands=_COMMANDS,
        rules=_RULES,
        secrets={"claude-api-key": FAKE_KEY},
        accounts=[account],
    )


def hands_in(**fields: Any) -> Any:
    """A turn: the worker hands in a result that passes, until a test changes it."""
    return call(RESULT, result={"verdict": "pass", "confidence": 0.9, "prose": "Done.", **fields})


def test_a_mail_is_planned_worked_on_and_answered_by_the_real_client(house: House) -> None:
    """No rule matches: one mission plans, the next carries the signed command out."""
    planned = [{"command": "summarize", "args": {"topic": "whales"}}]
    message_id = house.ask(
        "tell me about whales in short",
        Turns(
            call(SHOW),
            hands_in(output=planned),
            say("planned"),
            call(SHOW),
            hands_in(output=Told("/contract/inputs/args/topic", tool=SHOW)),
            say("done"),
        ),
    )

    assert house.answer(message_id) == "whales"
    planner, worker = house.rows(
        "SELECT command, status, usd > 0, turns > 0 FROM pipelines_mission ORDER BY opened_at"
    )
    assert planner == ("plan", "closed", 1, 1)
    assert worker == ("summarize", "closed", 1, 1)
    assert house.rows("SELECT planner, status FROM pipelines_pipeline") == [("claude", "completed")]
    tokens = "SELECT COUNT(*), COUNT(revoked_at) FROM guards_apitoken WHERE holder_id <> ''"
    assert house.rows(tokens) == [(2, 2)], "each mission's token died with it"
    assert {request.key for request in house.api.requests} == {FAKE_KEY}
    first = house.api.turns[0]
    assert "whales" not in first.text, "nothing of the mail is in a prompt"
    assert not [name for name in first.tools if not name.startswith("mcp__countersign__")]


def test_a_call_that_the_owner_allows_is_made_by_the_same_session_and_once(house: House) -> None:
    told = 'touch /tmp/built && echo \'{"said": "it is built"}\''
    message_id = house.ask(
        "build site",
        Turns(
            call(SHOW),
            call("Bash", command=told, description="build it"),
            call("Bash", command=told, description="build it"),
            hands_in(output=Told("/said", tool="Bash")),
            say("done"),
        ),
    )
    waiting = "SELECT status FROM pipelines_pipeline WHERE status = 'waiting_approval'"
    wait_until(lambda: house.rows(waiting), "the stage to wait for the owner", 60)

    shown = house.installation.python(_ALLOW)

    assert (shown["tool"], shown["requester"]) == ("Bash", world.SENDER)
    assert "touch /tmp/built" in shown["text"]
    assert house.answer(message_id) == "it is built"
    calls = house.rows("SELECT tool, state FROM pipelines_toolcall")
    assert calls == [("Bash", "used")]
    assert house.rows(
        "SELECT state FROM approvals_approval WHERE kind = 'pipelines.tool-call'"
    ) == [("consumed",)]
    assert house.rows(
        "SELECT COUNT(*) FROM approvals_effect WHERE kind = 'pipelines.tool-call'"
    ) == [(0,)]
    last = house.api.turns[-1]
    assert [one.is_error for one in last.results if one.tool == "Bash"] == [True, False]


_EXPENSIVE = replace(call(SHOW), input_tokens=50_000)

#: text of the mail, what the model does, the stage's end, what its error says, may another help.
_Failures = dict[str, tuple[str, Callable[[], Script], str, str, bool]]
_ERRORS_OF_THE_PROGRAM: _Failures = {
    "budget": ("summarize b", lambda: Turns(_EXPENSIVE), "failed", "reached its budget", False),
    "garbage": ("summarize d", lambda: Turns(Garbage()), "failed", "Messages API", True),
}
#: Read in every run from what the program said once (tests/pipelines/test_worker_outcomes.py), or
#: no error to the program: tests/pipelines/test_workers.py has those with it in every run.
_OTHERS: _Failures = {
    "max turns": ("summarize a", lambda: endless(SHOW), "failed", "maximum number of turns", True),
    "API error": ("summarize c", lambda: Turns(ERRORS["bad-request"]), "failed", "(400)", False),
    "malformed result": (
        "summarize e",
        lambda: Turns(call(SHOW), hands_in(output=["no", "text"], more=1), say("done")),
        "incomplete",
        "without handing in a result",
        False,
    ),
    "hang": ("hurry g", lambda: Turns(Hang()), "failed", "longer than 3 seconds", True),
}


@pytest.mark.parametrize(
    "failures",
    [
        pytest.param(_ERRORS_OF_THE_PROGRAM, id="its own errors"),
        pytest.param(_OTHERS, id="the others", marks=pytest.mark.soak),
    ],
)
def test_each_way_a_worker_fails_is_answered_with_the_one_fixed_sentence(
    house: House, failures: _Failures
) -> None:
    for name, (text, script, status, error, may_help) in failures.items():
        message_id = house.ask(text, script())

        assert house.answer(message_id).startswith(FAILED), name
        ended, said, retriable = house.last_stage()
        assert (ended, retriable) == (status, may_help) and error in said, (name, ended, said)
        assert house.workers() == [], name
    if "budget" in failures:
        overshot = "SELECT usd FROM pipelines_mission WHERE reason LIKE '%reached its budget%'"
        assert [usd > 0 for (usd,) in house.rows(overshot)] == [True]


def test_a_worker_that_is_killed_leaves_nothing_and_is_answered(house: House) -> None:
    message_id = house.ask("summarize h", Turns(say("too late", delay=60)))
    wait_until(lambda: house.api.turns and house.workers(), "the worker to ask its model", 60)

    for pid in house.workers():
        with suppress(ProcessLookupError):  # its walls fell with the one before
            os.kill(pid, signal.SIGKILL)

    assert house.answer(message_id).startswith(FAILED)
    assert house.last_stage()[0] == "failed"
    assert house.workers() == []
    assert house.rows("SELECT COUNT(*) FROM pipelines_mission WHERE status = 'open'") == [(0,)]
    missions = house.installation.directory / "missions"
    wait_until(lambda: not list(missions.iterdir()), "the mission's directory to go with it")
