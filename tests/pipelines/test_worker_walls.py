"""The sandbox of workers, tried from inside: what is not there cannot be read, reached or changed.

These tests run shells in it, not models. Each wall has its control: the same without it.
"""

from __future__ import annotations

import os
import platform
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from guards import process
from guards.exceptions import ProcessFailed
from pipelines import snapshots
from pipelines.exceptions import SandboxMissing
from pipelines.runners.claude import destinations, sandbox, seccomp
from pipelines.runners.claude.broker.exchange import Broker
from pipelines.runners.claude.destinations import Destination, Place
from pipelines.runners.claude.sandbox import Walls
from tests.pipelines import brokers
from tests.pipelines.brokers import KEY, WORD, Api, request
from tests.servers.presence import require_binaries

pytestmark = [pytest.mark.fault("W14", "sister-33"), pytest.mark.invariant(15)]


@pytest.fixture(autouse=True)
def bubblewrap() -> None:
    require_binaries("bwrap")


def inside(script: str, walls: Walls, *, broker: Broker | None = None, **environment: str) -> str:
    """What a shell says inside: its output, or its exit code where it fails."""
    with sandbox.start(walls, ["/bin/bash", "-c", script], broker=broker) as begun:
        ended = process.run(
            begun.argv,
            timeout=20,
            vouched=True,
            env=environment,
            pass_fds=begun.descriptors,
            on_start=begun.on_start,
        )
    said = ended.stdout.decode().strip()
    return said if ended.exit_code == 0 else f"{said}!{ended.exit_code}"


def outside(script: str) -> str:
    """The same shell without walls."""
    return process.run(["/bin/bash", "-c", script], timeout=20, vouched=True).stdout.decode()


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Where a worker works, with a secret beside it."""
    directory = tmp_path / "work"
    (directory / "open").mkdir(parents=True)
    (tmp_path / "secret").write_text("a secret")
    return directory


def test_nothing_of_the_file_system_is_there_but_the_system_and_the_workplace(place, tmp_path):
    walls = Walls(place, readable=(place,))
    secret = tmp_path / "secret"
    assert outside(f"cat {secret}") == "a secret"
    assert inside(f"cat {secret}", walls) == "!1"
    assert inside(f"ls {tmp_path}", walls) == "work"
    assert inside("ls /sys /var /srv 2>/dev/null; ls /run", walls) == "inside.py"
    assert inside("cat /etc/shadow /etc/machine-id", walls) == "!1"


def ones(number: int) -> str:
    """What so many attempts say, each of which ends with 1."""
    return "\n".join(["1"] * number)


def test_only_what_is_writable_can_be_changed(place):
    (place / "closed").mkdir()
    walls = Walls(place, readable=(place,), writable=(place / "open",))
    assert inside("touch open/new && echo made", walls) == "made"
    assert (place / "open" / "new").stat().st_uid == os.getuid()
    targets = "new closed/new /new /usr/new /etc/new /dev/new /run/new"
    assert inside(f"for name in {targets}; do touch $name; echo $?; done", walls) == ones(7)
    assert inside("ln -s ../closed open/link && touch open/link/new", walls) == "!1"
    assert inside("touch /tmp/own && echo its own", walls) == "its own"


def test_in_an_open_directory_what_is_closed_can_neither_change_nor_go(place):
    (place / "open" / "closed").mkdir()
    (place / "open" / "other").write_text("as it was")
    closed = (place, place / "open" / "closed", place / "open" / "other")
    walls = Walls(place, readable=closed, writable=(place / "open",))
    assert inside("echo new > open/file.tmp && mv open/file.tmp open/file", walls) == ""
    attempts = (
        "echo x > open/other",
        "rm open/other",
        "mv open/other open/another",
        "touch open/closed/new",
        "rm -r open/closed",
        "mv open/closed open/away",
    )
    assert inside("; ".join(f"({attempt}); echo $?" for attempt in attempts), walls) == ones(6)
    assert (place / "open" / "other").read_text() == "as it was"


def test_a_hidden_place_inside_a_visible_one_looks_empty(place):
    (place / "open" / "other").write_text("of another project")
    assert inside("ls open", Walls(place, readable=(place,))) == "other"
    walls = Walls(place, readable=(place,), hidden=(place / "open",))
    assert inside("ls open", walls) == ""
    assert inside("touch open/new", walls) == "!1"


def test_what_is_behind_a_socket_or_a_pipe_of_its_workplace_is_not_reached(place, monkeypatch):
    """A read-only place holds nobody back from those: a database's, an agent's, a supervisor's."""
    os.mkfifo(place / "control")
    reading = os.open(place / "control", os.O_RDONLY | os.O_NONBLOCK)
    program = "import socket; socket.socket(socket.AF_UNIX).connect('agent')"
    script = f'{os.path.realpath(sys.executable)} -I -S -c "{program}" && echo connected'
    with socket.socket(socket.AF_UNIX) as server:
        monkeypatch.chdir(place)  # a socket's path is short
        server.bind("agent")
        server.listen()
        walls = Walls(place, readable=(place,))
        assert inside(script, walls) == "connected"
        assert inside("echo go > control", walls) == ""
        assert os.read(reading, 10) == b"go\n"
        special = snapshots.snapshot(place).special()
        assert special == ["agent", "control"]
        walls = Walls(place, readable=(place,), blocked=tuple(place / name for name in special))
        assert inside(script, walls) == "!1"
        assert inside("echo go > control", walls) == "!1"
    os.close(reading)


