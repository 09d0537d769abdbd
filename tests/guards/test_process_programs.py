"""Which programs may run, and who is provably dead."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from guards import process
from guards.exceptions import BinaryNotAllowed, ProcessFailed
from guards.process import liveness


@pytest.fixture
def place(tmp_path: Path, settings) -> Path:
    """An allowed directory with one program in it."""
    folder = tmp_path / "allowed"
    folder.mkdir()
    _program(folder / "tool", "allowed")
    settings.ALLOWED_BINARIES = [str(folder)]
    return folder


def _program(path: Path, says: str) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!/bin/sh\necho {says}\n")
    path.chmod(0o755)
    return path


def test_a_program_directly_inside_an_allowed_directory_runs(place: Path) -> None:
    assert process.resolve_binary("tool") == place / "tool"
    assert process.resolve_binary(str(place / "tool")) == place / "tool"
    assert process.run(["tool"], timeout=10).stdout == b"allowed\n"


def test_an_allowed_file_runs_by_its_name_and_its_neighbours_do_not(
    place: Path, tmp_path: Path, settings
) -> None:
    one = _program(tmp_path / "other" / "one", "one")
    two = _program(tmp_path / "other" / "two", "two")
    settings.ALLOWED_BINARIES = [str(one)]
    assert process.resolve_binary("one") == one
    for name in ("two", str(two)):
        with pytest.raises(BinaryNotAllowed):
            process.resolve_binary(name)


@pytest.mark.fault("exec-04")
@pytest.mark.parametrize("name", ["", "./tool", "../allowed/tool", "sub/tool", "to\0ol", "nothing"])
def test_names_that_are_neither_bare_nor_absolute_are_refused(place: Path, name: str) -> None:
    _program(place / "sub" / "tool", "deeper")
    with pytest.raises(BinaryNotAllowed):
        process.resolve_binary(name)


def test_symlinks_are_followed_before_the_place_is_judged(place: Path, tmp_path: Path) -> None:
    outside = _program(tmp_path / "outside" / "evil", "evil")
    (place / "link-out").symlink_to(outside)
    (place / "link-in").symlink_to(place / "tool")
    (tmp_path / "detour").symlink_to(place)
    with pytest.raises(BinaryNotAllowed, match="outside"):
        process.resolve_binary("link-out")
    with pytest.raises(BinaryNotAllowed, match="outside"):
        process.run(["link-out"], timeout=10)
    assert process.resolve_binary("link-in") == place / "tool"
    assert process.resolve_binary(str(tmp_path / "detour" / "tool")) == place / "tool"


def test_what_a_name_means_is_looked_up_again_at_execution(place: Path, tmp_path: Path) -> None:
    assert process.resolve_binary("tool")
    (place / "tool").unlink()
    (place / "tool").symlink_to(_program(tmp_path / "outside" / "evil", "evil"))
    with pytest.raises(BinaryNotAllowed):
        process.run(["tool"], timeout=10)


def test_a_folder_and_a_file_that_is_not_executable_are_no_programs(place: Path) -> None:
    (place / "plain").write_text("x")
    (place / "sub").mkdir()
    for name in ("plain", "sub"):
        with pytest.raises(BinaryNotAllowed, match="no program"):
            process.resolve_binary(name)


@pytest.mark.invariant(14)
def test_a_part_of_a_program_of_many_is_refused(place: Path) -> None:
    _program(place / "busybox", "anything")
    (place / "ls").symlink_to(place / "busybox")
    with pytest.raises(BinaryNotAllowed, match="busybox"):
        process.resolve_binary("ls")


def test_a_vouched_program_needs_no_list_but_must_exist(place: Path, tmp_path: Path) -> None:
    own = _program(tmp_path / "own" / "gate", "gate")
    assert process.run([str(own)], timeout=10, vouched=True).stdout == b"gate\n"
    with pytest.raises(ProcessFailed, match="no such program"):
        process.run([str(tmp_path / "nothing")], timeout=10, vouched=True)


def test_this_process_is_not_dead_and_an_ended_one_is() -> None:
    assert not process.is_dead(process.this_process())
    child = subprocess.Popen(["sleep", "300"])
    reference = process.reference_of(child.pid)
    assert not process.is_dead(reference)
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert process.is_dead(reference), "a zombie works no more"
    child.wait()
    assert process.is_dead(reference)


def test_another_process_under_the_same_number_is_told_by_its_start() -> None:
    host, boot, pid, started = process.this_process().rsplit(":", 3)
    assert process.is_dead(f"{host}:{boot}:{pid}:{int(started) - 1}")


def test_another_boot_of_this_host_is_dead_and_anything_unprovable_is_not() -> None:
    host, boot, pid, started = process.this_process().rsplit(":", 3)
    namespace = boot.partition("/")[2]
    assert process.is_dead(f"{host}:another-boot/{namespace}:{pid}:{started}")
    gone = "99999999"
    for reference in (
        f"elsewhere:{boot}:{gone}:{started}",
        f"{host}:{boot.partition('/')[0]}/1:{gone}:{started}",
        f"{host}:-:{gone}:-",
        f"{host}:{boot}:{pid}:-",
        f"{host}:{boot}:x:{started}",
        "junk",
        "",
    ):
        assert not process.is_dead(reference), reference
    assert process.is_dead(f"{host}:{boot}:{gone}:{started}")


def test_a_process_that_cannot_be_seen_is_not_provably_dead(monkeypatch) -> None:
    """/proc mounted with hidepid hides others' processes; only the kernel's word counts."""
    monkeypatch.setattr(liveness, "_status_fields", lambda pid: [])
    host, boot, _, started = process.this_process().rsplit(":", 3)
    assert not process.is_dead(f"{host}:{boot}:1:{started}")
