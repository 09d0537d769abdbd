"""Kill the watcher and the worker at every step of a message's walk, start them again, and count.

The kill comes from a `sitecustomize` that only these tests put on the path, so that the code under
test is the code that ships. Each point has a mail of its own, and the process that ends what one
left is killed at the next; after each, the records and the server must agree. One installation
serves all walks.
"""

from __future__ import annotations

import shutil
import sqlite3
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass
from email import message_from_bytes
from email.policy import default
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance import world
from tests.servers import DovecotServer, Installation, SmtpServer
from tests.servers.dovecot import PASSWORD
from tests.servers.presence import wait_until
from tests.servers.processes import Process

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(420)]

WATCHER_POINTS = (
    "mail.services.polling:_enter:after",
    "mail.services.polling:_Pass._fetch:before",
    "mail.services.polling:_Pass._fetch:after",
    "mail.services.preparing:prepare:after",
    "mail.services.ingest:_move_cursor:after",
    "mail.services.ingest:store_batch:after",
    "mail.services.polling:_Pass.finish:before",
)
PLANNING_POINTS = (
    "pipelines.services.intake:take_in:before",
    "pipelines.services.intake:_write:after",
    "pipelines.services.intake:take_in:after",
    "pipelines.services.beginning:look_at:after",
    "pipelines.services.beginning:begin:after",
    "pipelines.services.execution:_begun:after",
    "pipelines.services.carrying:_record_end:before",
    "pipelines.services.carrying:_record_end:after",
)
SENDING_POINTS = (
    "mail.services.outbound:draft_reply:after",
    "approvals.services.approvals:approve_by_policy:before",
    "approvals.services.approvals:approve_by_policy:after",
    "approvals.services.effects:_claim:after",
    "approvals.services.effects:_mark:after",
    "approvals.services.effects:_contact:after",
    "approvals.services.effects:_record:after",
)
#: What differs most: mail that was stored and the pass not closed; a pipeline that had begun, and
#: a contact that was about to be made. (The demo kills a worker right after its contact, and
#: recovers.) `make soak` walks the whole lists;
#: tests/mail/test_killed_while_polling.py and tests/pipelines/test_crashes.py hold every step with
#: forks in every run.
SHORT_WATCH = (WATCHER_POINTS[5],)
SHORT_WALK = (PLANNING_POINTS[5], SENDING_POINTS[4])


@dataclass
class Walk:
    """One installation with its servers and its two processes, and the number of the next mail."""

    house: Installation
    dovecot: DovecotServer
    user: str
    smtp: SmtpServer
    sender: Any
    number: int = 1001

    def __post_init__(self) -> None:
        self.watcher, self.worker = self.start_watcher(), self.start_worker()

    def rows(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        path = self.house.directory / "countersign.sqlite3"
        with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=20)) as connection:
            return connection.execute(query, values).fetchall()

    def append(self) -> tuple[int, str]:
        """Deliver the next signed request; its number and its Message-ID without brackets."""
        number, self.number = self.number, self.number + 1
        message_id, raw = world.signed_request(self.sender, number)
        self.dovecot.append(self.user, raw)
        return number, message_id.strip("<>")

    def start_watcher(self) -> Process:
        return self.house.watcher(**self._deadly(WATCHER_POINTS))

    def start_worker(self) -> Process:
        return self.house.worker(**self._deadly(PLANNING_POINTS + SENDING_POINTS))

    def _deadly(self, points: tuple[str, ...]) -> dict[str, str]:
        """What a process needs in order to die at each of these points once it is armed."""
        return {
            "PYTHONPATH": str(Path(__file__).parent / "crash"),
            "CRASH_POINTS": ",".join(points),
            "CRASH_ARMED": str(self.house.directory / "armed"),
        }


@pytest.fixture(scope="module")
def walk(dovecot: DovecotServer, keys: Any) -> Iterator[Walk]:
    directory = Path(tempfile.mkdtemp(prefix="cs-", dir="/tmp"))
    environment = world.owner_environment(keys.owner, directory)
    environment["AUTO_REPLIES_PER_IDENTITY_PER_HOUR"] = "100"
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, directory, ignore_errors=True)
        smtp = stack.enter_context(SmtpServer())
        house = stack.enter_context(Installation(directory, **environment))
        user = dovecot.new_user()
        account = {
            "name": "main",
            "host": dovecot.host,
            "port": dovecot.imap_port,
            "username": user,
            "imap_password": PASSWORD,
            "smtp_host": smtp.host,
            "smtp_port": smtp.smtp_port,
        }
        world.build(house, owner=keys.owner, sender=keys.alice, accounts=[account])
        made = Walk(house, dovecot, user, smtp, keys.alice)
        world.wait_for_first_passes(house, 1)
        yield made


def _kill_at(walk: Walk, process: Process, point: str) -> tuple[int, str]:
    """Arm the point, deliver a mail, see the process die there; the mail's number and its id."""
    armed, struck = walk.house.directory / "armed", walk.house.directory / "armed.struck"
    armed.with_suffix(".new").write_text(point)
    armed.with_suffix(".new").rename(armed)
    mail = walk.append()
    wait_until(lambda: struck.exists() or not process.is_alive(), f"a crash at {point}", 60)
    wait_until(lambda: not process.is_alive(), f"the end of the process at {point}")
    assert struck.exists(), f"{point} was never reached:\n{process.output()}"
    struck.unlink()
    process.kill()
    return mail


