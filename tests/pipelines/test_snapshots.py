"""What really changed below a directory, whoever says what about it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pipelines import snapshots
from pipelines.exceptions import SnapshotRefused
from pipelines.snapshots import changes, snapshot


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A small working directory."""
    root = tmp_path / "work"
    for path in ("site/index.html", "site/style.css", "notes/a.txt", ".git/config", "top.txt"):
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(f"content of {path}")
    (root / "empty").mkdir()
    (root / "link").symlink_to("site/index.html")
    return root


def _changed(tree: Path, act: Callable[[Path], object]) -> list[str]:
    before = snapshot(tree)
    act(tree)
    return changes(before, snapshot(tree))


def test_nothing_changed_where_nothing_was_written(tree: Path) -> None:
    def read_all(root: Path) -> None:
        for path in root.rglob("*"):
            if path.is_file():
                path.read_bytes()

    assert _changed(tree, read_all) == []


def _written(tree: Path) -> None:
    (tree / "site/index.html").write_text("other")


def _same_size_and_time(tree: Path) -> None:
    path = tree / "top.txt"
    was = path.stat()
    path.write_text("X" * was.st_size)
    os.utime(path, ns=(was.st_atime_ns, was.st_mtime_ns))


def _replaced(tree: Path) -> None:
    path = tree / "top.txt"
    was, text = path.stat(), path.read_text()
    path.unlink()
    path.write_text(text)
    os.utime(path, ns=(was.st_atime_ns, was.st_mtime_ns))


def _linked_hard(tree: Path) -> None:
    (tree / "site/alias").hardlink_to(tree / "top.txt")


def _turned_into_link(tree: Path) -> None:
    (tree / "empty").rmdir()
    (tree / "empty").symlink_to("/etc")


def _deep(tree: Path) -> None:
    (tree / "new/deep").mkdir(parents=True)
    (tree / "new/deep/file").write_text("")


def _whole_directory_gone(tree: Path) -> None:
    (tree / "notes/a.txt").unlink()
    (tree / "notes").rmdir()


def _mode_and_back(tree: Path) -> None:
    (tree / "notes").chmod(0o700)
    (tree / "notes").chmod(0o755)


@pytest.mark.fault("W14")
@pytest.mark.parametrize(
    ("act", "expected"),
    [
        (_written, ["site/index.html"]),
        (_same_size_and_time, ["top.txt"]),
        (_replaced, ["top.txt"]),
        (lambda tree: (tree / "site/new").write_text(""), ["site/new"]),
        (lambda tree: (tree / "top.txt").unlink(), ["top.txt"]),
        (lambda tree: (tree / "top.txt").rename(tree / "moved"), ["moved", "top.txt"]),
        (lambda tree: (tree / "notes").rename(tree / "n"), ["n/a.txt", "notes/a.txt"]),
        (lambda tree: (tree / "top.txt").chmod(0o755), ["top.txt"]),
        (lambda tree: (tree / "notes").chmod(0o777), ["notes"]),
        (_mode_and_back, ["notes"]),
        (lambda tree: (tree / "hollow").mkdir(), ["hollow"]),
        (lambda tree: (tree / "empty").rmdir(), ["empty"]),
        (_deep, ["new/deep/file"]),
        (_whole_directory_gone, ["notes/a.txt"]),
        (_linked_hard, ["site/alias", "top.txt"]),
        (_turned_into_link, ["/etc", "empty"]),
        (lambda tree: (tree / "link").unlink() or (tree / "link").symlink_to("top.txt"), ["link"]),
        (lambda tree: (tree / ".git/config").write_text("[core] fsmonitor=x"), [".git/config"]),
        (lambda tree: os.mkfifo(tree / "site/pipe"), ["site/pipe"]),
        (lambda tree: (tree / "line\nbreak").write_text(""), ["line\nbreak"]),
    ],
)
def test_it_names_what_changed(
    tree: Path, act: Callable[[Path], object], expected: list[str]
) -> None:
    assert _changed(tree, act) == expected


