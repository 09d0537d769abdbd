"""Plays the story: mail arrives, a command runs, a reply waits, the operator approves it."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

from approvals import selectors as approvals_selectors
from approvals.models import Effect, Hold
from approvals.services import approvals, holds
from config.demo import cast, letters, scene
from config.demo.post import post
from config.demo.report import Crash, Told, accepted_at_server
from config.demo.telling import say
from config.demo.world import World
from config.embedded_mail import Ports, read_ports
from config.supervision import Child, Supervisor
from mail.models import FolderCursor, Message, Outbound
from pipelines.models import Pipeline

#: How long any one step may take, in seconds. The whole story takes about twenty.
STEP = 40.0
#: The effects that nothing will move any more.
_SETTLED = frozenset(Effect.Phase) - Effect.OUTSTANDING


class StepTimedOut(Exception):
    """Something of the story did not happen in time."""


def wait_for(what: str, holds_true: Callable[[], object], seconds: float = STEP) -> None:
    """Look until it is so; StepTimedOut names what was not."""
    until = time.monotonic() + seconds
    while not holds_true():
        if time.monotonic() > until:
            raise StepTimedOut(f"waited {seconds:g} s for {what}")
        time.sleep(0.1)


def start_mail(world: World, supervisor: Supervisor, ports: Ports | None = None) -> Ports:
    """Start the embedded mail server and learn its ports."""
    world.mailboxes()
    (world.mail / "ports.json").unlink(missing_ok=True)
    wanted = ports or Ports()
    child = Child(
        "mail server",
        [
            *("embedded_mail", "--verbosity", "0", "--directory", str(world.mail)),
            *("--imap-port", str(wanted.imap), "--imaps-port", str(wanted.imaps)),
            *("--smtp-port", str(wanted.smtp), "--smtps-port", str(wanted.smtps)),
        ],
        outlives=True,
        output=sys.stderr.buffer,
    )
    supervisor.start(child)
    wait_for("the mail server", lambda: read_ports(world.mail) or not child.is_running())
    found = read_ports(world.mail)
    if found is None:
        raise StepTimedOut("the mail server ended before it listened")
    return found


def first_passes_done() -> bool:
    """Whether every account's first pass is over: before that, mail starts nothing."""
    done = FolderCursor.objects.filter(first_pass_done=True).values("account").distinct()
    return done.count() >= len(cast.ACCOUNTS)


def post_all(world: World, ports: Ports, *, without_first: bool = False) -> int:
    """Post the seven letters (or all but the first); how many there are in all."""
    olga, rita = world.key_of(cast.OLGA), world.key_of(cast.RITA)
    written = [
        letters.to_ada_signed(olga.sign),
        letters.to_bruno_signed(olga.sign),
        letters.to_ada_reader(rita.sign),
        letters.to_bridge_internal(),
        letters.to_ada_unsigned(),
        letters.to_ada_altered(olga.sign),
        letters.to_ada_stranger(),
    ]
    for letter in written[1:] if without_first else written:
        post(world, ports, letter)
    return len(written)


class Performance:
    """One telling of the story, with the processes of a real installation."""

    def __init__(self, world: World, supervisor: Supervisor, ports: Ports) -> None:
        self._world = world
        self._supervisor = supervisor
        self._ports = ports
        self.told = Told()

    def play(self, crash_point: str | None = None) -> Told:
        """All of it. What does not happen in time is told as a failure, and the play ends there."""
        try:
            self._open()
            if crash_point:
                self._crash(crash_point)
            else:
                self._start_worker()
            self._post_all(without_first=bool(crash_point))
            self._approve()
            self._close()
        except StepTimedOut as late:
            self.told.failures.append(str(late))
        return self.told

    def _child(self, name: str, *command: str) -> Child:
        return self._supervisor.start(Child(name, command, output=sys.stderr.buffer))

    def _start_worker(self) -> Child:
        return self._child("worker", "worker")

    def _open(self) -> None:
        scene.build(self._world, self._ports)
        self._child("watcher", "watch_mail")
        wait_for("the first pass over every account", first_passes_done)

    def _crash(self, point: str) -> None:
        """Let a worker die in the middle of the first reply; then see that nothing repeats it."""
        doomed = self._child("worker", "demo_worker", "--die", point)
        self._post(letters.to_ada_signed(self._world.key_of(cast.OLGA).sign))
        wait_for("the worker's death", lambda: not doomed.is_running())
        doomed.end()
        self._supervisor.children.remove(doomed)
        say(f"the worker was killed {point}")
        before = self._see_unknown(point)
        self._supervisor.stop(self._last_worker)
        after = self._see_unknown(point)
        if before != after:
            self.told.failures.append(f"a restart changed {before} to {after}")
        self.told.crash = after

    def _see_unknown(self, point: str) -> Crash:
        """Start a worker, let it settle what was left, and look."""
        self._last_worker = self._start_worker()
        wait_for("the reply's honest end", lambda: self._first_reply() is not None)
        wait_for("the pipeline's end", lambda: _ended(1))
        reply = self._first_reply()
        if reply is None or reply.effect is None:
            raise StepTimedOut("the reply's effect is gone")
        accepted = accepted_at_server(self._world, reply.message_id.strip("<>"))
        return Crash(point, reply.effect.phase, accepted)

    def _first_reply(self) -> Outbound | None:
        settled = Outbound.objects.filter(effect__phase__in=_SETTLED)
        return settled.select_related("effect").order_by("created_at").first()

    def _post(self, letter: letters.Letter) -> None:
        post(self._world, self._ports, letter)

    def _post_all(self, *, without_first: bool) -> None:
        count = post_all(self._world, self._ports, without_first=without_first)
        say("the letters are posted")
        wait_for("all letters to be stored", lambda: Message.objects.count() >= count)

    def _approve(self) -> None:
        """Open the held reply for review and approve what was shown, as the console does."""
        wait_for("a reply to be held", lambda: approvals_selectors.waiting_holds().exists())
        waiting = list(approvals_selectors.waiting_holds())
        self.told.waiting_seen = len(waiting)
        for hold in waiting:
            self._approve_one(hold)

    def _approve_one(self, hold: Hold) -> None:
        approval = holds.open_for_review(hold_id=hold.pk, by=scene.OPERATOR)
        approvals_selectors.preview(approval)
        approvals.approve(
            approval_id=approval.pk, by=scene.OPERATOR, via="console", digest=approval.digest
        )
        self.told.approved += 1
        say("the held reply is approved")

    def _close(self) -> None:
        wait_for("both pipelines to end", lambda: _ended(2))
        wait_for(
            "every reply to be settled",
            lambda: not Effect.objects.filter(phase__in=Effect.OUTSTANDING).exists(),
        )


def _ended(number: int) -> bool:
    return Pipeline.objects.filter(status__in=Pipeline.ENDED).count() >= number