@pytest.mark.skipif(seccomp.program() is None, reason="an architecture without a filter")
def test_no_file_gets_the_rights_of_the_account_that_workers_run_as(place):
    """Such a file outlives the sandbox, and anybody on the host may start it."""
    program = (
        "import os\n"
        "def tried(act, *arguments):\n"
        "    try: act(*arguments)\n"
        "    except OSError as error: return error.errno\n"
        "    return 0\n"
        "os.chdir('open'); os.umask(0); flags = os.O_CREAT | os.O_WRONLY\n"
        "descriptor = os.open('plain', flags, 0o755)\n"
        "print(*(tried(*attempt) for attempt in (\n"
        "    (os.chmod, 'plain', 0o4755), (os.chmod, 'plain', 0o2755),\n"
        "    (os.open, 'b', flags, 0o4755), (os.fchmod, descriptor, 0o6777),\n"
        "    (os.mknod, 'c', 0o104755), (os.chmod, 'plain', 0o1777),\n"
        "    (os.mkdir, 'd', 0o755), (os.chmod, 'plain', 0o644), (os.open, 'plain', 0, 0o4755))))"
    )
    interpreter = os.path.realpath(sys.executable)
    walls = Walls(place, readable=(place,), writable=(place / "open",))
    said = inside(f'{interpreter} -I -S -c "$PROGRAM"', walls, PROGRAM=program)
    assert said == "1 1 1 1 1 0 0 0 0"
    assert (place / "open" / "plain").stat().st_mode & 0o7777 == 0o644
    assert inside("cp /usr/bin/env open/e && chmod u+s open/e", walls) == "!1"


def test_no_process_but_its_own_is_there(place):
    walls = Walls(place, readable=(place,))
    assert len(outside("ls -d /proc/[0-9]*").split()) > 3
    assert len(inside("ls -d /proc/[0-9]*", walls).split()) <= 4
    assert inside(f"kill -0 {os.getpid()}", walls) == "!1"
    seen = inside("cat /proc/[0-9]*/environ | tr '\\0' '\\n'; true", walls, OF_THE_WORKER="yes")
    assert "OF_THE_WORKER=yes" in seen
    assert "DJANGO_SETTINGS_MODULE" in os.environ and "DJANGO_SETTINGS_MODULE" not in seen


def test_nothing_of_the_kernel_can_be_written_even_by_root(place):
    """Whoever writes `core_pattern` names a program that the host's root runs."""
    walls = Walls(place, readable=(place,))
    kinds = "! -type l ! -exec test -c {} \\;"
    writable = f"find /proc -path '/proc/[0-9]*' -prune -o -writable {kinds} -print"
    if os.geteuid() == 0:
        assert outside("test -w /proc/sys/kernel/core_pattern && echo open") == "open\n"
    found = inside(f"{writable} 2>/dev/null; true", walls).split()
    assert {Path(path).parent for path in found} <= {Path("/proc")}
    assert {inside(f"ls -A {path}", walls) for path in found} <= {""}  # empty, and in memory
    assert inside("echo core > /proc/sys/kernel/core_pattern", walls) == "!1"
    assert inside("echo 0 > /proc/sys/vm/drop_caches", walls) == "!1"
    assert inside("cat /proc/sys/kernel/ostype; cat /proc/meminfo | head -c 8", walls).startswith(
        "Linux"
    )