def test_it_follows_no_link(tree: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (tree / "way-out").symlink_to(outside)
    assert _changed(tree, lambda _: (outside / "secret").write_text("x")) == []
    assert "way-out" in snapshot(tree).entries


@pytest.mark.fault("W14")
@pytest.mark.parametrize(
    ("target", "leads_out"),
    [
        ("/etc/cron.d", True),
        ("../../other", True),
        ("../site/../../other", True),
        ("{root}/../other", True),
        ("{root}-beside", True),
        ("../site/index.html", False),
        ("{root}/notes", False),
        ("nowhere", False),
    ],
)
def test_a_link_that_leads_out_is_named_with_where_it_leads(
    tree: Path, target: str, leads_out: bool
) -> None:
    """The next one who writes there would follow it: inside a write set, it still lies outside."""
    named = target.format(root=tree)
    changed = _changed(tree, lambda root: (root / "site/link").symlink_to(named))
    outside = [os.path.normpath(tree / "site" / named)] if leads_out else []
    assert changed == sorted([*outside, "site/link"])
    assert changes(snapshot(tree), snapshot(tree)) == []


@pytest.mark.fault("W14")
def test_links_that_lead_out_only_together_are_named_with_where_they_lead(tree: Path) -> None:
    """As it is written, each stays inside; but `..` of a link is `..` of where it leads."""
    outside, deep = tree.parent / "other", tree / "site/a/b"
    deep.mkdir(parents=True)
    (tree / "site/here").symlink_to("a/b/up/../other")  # dangling: it leads nowhere so far
    (tree / "site/inner").symlink_to("a/b/../b")
    changed = _changed(tree, lambda _: (deep / "up").symlink_to("../../.."))
    assert (tree / "site/here").resolve() == outside
    assert changed == sorted([str(outside), "site/a/b/up"])
    assert changes(snapshot(tree), snapshot(tree)) == []
    assert _changed(tree, lambda _: (deep / "up").unlink()) == ["site/a/b/up"]
    assert _changed(tree, lambda _: (deep / "up").symlink_to("..")) == ["site/a/b/up"]


def test_a_name_that_is_no_text_is_shown_by_its_bytes(tree: Path) -> None:
    name = os.fsencode(tree / "site") + b"/\xff"
    assert _changed(tree, lambda _: os.close(os.open(name, os.O_CREAT))) == ["site/\\xff"]


def test_a_directory_that_cannot_be_read_is_named(tree: Path) -> None:
    """A worker that hides its files below a path that no call takes has changed that path."""

    def hide(root: Path) -> None:
        here, name = os.open(root, os.O_RDONLY), "d" * 200
        for _ in range(25):  # 5,000 characters: past what the kernel takes as one path
            os.mkdir(name, dir_fd=here)
            below = os.open(name, os.O_RDONLY, dir_fd=here)
            os.close(here)
            here = below
        os.close(os.open("loot", os.O_CREAT | os.O_WRONLY, dir_fd=here))
        os.close(here)

    before = snapshot(tree)
    hide(tree)
    after = snapshot(tree)
    (path,) = after.unreadable
    assert changes(before, after) == [path]
    assert path.startswith("d" * 200 + "/")


def test_what_is_no_directory_is_refused(tree: Path) -> None:
    for path in (tree / "nowhere", tree / "top.txt"):
        with pytest.raises(SnapshotRefused):
            snapshot(path)


def test_too_many_entries_are_refused(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    count = len(snapshot(tree).entries)
    monkeypatch.setattr(snapshots, "MAX_ENTRIES", count)
    snapshot(tree)
    monkeypatch.setattr(snapshots, "MAX_ENTRIES", count - 1)
    with pytest.raises(SnapshotRefused):
        snapshot(tree)


_names = st.sampled_from(["a", "b", "c", "a/x", "a/y", "b/x", "c/z/deep"])


@settings(
    max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(first=st.sets(_names, max_size=5), second=st.sets(_names, max_size=5))
def test_two_looks_differ_by_exactly_the_files_that_came_and_went(
    tmp_path: Path, first: set[str], second: set[str]
) -> None:
    """A directory is only named when it came or went empty: here none does."""
    root = tmp_path / str(len(list(tmp_path.iterdir())))
    root.mkdir()
    files = {f"{name}/file" for name in first}
    later = {f"{name}/file" for name in second}
    _fill(root, files)
    before = snapshot(root)
    for name in files - later:
        (root / name).unlink()
    _prune(root)
    _fill(root, later - files)
    assert changes(before, snapshot(root)) == sorted(files ^ later)


def _fill(root: Path, files: set[str]) -> None:
    for name in files:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("")


def _prune(root: Path) -> None:
    for path in sorted(root.rglob("*"), reverse=True):
        if path.is_dir() and not any(path.iterdir()):
            path.rmdir()


@pytest.mark.soak
def test_fifty_thousand_files_are_compared(tmp_path: Path) -> None:
    for number in range(50_000):
        if number % 500 == 0:
            (tmp_path / f"d{number // 500}").mkdir()
        os.close(os.open(tmp_path / f"d{number // 500}/{number}", os.O_CREAT))
    before = snapshot(tmp_path)
    assert len(before.entries) == 50_100
    (tmp_path / "d7/3777").write_text("x")
    assert changes(before, snapshot(tmp_path)) == ["d7/3777"]
