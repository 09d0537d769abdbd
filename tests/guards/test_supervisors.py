"""What stands between us and our children: nothing of a run outlives it, whatever it has done."""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from guards import process
from guards.exceptions import InvalidInput, ProcessFailed
from guards.process import Several, supervisor, supervisors
from tests.guards.runs import started

pytestmark = pytest.mark.one_database

ROOT = Path(__file__).parents[2]

#: All signals but those of the kernel's real time and the C library's own.
_ORDINARY = (1 << 31) - 1
#: Leaves its session, its parent and its environment, and says who it is.
_DAEMON = "setsid env -i /bin/sh -c 'echo $$ > {pids}.new; mv {pids}.new {pids}; exec sleep 300' "


@pytest.fixture
def pids(tmp_path: Path) -> Iterator[Path]:
    """Where a daemon says who it is; it is killed at the end, if it is there."""
    path = tmp_path / "pid"
    yield path
    if path.exists():
        kill(int(path.read_text()))


def daemon(pids: Path, then: str = "exit 0") -> list[str]:
    silently = "> /dev/null 2>&1 < /dev/null &"
    waiting = f"while [ ! -e {pids} ]; do sleep 0.01; done"
    return ["/bin/sh", "-c", f"{_DAEMON.format(pids=pids)} {silently} {waiting}; {then}"]


def kill(pid: int) -> None:
    if runs(pid):
        os.kill(pid, signal.SIGKILL)


def runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def is_gone(pid: int) -> bool:
    until = time.monotonic() + 20
    while runs(pid):
        if time.monotonic() > until:
            return False
        time.sleep(0.01)
    return True


@pytest.mark.invariant(16)
def test_what_leaves_its_session_and_clears_its_environment_ends_with_the_run(pids: Path) -> None:
    assert process.run(daemon(pids), timeout=20).succeeded
    assert not runs(int(pids.read_text()))


@pytest.mark.invariant(16)
def test_what_is_known_to_have_daemons_leaves_them(pids: Path) -> None:
    assert process.run(daemon(pids), timeout=20, has_daemons=True).succeeded
    assert runs(int(pids.read_text()))
    # And the next run of the same supervisor takes in what is left behind, as any.
    kill(int(pids.read_text()))
    pids.unlink()
    assert process.run(daemon(pids), timeout=20).succeeded
    assert not runs(int(pids.read_text()))


@pytest.mark.invariant(16)
@pytest.mark.parametrize("how", ["timeout", "failure", "size"])
def test_it_ends_too_where_the_run_is_cut_off(pids: Path, how: str) -> None:
    then = {"timeout": "exec sleep 300", "failure": "exit 3", "size": "exec yes"}[how]
    result = process.run(daemon(pids, then), timeout=1.5, max_output=10_000)
    assert (result.timed_out, result.exit_code == 3, result.overflowed).index(True) == [
        "timeout",
        "failure",
        "size",
    ].index(how)
    assert not runs(int(pids.read_text()))


@pytest.mark.invariant(16)
def test_a_run_beside_it_goes_on(pids: Path) -> None:
    with Several() as several:
        other = started(several, [["/bin/sh", "-c", "sleep 1; echo through"]], timeout=20)
        first = started(several, [daemon(pids)], timeout=20)
        assert several.ended(10.0) == [first]
        assert not runs(int(pids.read_text()))
        while not several.ended(10.0):
            continue
    assert other.result().stdout == b"through\n"


@pytest.mark.invariant(16)
@pytest.mark.fault("runner-07", "sister-34")
def test_all_of_a_run_ends_with_a_parent_that_is_killed(pids: Path) -> None:
    program = (
        "import os; os.environ['DJANGO_SETTINGS_MODULE'] = 'config.settings'\n"
        "from guards import process\n"
        f"process.run({daemon(pids, 'exec sleep 300')!r}, timeout=300, vouched=True)\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", program], cwd=ROOT)
    try:
        while not pids.exists():
            assert parent.poll() is None
            time.sleep(0.02)
        assert runs(int(pids.read_text()))
    finally:
        parent.kill()
        parent.wait()
    assert is_gone(int(pids.read_text()))


