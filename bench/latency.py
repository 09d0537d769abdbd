"""From a mail's arrival to the first process that it starts, beside the server's own delay.

    .venv/bin/python -m bench.latency

A real Dovecot holds the mailbox, the real watcher and worker run on a SQLite file with full
synchronisation. Each round APPENDs one signed mail. The floor is the time until Dovecot announces
it to an idle connection of this bench (about half a second, by Dovecot's design); ours is the time
from that announcement until the mail's first stage runs, as that stage's own process (`date`) tells
the time. In between lie: end of IDLE, search and fetch, the store, parsing and verifying with
GnuPG, the commit, the queue, planning, and the checks of the signed command.
"""

from __future__ import annotations

import json
import shutil
import sqlite3
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

WARM_UP = 3
ROUNDS = 20

_DATE = {
    "schema": "command/1",
    "name": "now",
    "serial": 1,
    "runner": "cli",
    "binary": "date",
    "fixed_args": ["+%s.%N"],
    "output_schema": "text",
    "reply": False,
}

_LOAD = """
from guards.types import Asker
from pathlib import Path
from pipelines.services import commands, rules

by = Asker("operator", "bench")
outcome = commands.load_file(Path(path), by=by)
rules.save_rule(
    name="now", kind="regex", match=r"please factor [0-9]+", calls=[{"command": "now", "args": {}}],
    position=1, by=by,
)
answer = outcome.outcome
"""


def main() -> None:
    from tests import keys
    from tests.acceptance import world
    from tests.servers import DovecotServer, Installation

    directory = Path(tempfile.mkdtemp(prefix="csb-", dir="/tmp"))
    made = keys.Keys()
    owner, sender = made.owner, made.alice
    environment = world.owner_environment(owner, directory)
    environment |= {"AUTO_REPLIES_PER_IDENTITY_PER_HOUR": "10000", "LOG_LEVEL": "WARNING"}
    try:
        with Installation(directory, **environment) as house, DovecotServer() as dovecot:
            user = prepare(house, dovecot, owner, sender)
            rounds = [one_round(dovecot, user, house, sender, n) for n in range(WARM_UP + ROUNDS)]
    finally:
        made.close()
        shutil.rmtree(directory, ignore_errors=True)
    report(rounds[WARM_UP:])


def prepare(house: Any, dovecot: Any, owner: Any, sender: Any) -> str:
    """The house, one watched mailbox after its first pass, and the command that tells the time."""
    from guards import documents
    from tests.acceptance import world
    from tests.keys import sign_detached
    from tests.servers.dovecot import PASSWORD

    world.build(house, owner=owner, sender=sender)
    path = house.directory / "now.json"
    signature = sign_detached(owner, documents.canonical(_DATE)).decode()
    path.write_text(json.dumps({**_DATE, "signature": signature}))
    assert house.python(_LOAD, path=str(path)) == "loaded"
    user: str = dovecot.new_user()
    world.add_account(
        house,
        name="bench",
        host=dovecot.host,
        port=dovecot.imap_port,
        username=user,
        imap_password=PASSWORD,
        smtp_host="127.0.0.1",
        smtp_port=1,
    )
    house.worker()
    house.watcher()
    world.wait_for_first_passes(house, 1)
    return user


def one_round(dovecot: Any, user: str, house: Any, sender: Any, number: int) -> tuple[float, float]:
    """Seconds from APPEND to EXISTS, and from EXISTS to the running process."""
    from tests.acceptance import world

    _, raw = world.signed_request(sender, number)
    listener, writer = dovecot.connect(user), dovecot.connect(user)
    try:
        listener.select("INBOX", readonly=True)
        listener.send(b"bench IDLE\r\n")
        listener.readline()
        writer.append("INBOX", "", "", raw)
        appended = time.time()
        while b"EXISTS" not in listener.readline():
            pass
        announced = time.time()
    finally:
        writer.logout()
        listener.shutdown()
    return announced - appended, started_at(house, number) - announced


def started_at(house: Any, number: int) -> float:
    """What the stage of this round's mail says the time was, once it has run."""
    ends_at = time.monotonic() + 60
    while time.monotonic() < ends_at:
        with sqlite3.connect(house.directory / "countersign.sqlite3", timeout=20) as database:
            found = database.execute(
                "SELECT stage.output FROM pipelines_stage stage"
                " JOIN pipelines_pipeline pipeline ON pipeline.id = stage.pipeline_id"
                " JOIN mail_message message ON message.id = pipeline.message_id"
                " WHERE stage.command = 'now' AND stage.status = 'succeeded'"
                " AND message.subject = ?",
                (f"The factors of {number}",),
            ).fetchone()
        if found:
            return float(found[0])
        time.sleep(0.05)
    raise SystemExit(f"the mail of round {number} started nothing within 60 s")


def report(rounds: list[tuple[float, float]]) -> None:
    from bench.harness import Benchmark, Sample

    floor, ours = (Sample.of(list(column)) for column in zip(*rounds, strict=True))
    with Benchmark("latency") as benchmark:
        benchmark.claim("EXISTS to the first process", ours=ours, floor=floor, at_most=0.25)


if __name__ == "__main__":
    main()
