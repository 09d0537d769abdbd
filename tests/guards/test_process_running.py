"""Children run to their end: argv only, bounded in every way, and never left behind."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from guards import process
from guards.exceptions import InvalidInput, ProcessFailed


def _shell(script: str, **options: object) -> process.ProcessResult:
    """A shell only as a child that does what a test needs; the product never starts one."""
    return process.run(["/bin/sh", "-c", script], **{"timeout": 20, **options})  # type: ignore[arg-type]


def _assert_gone(pid: int) -> None:
    for _ in range(150):
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return
        if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
            return
        time.sleep(0.02)
    raise AssertionError(f"process {pid} still runs")


def test_it_gives_back_exit_code_output_and_the_end_of_the_errors() -> None:
    result = _shell("cat; echo warned >&2; exit 3", stdin=b"through")
    assert (result.exit_code, result.stdout, result.stderr) == (3, b"through", b"warned\n")
    assert not result.succeeded
    assert result.failed_step == 0
    assert _shell("exit 0").succeeded


@pytest.mark.invariant(14)
@pytest.mark.fault("exec-02", "sister-45")
def test_arguments_reach_the_program_as_they_are() -> None:
    words = ["--output=x", "$HOME `id`; rm -rf /", "*", "a\nb", "", "ü"]
    result = process.run(["printf", "%s|", *words], timeout=10)
    assert result.stdout.decode() == "".join(f"{word}|" for word in words)


@pytest.mark.parametrize("argv", [[], [""], ["echo", "a\0b"], ["echo", "x" * 128 * 1024]])
def test_an_argument_that_cannot_be_passed_on_is_refused(argv: list[str]) -> None:
    with pytest.raises(InvalidInput):
        process.run(argv, timeout=10)


def test_an_argument_just_below_the_limit_passes() -> None:
    assert len(process.run(["printf", "%s", "x" * 131_000], timeout=10).stdout) == 131_000


@pytest.mark.parametrize("env", [{"A": "x\0"}, {"A=B": "x"}, {"": "x"}])
def test_a_variable_that_cannot_be_passed_on_is_refused(env: dict[str, str]) -> None:
    with pytest.raises(InvalidInput, match="environment"):
        process.run(["true"], timeout=10, env=env)


@pytest.mark.fault("sister-35")
def test_a_child_sees_the_declared_variables_and_nothing_of_ours(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "key-of-ours")
    monkeypatch.setenv("DATABASE_URL", "postgres://user:password@host/name")
    seen = process.run(["env"], timeout=10, env={"DECLARED": "yes"}, cwd=tmp_path).stdout.decode()
    names = {line.partition("=")[0] for line in seen.splitlines()}
    assert names == {"PATH", "LANG", "HOME", "DECLARED"}
    assert f"HOME={tmp_path}" in seen


@pytest.mark.invariant(16)
@pytest.mark.fault("runner-07", "sister-34")
def test_the_time_limit_kills_the_whole_group(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    result = _shell(f"sleep 300 & echo $! > {pids}; echo $$ >> {pids}; wait", timeout=0.5)
    assert result.timed_out
    assert result.exit_code == -signal.SIGKILL
    for pid in pids.read_text().split():
        _assert_gone(int(pid))


@pytest.mark.invariant(16)
@pytest.mark.fault("runner-07")
def test_descendants_that_hold_the_output_open_are_killed_and_the_result_is_kept(
    tmp_path: Path,
) -> None:
    pids = tmp_path / "pids"
    result = _shell(f"echo result; sleep 300 & echo $! > {pids}; exit 0")
    assert (result.exit_code, result.stdout, result.timed_out) == (0, b"result\n", False)
    _assert_gone(int(pids.read_text()))


@pytest.mark.invariant(16)
def test_a_program_that_hangs_after_its_result_times_out_with_the_result() -> None:
    result = _shell("echo result; exec sleep 300", timeout=0.5)
    assert (result.stdout, result.timed_out) == (b"result\n", True)


@pytest.mark.fault("sister-30")
def test_output_over_the_limit_ends_the_group(tmp_path: Path) -> None:
    result = _shell("while :; do echo 0123456789012345678901234567890123456789; done")
    assert result.overflowed
    assert not result.succeeded
    assert len(result.stdout) == process.MAX_OUTPUT


def test_output_of_exactly_the_limit_is_whole() -> None:
    result = process.run(["head", "-c", "1000000", "/dev/zero"], timeout=20)
    assert result.succeeded
    assert len(result.stdout) == 1_000_000


def test_of_endless_errors_only_the_end_is_kept() -> None:
    script = "i=0; while [ $i -lt 20000 ]; do echo line-$i >&2; i=$((i+1)); done"
    result = _shell(script)
    assert result.succeeded
    assert len(result.stderr) == 64 * 1024
    assert result.stderr.endswith(b"line-19999\n")


@pytest.mark.fault("sister-30", "sister-29")
def test_steps_run_at_the_same_time_and_lose_nothing() -> None:
    payload = os.urandom(3_000_000).hex().encode()
    result = process.run_steps(
        [["cat"], ["tr", "a-f", "A-F"], ["cksum"]], stdin=payload, timeout=30
    )
    expected = subprocess.run(["cksum"], input=payload.upper(), capture_output=True, check=True)
    assert result.stdout == expected.stdout


@pytest.mark.fault("sister-29")
def test_fast_steps_never_lose_their_output() -> None:
    for number in range(40):
        result = process.run_steps([["echo", str(number)], ["cat"], ["cat"]], timeout=20)
        assert result.stdout == f"{number}\n".encode()


@pytest.mark.parametrize(
    ("steps", "failed"),
    [
        ([["false"], ["sleep", "300"]], 0),
        ([["sleep", "300"], ["false"], ["sleep", "300"]], 1),
        ([["yes"], ["false"]], 1),
        ([["cat"], ["cat"], ["/bin/sh", "-c", "cat > /dev/null; exit 4"]], 2),
    ],
)
def test_a_step_that_fails_cancels_all_and_is_named(steps: list[list[str]], failed: int) -> None:
    result = process.run_steps(steps, timeout=60)
    assert not result.succeeded
    assert not result.timed_out
    assert result.failed_step == failed
    assert result.exit_code in (1, 4)
    assert result.duration < 30


def test_a_step_that_cannot_start_ends_those_that_did(tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    broken.write_text("#!/no/such/interpreter\n")
    broken.chmod(0o755)
    started: list[int] = []
    with pytest.raises(ProcessFailed):
        process.run_steps(
            [["sleep", "300"], [str(broken)]], timeout=60, vouched=True, on_start=started.append
        )
    assert len(started) == 1
    _assert_gone(started[0])


def test_a_step_that_may_not_start_ends_those_that_did(tmp_path: Path) -> None:
    with pytest.raises(ProcessFailed):
        process.run_steps(
            [["sleep", "300"], [str(tmp_path / "nothing")]],
            timeout=60,
            vouched=True,
            env={"MARK": str(tmp_path)},
        )
    assert not [one for one in Path("/proc").glob("[0-9]*") if _has(one, str(tmp_path).encode())]


def _has(process: Path, mark: bytes) -> bool:
    try:
        return mark in (process / "environ").read_bytes()
    except OSError:
        return False


def test_an_error_in_the_callers_note_of_the_start_leaves_no_child() -> None:
    started: list[int] = []

    def fail(pid: int) -> None:
        started.append(pid)
        raise RuntimeError("the row could not be written")

    with pytest.raises(RuntimeError, match="row"):
        process.run(["sleep", "300"], timeout=60, on_start=fail)
    _assert_gone(started[0])


def test_no_descriptor_is_left_open() -> None:
    def open_ones() -> int:
        process.run(["cat"], stdin=b"x" * 300_000, timeout=10)
        process.run_steps([["cat"], ["false"], ["cat"]], stdin=b"x" * 300_000, timeout=10)
        process.run(["sleep", "30"], timeout=0.1)
        return len(list(Path("/proc/self/fd").iterdir()))

    assert open_ones() == open_ones()  # supervisors stay for the next runs


def test_no_descriptor_is_left_open_where_there_is_no_room_for_all_of_them() -> None:
    """At whichever of its pipes the start fails."""
    process.run(["true"], timeout=10)  # its supervisor is there
    before, outcomes = _open_descriptors(), []
    for room in range(2, 16):
        with _room_for(room):
            try:
                outcomes.append(process.run_steps([["true"], ["true"]], timeout=10).succeeded)
            except ProcessFailed:
                outcomes.append(False)
        assert _open_descriptors() == before
    assert not outcomes[0]
    assert outcomes[-1]


def _open_descriptors() -> set[int]:
    """Without the one that lists them."""
    return {int(path.name) for path in Path("/proc/self/fd").iterdir() if path.exists()}


@contextmanager
def _room_for(count: int) -> Iterator[None]:
    """Let this process open so many more files."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(_open_descriptors()) + 30, hard))
    filling: list[int] = []
    try:
        with suppress(OSError):
            while True:
                filling.append(os.open(os.devnull, os.O_RDONLY))
        for descriptor in filling[-count:]:
            os.close(descriptor)
        yield
    finally:
        for descriptor in filling[:-count]:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_child_is_limited_before_its_program_starts() -> None:
    limits = process.Limits(cpu_seconds=1, memory=2**30, file_size=4096, open_files=64)
    shown = process.run(["cat", "/proc/self/limits"], timeout=10, limits=limits).stdout.decode()
    rows = {line[:26].strip(): line[26:].split()[:2] for line in shown.splitlines()}
    assert rows["Max cpu time"] == ["1", "1"]
    assert rows["Max address space"] == [str(2**30)] * 2
    assert rows["Max file size"] == ["4096", "4096"]
    assert rows["Max open files"] == ["64", "64"]
    assert rows["Max core file size"] == ["0", "0"]
    busy = _shell("while :; do :; done", limits=limits, timeout=30)
    assert not busy.timed_out
    assert busy.exit_code in (-signal.SIGXCPU, -signal.SIGKILL)