def test_a_socket_that_lies_in_no_file_system_is_not_reached(place):
    """What lies in /run, /tmp or /var is not there; an abstract one has no place to be missing."""
    name = f"of-{os.getpid()}"
    connect = f"import socket; socket.socket(socket.AF_UNIX).connect(chr(0) + '{name}')"
    script = f'{os.path.realpath(sys.executable)} -I -S -c "{connect}" 2>&1 && echo connected'
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("\0" + name)
        server.listen()
        assert outside(script) == "connected\n"
        assert "refused" in inside(script, Walls(place, readable=(place,)))


def test_it_has_no_privileges_and_no_way_to_more(place):
    walls = Walls(place, readable=(place,))
    status = inside("cat /proc/self/status; id -u", walls)
    for line in ("CapPrm:\t0000000000000000", "CapEff:\t0000000000000000", "NoNewPrivs:\t1"):
        assert line in status
    assert status.endswith("1000")
    assert inside("unshare --user true", walls) == "!1"
    assert inside("mount -t tmpfs none /tmp", walls).startswith("!")


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    """A server outside that answers every connection with one word."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=_answer, args=(server,), daemon=True).start()
        yield server


def _answer(server: socket.socket) -> None:
    while True:
        try:
            visitor, _ = server.accept()
        except OSError:
            return
        with visitor:
            visitor.sendall(b"reached: " + visitor.recv(100))


def ask(host: str, port: int) -> str:
    """A shell's words to connect, without any program that could be missing."""
    return f"exec 3<>/dev/tcp/{host}/{port} && printf hello >&3 && cat <&3"


def test_only_a_declared_host_and_port_can_be_reached(place, listener):
    port = listener.getsockname()[1]
    here, named = Place("127.0.0.1", port), Destination(Place("localhost", port), "127.1.0.9")
    doors = (Destination(here, "127.0.0.1"),)
    assert outside(ask("127.0.0.1", port)) == "reached: hello"
    assert inside(ask("127.0.0.1", port), Walls(place, readable=(place,))) == "!1"
    walls = Walls(place, readable=(place,), doors=doors)
    assert inside(ask("127.0.0.1", port), walls) == "reached: hello"
    assert inside(ask("127.0.0.1", port + 1), walls) == "!1"
    assert inside(ask("192.0.2.1", 443), walls) == "!1"
    named_walls = Walls(place, readable=(place,), doors=(named,))
    assert inside(ask("127.1.0.9", port), named_walls) == "reached: hello"


def test_a_declared_name_is_found_in_its_own_hosts_file_on_a_privileged_port(place, tmp_path):
    door = Destination(Place("api.example.org", 443), "127.1.0.1")
    etc = tmp_path / "etc"
    etc.mkdir()
    (etc / "hosts").write_text(destinations.hosts_file([door]))
    walls = Walls(place, readable=(place,), doors=(door,), etc=etc)
    assert inside("getent hosts api.example.org other.example.org", walls).split() == [
        "127.1.0.1",
        "api.example.org!2",
    ]
    with socket.socket() as unused:  # the place is not there: the door opens, and closes
        unused.bind(("127.0.0.1", 0))
        gone = Destination(Place("127.0.0.1", unused.getsockname()[1]), "127.1.0.1")
        walls = Walls(place, readable=(place,), doors=(gone,), etc=etc)
        assert inside(ask("127.1.0.1", gone.place.port), walls) in ("", "!1")
    assert inside("grep -c CapEff.*0000000000000000 /proc/self/status", walls) == "1"


def test_of_our_own_server_only_one_path_can_be_reached(place, listener):
    port = listener.getsockname()[1]
    door = Destination(Place("127.0.0.1", port), "127.0.0.1", path="/mcp")
    walls = Walls(place, readable=(place,), doors=(door,))

    def said(request: str) -> str:
        ask_it = f"exec 3<>/dev/tcp/127.0.0.1/{port} && printf '{request}' >&3 && cat <&3"
        return inside(ask_it, walls)

    fine = r"POST /mcp HTTP/1.1\r\nHost: x\r\nConnection: keep-alive\r\nContent-Length: 2\r\n\r\nhi"
    answer = said(fine)
    assert answer.startswith("reached: POST /mcp HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n")
    assert answer.endswith("Connection: close\r\n\r\nhi")
    assert said(r"GET /admin/ HTTP/1.1\r\nHost: x\r\n\r\n").startswith("HTTP/1.1 403")