def _is_over(walk: Walk, message_id: str) -> bool:
    [(pipelines,)] = walk.rows(
        "SELECT count(*) FROM pipelines_pipeline p JOIN mail_message m ON m.id = p.message_id"
        " WHERE m.message_id = ? AND p.status IN"
        " ('completed', 'failed', 'cancelled', 'interrupted')",
        message_id,
    )
    [(moving,)] = walk.rows(
        "SELECT (SELECT count(*) FROM approvals_effect WHERE phase IN ('intent', 'marked'))"
        " + (SELECT count(*) FROM mail_outbound WHERE status IN ('draft', 'queued', 'sending'))"
        " + (SELECT count(*) FROM pipelines_pipeline WHERE notice_due)"
    )
    return pipelines == 1 and moving == 0


@pytest.mark.invariant(1, 2)
@pytest.mark.fault("imap-01")
@pytest.mark.parametrize(
    "points",
    [
        pytest.param(SHORT_WATCH, id="the short walk"),
        pytest.param(WATCHER_POINTS, id="every step", marks=pytest.mark.soak),
    ],
)
def test_a_watcher_killed_anywhere_stores_each_mail_once(walk: Walk, points: tuple[str, ...]):
    for point in points:
        number, message_id = _kill_at(walk, walk.watcher, point)
        walk.watcher = walk.start_watcher()
        wait_until(lambda m=message_id: _is_over(walk, m), f"the end after {point}", 60)
        assert _statuses(walk, message_id) == ["completed"], point
        assert _answers(walk, number) == [f"answer {number}"], point
    _check_everything(walk)


@pytest.mark.invariant(16, 19, 24)
@pytest.mark.fault("send-01", "send-02", "queue-05")
@pytest.mark.parametrize(
    "points",
    [
        pytest.param(SHORT_WALK, id="the short walk"),
        pytest.param(PLANNING_POINTS, id="planning", marks=pytest.mark.soak),
        pytest.param(SENDING_POINTS, id="sending", marks=pytest.mark.soak),
    ],
)
def test_a_worker_killed_anywhere_makes_no_effect_twice(walk: Walk, points: tuple[str, ...]):
    for point in points:
        number, message_id = _kill_at(walk, walk.worker, point)
        _let_time_pass(walk)
        walk.worker = walk.start_worker()
        wait_until(lambda m=message_id: _is_over(walk, m), f"the end after {point}", 60)
        _check_one(walk, number, message_id, point)
    _check_everything(walk)


def _let_time_pass(walk: Walk) -> None:
    """A submission that was cut off before there was an effect is given up after ten minutes."""
    path = walk.house.directory / "countersign.sqlite3"
    with closing(sqlite3.connect(path, timeout=20)) as connection, connection:
        connection.execute(
            "UPDATE mail_outbound SET submitted_at = datetime(submitted_at, '-1 hour')"
            " WHERE status = 'sending' AND effect_id IS NULL"
        )


def _statuses(walk: Walk, message_id: str) -> list[str]:
    rows = walk.rows(
        "SELECT p.status FROM mail_message m JOIN pipelines_pipeline p ON p.message_id = m.id"
        " WHERE m.message_id = ?",
        message_id,
    )
    return [status for (status,) in rows]


def _answers(walk: Walk, number: int) -> list[str]:
    """What the server took in answer to this number: `answer N`, or `notice` for the fixed text."""
    found = []
    for accepted in walk.smtp.accepted:
        reply = message_from_bytes(accepted.content, policy=default)
        if str(reply["Subject"]).endswith(f" {number}"):
            text = reply.get_content()
            is_answer = text.startswith(f"The factors are {number}:")
            found.append(f"answer {number}" if is_answer else "notice")
    return found


def _check_one(walk: Walk, number: int, message_id: str, point: str) -> None:
    """The pipeline says what the server saw."""
    [status] = _statuses(walk, message_id)
    answers = _answers(walk, number)
    assert len(answers) <= 1, (point, answers)
    if status == "completed":
        assert answers == [f"answer {number}"], point
    else:
        assert status == "interrupted", point
    if point.endswith(("_mark:after", "_contact:after")):
        assert status == "interrupted", point


def _check_everything(walk: Walk) -> None:
    """Each mail of every walk once, each effect at most once at the server, the log whole."""
    stored = [m for (m,) in walk.rows("SELECT message_id FROM mail_message")]
    assert len(stored) == len(set(stored)) == walk.number - 1001
    taken = Counter(
        str(message_from_bytes(a.content, policy=default)["Message-ID"]).strip("<>")
        for a in walk.smtp.accepted
    )
    assert all(count == 1 for count in taken.values()), taken
    effects = walk.rows(
        "SELECT trim(o.message_id, '<>'), e.phase FROM mail_outbound o"
        " JOIN approvals_effect e ON e.id = o.effect_id"
    )
    for message_id, phase in effects:
        assert phase in ("accepted", "unknown", "cancelled", "failed")
        if phase == "accepted":
            assert taken[message_id] == 1
        if phase in ("cancelled", "failed"):
            assert taken[message_id] == 0
    assert set(taken) <= {message_id for message_id, _ in effects}
    assert walk.house.inside(
        "from teams.services import verification\nanswer = verification.verify().ok"
    )