def test_a_copy_of_our_process_does_not_keep_its_originals_children(pids: Path) -> None:
    """A supervisor sees its channel closed only once nobody has the other end."""
    program = (
        "import os, threading, time; os.environ['DJANGO_SETTINGS_MODULE'] = 'config.settings'\n"
        "from pathlib import Path\n"
        "from guards import process\n"
        f"argv = {daemon(pids, 'exec sleep 300')!r}\n"
        "run = lambda: process.run(argv, timeout=300, vouched=True)\n"
        "threading.Thread(target=run).start()\n"
        f"while not Path({str(pids)!r}).exists(): time.sleep(0.02)\n"
        "copied = os.fork()\n"
        "if not copied: time.sleep(60); os._exit(0)\n"
        "print(copied, flush=True)\n"
        "time.sleep(60)\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", program], cwd=ROOT, stdout=subprocess.PIPE)
    assert parent.stdout is not None
    copied = int(parent.stdout.readline())
    try:
        assert runs(int(pids.read_text()))
        parent.kill()
        parent.wait()
        assert is_gone(int(pids.read_text()))
        assert runs(copied)
    finally:
        kill(copied)
        parent.stdout.close()


def test_a_copy_of_our_process_has_supervisors_of_its_own() -> None:
    process.run(["true"], timeout=20)
    context = multiprocessing.get_context("fork")
    reading, writing = context.Pipe()
    copy = context.Process(target=lambda: writing.send(_parent_of_a_child()))
    mine = _parent_of_a_child()
    copy.start()
    try:
        assert reading.poll(20)
        assert reading.recv() != mine
    finally:
        copy.join(20)
    assert _parent_of_a_child() == mine


def _parent_of_a_child() -> int:
    done = process.run(["/bin/sh", "-c", "echo $PPID"], timeout=20)
    return int(done.stdout)


def test_a_supervisor_serves_one_run_after_the_other_and_others_beside_each_other() -> None:
    assert _parent_of_a_child() == _parent_of_a_child()
    with Several() as several:
        asking = ["/bin/sh", "-c", "echo $PPID; sleep 0.2"]
        sessions = [started(several, [asking], timeout=20) for _ in range(3)]
        left = {*sessions}
        while left:
            left -= {*several.ended(10.0)}
    assert len({session.result().stdout for session in sessions}) == 3


def test_a_run_whose_supervisor_is_killed_is_over_and_the_next_one_has_another() -> None:
    told: list[int] = []
    killed = process.run(
        ["/bin/sh", "-c", "sleep 0.3; kill -9 $PPID; exec sleep 300"],
        timeout=60,
        on_start=told.append,
    )
    assert killed.is_lost
    assert killed.exit_code == -signal.SIGKILL
    assert killed.duration < 50
    assert is_gone(told[0])
    assert process.run(["true"], timeout=20).succeeded


def named(tmp_path: Path, name: str, then: str = "exec sleep 300") -> list[str]:
    """A program that says who it is."""
    path = tmp_path / name
    return ["/bin/sh", "-c", f"echo $$ > {path}.new; mv {path}.new {path}; {then}"]


def told(tmp_path: Path, *names: str) -> list[int]:
    """Who they are, once all of them have said it."""
    until = time.monotonic() + 20
    while not all((tmp_path / name).exists() for name in names):
        assert time.monotonic() < until
        time.sleep(0.01)
    return [int((tmp_path / name).read_text()) for name in names]


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


@pytest.mark.invariant(16)
@pytest.mark.parametrize("kills", [True, False])
def test_steps_that_nobody_has_asked_for_end_with_a_supervisor_that_is_killed(
    tmp_path: Path, kills: bool
) -> None:
    steps = ["first", "second", "third"]
    with Several() as several:
        session = several.order([named(tmp_path, step) for step in steps], timeout=60)
        pids = told(tmp_path, *steps)
        if kills:
            parent = parent_of(pids[0])
            os.kill(parent, signal.SIGKILL)
            assert is_gone(parent)
            with pytest.raises(ProcessFailed):
                several.confirm(session)
            assert all(is_gone(pid) for pid in pids)
        else:
            several.confirm(session)
            assert all(runs(pid) for pid in pids)
    assert all(is_gone(pid) for pid in pids)


def test_whom_a_killed_supervisor_had_started_is_known_where_the_next_order_fails(
    tmp_path: Path,
) -> None:
    one = supervisors.take("cpu=60")
    order(one, *named(tmp_path, "first"))
    (pid,) = told(tmp_path, "first")
    try:
        supervisor_pid = parent_of(pid)
        os.kill(supervisor_pid, signal.SIGKILL)
        assert is_gone(supervisor_pid)
        with pytest.raises(ProcessFailed):
            order(one, "/bin/true")
        assert one.started == {pid}
        assert one.is_over
    finally:
        kill(pid)
        supervisors.give_back(one)


def test_one_that_is_stopped_before_it_answers_goes_on() -> None:
    with Several() as several:
        first = several.order([["/bin/sh", "-c", "kill -STOP $PPID"], ["cat"], ["cat"]], timeout=60)
        several.confirm(first)
        assert several.ended(20.0) == [first]
    assert first.result().succeeded