def test_many_connections_at_once_are_all_served(place, listener):
    port = listener.getsockname()[1]
    doors = (Destination(Place("127.0.0.1", port), "127.0.0.1"),)
    script = f"for n in $(seq 100); do ({ask('127.0.0.1', port)}; echo) & done; wait"
    said = inside(script, Walls(place, readable=(place,), doors=doors))
    assert said.count("reached: hello") == 100


#: Everything that a worker can read of itself and its surroundings, as one text.
_ALL_IT_READS = (
    "env; cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline /proc/net/* 2>/dev/null | tr '\\0' '\\n';"
    "grep -rs . /etc /run /tmp /dev/shm . --devices=skip; true"
)


@pytest.mark.fault("sister-35")
def test_the_key_of_its_model_is_nowhere_inside_and_its_word_asks_for_it(place, settings):
    (place / "file").write_text("of the workplace")
    model = {"ANTHROPIC_API_KEY": WORD, "ANTHROPIC_BASE_URL": destinations.MODEL_URL}
    walls = Walls(place, readable=(place,), doors=(destinations.MODEL,))
    host, port = destinations.MODEL.address, destinations.MODEL.place.port
    asks = f'exec 3<>/dev/tcp/{host}/{port} && printf %s "$REQUEST" >&3 && cat <&3'
    with Api() as api:
        settings.CLAUDE_BASE_URL = api.url

        def said(script: str, **environment: str) -> str:
            desk = brokers.made()
            return inside(script, walls, broker=desk, **model, **environment)

        read = said(_ALL_IT_READS)
        assert WORD in read and "of the workplace" in read
        assert KEY not in read
        assert KEY in said(_ALL_IT_READS, OF_ANOTHER_KIND=KEY)  # the control
        answer = said(asks, REQUEST=request().decode())
        assert answer.startswith("HTTP/1.1 200 OK")
        assert KEY not in answer
        assert said(asks, REQUEST=request(word="x").decode()).startswith("HTTP/1.1 401")
        assert [KEY.encode() in head for head, _ in api.asked] == [True]
        real = api.url.removeprefix("http://").split(":")
        assert said(ask(real[0], int(real[1]))) == "!1"


@pytest.mark.skipif(seccomp.program() is None, reason="an architecture without a filter")
def test_sockets_past_the_network_namespace_keyrings_and_namespaces_are_refused(place):
    program = (
        "import ctypes, socket, sys\n"
        "libc = ctypes.CDLL(None, use_errno=True)\n"
        "def call(*arguments):\n"
        "    libc.syscall(*arguments); return ctypes.get_errno()\n"
        "def opens(family):\n"
        "    try: socket.socket(family, socket.SOCK_STREAM).close()\n"
        "    except OSError as error: return error.errno\n"
        "    return 0\n"
        "machine = {'x86_64': (250, 272, 425, 101), 'aarch64': (219, 97, 425, 117)}\n"
        f"keyctl, unshare, uring, ptrace = machine[{platform.machine()!r}]\n"
        "print(opens(40), opens(socket.AF_INET), opens(socket.AF_UNIX), call(keyctl, 0, -3, 0),\n"
        "      call(unshare, 0x10000000), call(uring, 1, 0), call(ptrace, 0, 0, 0, 0))"
    )
    interpreter = os.path.realpath(sys.executable)
    said = inside(
        f'{interpreter} -I -S -c "$PROGRAM"', Walls(place, readable=(place,)), PROGRAM=program
    )
    assert said == "97 0 0 1 1 1 1"