def test_a_broken_pipe_ends_a_child_as_it_should() -> None:
    """Python ignores SIGPIPE; a child must not inherit that."""
    status = process.run(["cat", "/proc/self/status"], timeout=10).stdout.decode()
    ignored = next(line for line in status.splitlines() if line.startswith("SigIgn"))
    assert not int(ignored.split()[1], 16) & (1 << (signal.SIGPIPE - 1))


@pytest.mark.invariant(16)
@pytest.mark.fault("runner-07", "sister-34")
def test_a_child_dies_with_a_parent_that_is_killed(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    program = (
        "import os; os.environ['DJANGO_SETTINGS_MODULE'] = 'config.settings'\n"
        "from guards import process\n"
        f"script = 'echo $$ > {pids}.new; mv {pids}.new {pids}; exec sleep 300'\n"
        "process.run(['/bin/sh', '-c', script], timeout=300)\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", program], cwd=Path(__file__).parents[2])
    try:
        for _ in range(1000):
            if pids.exists():
                break
            time.sleep(0.02)
        child = int(pids.read_text())
        os.kill(child, 0)
    finally:
        parent.kill()
        parent.wait()
    _assert_gone(child)


@pytest.mark.invariant(16)
def test_what_a_killed_parents_child_left_is_ended_by_its_mark(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    script = f"sleep 300 & echo $! > {pids}.new; mv {pids}.new {pids}; wait"
    marks = {"PATH": os.environ["PATH"], "COUNTERSIGN_RUN": str(pids)}
    leader = subprocess.Popen(["/bin/sh", "-c", script], start_new_session=True, env=marks)
    while not pids.exists():
        time.sleep(0.02)
    leader.kill()
    leader.wait()
    assert process.end_marked("COUNTERSIGN_RUN", "another") == 0
    assert process.end_marked("COUNTERSIGN_RUN", str(pids)) == 1
    _assert_gone(int(pids.read_text()))


def test_who_follows_the_output_gets_all_of_it_and_nothing_is_kept() -> None:
    seen = bytearray()

    def follow(chunk: bytes) -> None:
        seen.extend(chunk)

    result = _shell("head -c 3000000 /dev/zero", follow=follow, max_output=4_000_000)
    assert (len(seen), result.stdout, result.cut_short) == (3_000_000, b"", False)
    assert result.succeeded


@pytest.mark.invariant(16)
def test_who_follows_the_output_ends_what_hangs_after_it(tmp_path: Path) -> None:
    kept = tmp_path / "pid"
    script = f"sleep 100 & echo $! > {kept}; echo result; wait"
    result = _shell(script, follow=lambda chunk: 0.1 if b"result" in chunk else None)
    assert (result.cut_short, result.timed_out) == (True, False)
    assert result.duration < 15
    _assert_gone(int(kept.read_text()))


def test_what_ends_by_itself_after_its_result_keeps_its_exit_code() -> None:
    result = _shell("echo result; exit 3", follow=lambda chunk: 10.0)
    assert (result.exit_code, result.cut_short, result.timed_out) == (3, False, False)


def test_a_followed_output_over_the_limit_ends_the_group() -> None:
    result = _shell("yes", follow=lambda chunk: None, max_output=100_000)
    assert result.overflowed


def test_a_child_gets_the_open_files_that_are_passed_on_and_no_other() -> None:
    (reading, writing), (other, unused) = os.pipe(), os.pipe()
    try:
        script = f"echo through > /dev/fd/{writing}; echo never > /dev/fd/{unused}"
        assert not _shell(script, pass_fds=[writing]).succeeded
        os.set_blocking(reading, False)
        assert os.read(reading, 100) == b"through\n"
    finally:
        for descriptor in (reading, writing, other, unused):
            os.close(descriptor)