@pytest.mark.invariant(16)
@pytest.mark.parametrize("before", [[], [["true"]]], ids=["alone", "behind-one-that-has-ended"])
def test_a_long_run_that_leaves_many_behind_does_not_fill_the_table_of_processes(
    tmp_path: Path, before: list[list[str]]
) -> None:
    leaving = "i=0; while [ $i -lt 100 ]; do (true &); i=$((i+1)); done"
    shell, option, last = named(tmp_path, "last")
    script = f"sleep 0.1; {leaving}; ({shell} {option} '{last}' &); exec sleep 300"
    with Several() as several:
        started(several, [*before, [shell, option, script]], timeout=60)
        (pid,) = told(tmp_path, "last")
        until = time.monotonic() + 20
        while len(children_of(parent_of(pid))) != len(before) + 2:  # the programs, and the last one
            assert time.monotonic() < until
            time.sleep(0.01)
        assert runs(pid)


def children_of(pid: int) -> list[int]:
    listed = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    return [int(child) for child in listed.split()]


def test_more_open_files_than_a_start_has_are_refused_before_it(tmp_path: Path) -> None:
    with Path(os.devnull).open("rb") as nothing:
        copies = [os.dup(nothing.fileno()) for _ in range(supervisor.MOST_FILES - 2)]
        try:
            with pytest.raises(InvalidInput, match="64 open files"):
                process.run(["true"], timeout=20, pass_fds=copies)
            assert process.run(["true"], timeout=20, pass_fds=copies[1:]).succeeded
        finally:
            for copy in copies:
                os.close(copy)


@pytest.mark.parametrize(("most", "starts"), [(6, False), (16, True)])
def test_fewer_open_files_than_a_start_needs_are_told_with_it(most: int, starts: bool) -> None:
    limits = process.Limits(open_files=most)
    if starts:
        assert process.run(["true"], timeout=20, limits=limits).succeeded
        return
    with pytest.raises(ProcessFailed, match="Too many open files"):
        process.run(["true"], timeout=20, limits=limits)


def test_our_process_is_not_copied_while_a_supervisor_is_being_made() -> None:
    """The copy would keep its channel open, and not know of it."""
    has_begun, is_made = threading.Event(), threading.Event()

    def make() -> None:
        with supervisors._pool.changing:
            has_begun.set()
            time.sleep(0.2)
            is_made.set()

    making = threading.Thread(target=make)
    making.start()
    has_begun.wait()
    copied = os.fork()
    if not copied:
        os._exit(0 if is_made.is_set() and _parent_of_a_child() else 1)
    making.join()
    _, status = os.waitpid(copied, 0)
    assert os.waitstatus_to_exitcode(status) == 0


def test_one_that_was_killed_while_it_was_idle_is_not_used_again() -> None:
    parent = _parent_of_a_child()
    os.kill(parent, signal.SIGKILL)
    assert is_gone(parent)
    assert _parent_of_a_child() != parent


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_signals_for_everybody_do_not_reach_a_run_and_are_not_ignored_in_it(
    number: signal.Signals,
) -> None:
    script = f"kill -{int(number)} $PPID; sleep 0.1; cat /proc/self/status"
    done = process.run(["/bin/sh", "-c", script], timeout=20)
    assert done.succeeded
    shown = dict(line.split(":", 1) for line in done.stdout.decode().splitlines())
    for name in ("SigBlk", "SigIgn", "SigCgt"):
        assert int(shown[name], 16) & _ORDINARY == 0


@pytest.mark.invariant(16)
def test_a_child_that_stops_its_supervisor_ends_in_its_time_with_all_it_has(pids: Path) -> None:
    result = process.run(daemon(pids, "kill -STOP $PPID; exec sleep 300"), timeout=2)
    assert result.timed_out
    assert not result.is_lost
    assert not runs(int(pids.read_text()))


def test_nobody_of_the_same_user_looks_into_it_or_takes_it_over() -> None:
    """As the kernel's own word for that says; a copy of us, which is one for a moment, asks."""
    ours, theirs = socket.socketpair()
    ours.close()
    copied = os.fork()
    if not copied:
        before = is_dumpable()
        sys.argv = ["supervisor", str(theirs.detach()), "core=0"]
        supervisor.main()
        os._exit(10 * before + is_dumpable())
    theirs.close()
    _, status = os.waitpid(copied, 0)
    assert os.waitstatus_to_exitcode(status) == 10