@pytest.mark.parametrize("opens", [True, False])
def test_nobody_gets_through_a_shut_door_until_it_is_opened(place, opens):
    """Whoever comes early waits in front of it: inside, the connection is made, and silent."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        door = Destination(Place("127.0.0.1", port), "127.0.0.1")
        walls = Walls(place, readable=(place,), doors=(door,))
        asks = f"echo hello >&3; read -t {10 if opens else 0.5} said <&3; echo $said"
        script = f"exec 3<>/dev/tcp/127.0.0.1/{port}; {asks}"
        server.settimeout(20 if opens else 0.1)
        with sandbox.start(walls, ["/bin/bash", "-c", script], shut=True) as begun:
            reached: list[bytes] = []

            def on_start(pid: int) -> None:
                begun.on_start(pid)
                if opens:
                    begun.open_doors()
                    visitor, _ = server.accept()
                    with visitor:
                        reached.append(visitor.recv(100))
                        visitor.sendall(b"you are through\n")

            ended = process.run(
                begun.argv,
                timeout=20,
                vouched=True,
                pass_fds=begun.descriptors,
                on_start=on_start,
            )
        said = ended.stdout.decode().strip()
        if opens:
            assert (reached, said) == ([b"hello\n"], "you are through")
        else:
            assert said == ""
            with pytest.raises(TimeoutError):
                server.accept()


@pytest.mark.invariant(16)
def test_nothing_of_it_is_left_when_its_outermost_process_is_killed(place):
    walls = Walls(place, readable=(place,))
    mark = f"of-{place}"
    with sandbox.start(walls, ["/bin/sh", "-c", "setsid sleep 100 & sleep 100"]) as begun:
        ended = process.run(
            begun.argv,
            timeout=0.5,
            vouched=True,
            env={"OF_TEST": mark},
            pass_fds=begun.descriptors,
            on_start=begun.on_start,
        )
    assert ended.timed_out
    assert process.end_marked("OF_TEST", mark) == 0


@pytest.mark.invariant(16)
@pytest.mark.fault("runner-07")
def test_nothing_of_it_is_left_when_the_process_that_started_it_is_killed(place):
    """Its output ends when the last one that could write to it is gone."""
    script = "setsid env -i sleep 300 & echo up; sleep 300"
    starter = "import subprocess, sys; subprocess.run(sys.argv[1:], close_fds=False)"
    with sandbox.start(Walls(place, readable=(place,)), ["/bin/sh", "-c", script]) as begun:
        parent = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", starter, *begun.argv],
            pass_fds=begun.descriptors,
            stdout=subprocess.PIPE,
        )
        begun.on_start(parent.pid)
        assert parent.stdout is not None
        with parent.stdout as output:
            assert output.readline() == b"up\n"
            parent.kill()
            parent.wait()
            assert output.read() == b""


def test_what_it_may_use_is_bounded(place):
    walls = Walls(place, readable=(place,))
    said = inside("ulimit -u; ulimit -c; df --output=size -B1 /tmp | tail -1", walls).split()
    assert said == ["4096", "0", str(1024**3)]


def test_exit_codes_and_signals_are_the_programs_own(place):
    walls = Walls(place, readable=(place,))
    assert inside("exit 7", walls) == "!7"
    assert inside("kill -TERM $$", walls) == "!143"


def test_a_host_without_bubblewrap_says_what_to_do(monkeypatch):
    assert sandbox.missing() == ""
    sandbox.require()
    monkeypatch.setattr(sandbox, "_SYSTEM_PATH", "/nowhere")
    assert "not installed" in sandbox.missing()
    with pytest.raises(SandboxMissing, match=r"Install bubblewrap.*CLAUDE_SANDBOX=off"):
        sandbox.require()


def test_a_host_that_allows_no_namespaces_says_so(monkeypatch, tmp_path):
    refusing = tmp_path / "bwrap"
    refusing.write_text(
        "#!/bin/sh\necho 'bwrap: No permissions to create new namespace' >&2\nexit 1\n"
    )
    refusing.chmod(0o755)
    monkeypatch.setattr(sandbox, "_SYSTEM_PATH", str(tmp_path))
    with pytest.raises(SandboxMissing, match="No permissions to create new namespace"):
        sandbox.require()


def test_a_start_that_fails_leaves_nothing_open(place):
    """Once more than before: what starts children stays for the next one."""

    def fails() -> int:
        with pytest.raises(ProcessFailed), sandbox.start(Walls(place), ["/bin/true"]) as begun:
            process.run(["/nowhere/bwrap", *begun.argv[1:]], timeout=5, vouched=True)
        assert inside("true", Walls(place, readable=(place,))) == ""
        return len(list(Path("/proc/self/fd").iterdir()))

    before = fails()
    assert fails() == before