def is_dumpable() -> int:
    return int(ctypes.CDLL(None).prctl(3, 0, 0, 0, 0))  # PR_GET_DUMPABLE


def test_it_has_nothing_of_our_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "key-of-ours")
    supervisors.Supervisor("core=0").close().wait(20)  # as in a process that starts its first one
    with Several() as several:
        session = started(several, [["/bin/sh", "-c", "cat /proc/$PPID/environ"]], timeout=20)
        while not several.ended(10.0):
            continue
    assert b"key-of-ours" not in session.result().stdout


def test_a_directory_that_is_gone_is_told_with_the_start(tmp_path: Path) -> None:
    with pytest.raises(ProcessFailed, match="No such file or directory"):
        process.run(["true"], timeout=20, cwd=tmp_path / "gone")
    assert process.run(["true"], timeout=20, cwd=tmp_path).succeeded


def test_open_files_that_are_passed_on_keep_their_numbers_whatever_ours_are() -> None:
    """Also where one has the number that the supervisor uses itself for another one."""
    pairs = [os.pipe() for _ in range(12)]
    try:
        numbers = [writing for _, writing in pairs]
        script = "; ".join(f"echo {number} > /dev/fd/{number}" for number in numbers)
        assert process.run(["/bin/sh", "-c", script], timeout=20, pass_fds=numbers[::-1]).succeeded
        for reading, writing in pairs:
            os.set_blocking(reading, False)
            assert os.read(reading, 100) == f"{writing}\n".encode()
    finally:
        for descriptor in (end for pair in pairs for end in pair):
            os.close(descriptor)


def test_arguments_and_variables_of_any_bytes_and_of_any_size_arrive() -> None:
    words = [os.fsdecode(b"\xff\xfe"), "ü", *["x" * 100_000] * 10]
    done = process.run(["printf", "%s|", *words], timeout=20, max_output=2_000_000)
    assert done.stdout == b"".join(os.fsencode(word) + b"|" for word in words)
    shown = process.run(["env"], timeout=20, env={"A": os.fsdecode(b"\xff"), "B": "y" * 100_000})
    assert b"A=\xff\n" in shown.stdout
    assert b"B=" + b"y" * 100_000 in shown.stdout


def test_the_last_ones_idle_are_kept_and_the_others_end() -> None:
    first = _parent_of_a_child()
    for seconds in range(13, 13 + supervisors._KEPT):
        process.run(["true"], timeout=20, limits=process.Limits(cpu_seconds=seconds))
    assert is_gone(first)


def test_one_that_has_used_much_of_its_own_time_is_not_used_again() -> None:
    """Its processor time is limited as that of its children is, who cannot raise it."""
    one = supervisors.take("cpu=1")
    pid = start(one, "/bin/sleep", "300")
    parent = parent_of(pid)
    while ticks(parent) < 0.2 * os.sysconf("SC_CLK_TCK"):
        with pytest.raises(FileNotFoundError):
            start(one, "/no/such/program")
    one.end()
    supervisors.give_back(one)
    assert is_gone(parent)


def test_a_run_that_was_over_by_itself_when_it_was_to_be_ended_is_no_end_of_the_next_one() -> None:
    one = supervisors.take("cpu=60")
    for _ in range(20):
        start(one, "/bin/true")
        time.sleep(0.002)
        one.end()  # crosses what is said of the end, or not
        assert one.is_over
        pid = start(one, "/bin/sleep", "300")
        one.listen(0.01)
        assert not one.is_over
        one.end()
        assert one.codes[pid] == -signal.SIGKILL
    supervisors.give_back(one)


def start(one: supervisors.Supervisor, *argv: str) -> int:
    order(one, *argv)
    return one.answer()


def order(one: supervisors.Supervisor, *argv: str) -> None:
    with Path(os.devnull).open("r+b") as nothing:
        one.order(
            argv,
            env={},
            directory="/",
            files=[nothing.fileno()] * 3,
            numbers=(),
            is_last=True,
            adopts=True,
        )


def ticks(pid: int) -> int:
    """The processor time that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


def test_a_child_has_no_open_file_but_its_own() -> None:
    shown = process.run(["ls", "/proc/self/fd"], timeout=20).stdout.split()
    assert shown == [b"0", b"1", b"2", b"3"]  # the last is the listing itself


def test_a_system_without_the_list_of_children_is_looked_through(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    child = subprocess.Popen(["sleep", "60"])
    try:
        assert child.pid in supervisor.children()
        monkeypatch.setattr(os, "getpid", lambda: os.getppid())
        assert supervisor._parent(str(child.pid)) != supervisor._parent("0")
    finally:
        child.kill()
        child.wait()
