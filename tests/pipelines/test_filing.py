"""A directory that a hostile program has filled: looked at, read and removed without being led."""

from __future__ import annotations

import hashlib
import os
import socket
from pathlib import Path

import pytest

from pipelines import filing
from pipelines.exceptions import FilesRefused


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    made = tmp_path / "pipelines" / "one"
    assert filing.make(made)
    return made


def rule_of(act) -> str | None:
    with pytest.raises(FilesRefused) as refused:
        act()
    return refused.value.rule


def look(directory: Path, path: str) -> int:
    with filing.opened(directory) as root:
        return filing.look_at(root, path)


def measure(directory: Path) -> int:
    with filing.opened(directory) as root:
        return filing.measure(root)


def test_a_directory_is_ours_alone_and_made_once(directory):
    assert directory.stat().st_mode & 0o777 == 0o700
    assert directory.parent.stat().st_mode & 0o777 == 0o700
    assert filing.make(directory) is False


def test_what_is_written_is_ours_alone_and_never_over_another(directory):
    with filing.opened(directory) as root:
        filing.write(root, "a.txt", b"one")
        assert rule_of(lambda: filing.write(root, "a.txt", b"two")) == "disk"
        assert rule_of(lambda: filing.write(root, "../b", b"two")) == "path-not-plain"

    assert (directory / "a.txt").read_bytes() == b"one"
    assert (directory / "a.txt").stat().st_mode & 0o777 == 0o600


def test_a_link_that_waits_under_the_name_is_not_written_through(directory, tmp_path):
    (tmp_path / "secret").write_bytes(b"before")
    (directory / "a.txt").symlink_to(tmp_path / "secret")

    with filing.opened(directory) as root:
        assert rule_of(lambda: filing.write(root, "a.txt", b"after")) == "disk"
    assert (tmp_path / "secret").read_bytes() == b"before"


def test_a_plain_file_is_read_at_any_depth(directory):
    (directory / "out" / "of").mkdir(parents=True)
    (directory / "out" / "of" / "it.txt").write_bytes(b"hello")

    with filing.opened(directory) as root:
        found = filing.digest(root, "out/of/it.txt")
        assert found == filing.Content(5, hashlib.sha256(b"hello").hexdigest())
        assert filing.read(root, "out/of/it.txt", sha256=found.sha256) == b"hello"


@pytest.mark.fault("attachments-03", "sister-25")
def test_nothing_but_a_regular_file_of_the_directory_is_read(directory, tmp_path, monkeypatch):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "key").write_bytes(b"secret")
    (directory / "link").symlink_to(outside / "key")
    (directory / "inner-link").symlink_to("real")
    (directory / "real").write_bytes(b"fine")
    (directory / "way").symlink_to(outside)
    (directory / "folder").mkdir()
    os.mkfifo(directory / "pipe")
    os.link(outside / "key", directory / "hard")
    bound = socket.socket(socket.AF_UNIX)
    monkeypatch.chdir(directory)  # a socket's name has to be short
    bound.bind("socket")

    refused = {
        name: rule_of(lambda name=name: look(directory, name))
        for name in ("link", "inner-link", "way/key", "folder", "pipe", "hard", "socket", "none")
    }

    bound.close()
    assert refused == {
        "link": "file-not-regular",
        "inner-link": "file-not-regular",
        "way/key": "file-not-regular",
        "folder": "file-not-regular",
        "pipe": "file-not-regular",
        "hard": "file-linked",
        "socket": "file-not-regular",
        "none": "file-missing",
    }
    assert look(directory, "real") == 4


def test_a_directory_that_is_a_link_or_gone_is_not_opened(directory, tmp_path):
    other = tmp_path / "pipelines" / "two"
    other.symlink_to(directory)

    assert rule_of(lambda: look(other, "a")) == "directory-gone"
    assert rule_of(lambda: look(tmp_path / "none", "a")) == "directory-gone"


@pytest.mark.fault("sister-25")
def test_a_file_swapped_between_the_look_and_the_reading_is_refused(directory, tmp_path):
    (tmp_path / "key").write_bytes(b"other")
    (directory / "a.txt").write_bytes(b"hello")
    with filing.opened(directory) as root:
        known = filing.digest(root, "a.txt").sha256

        (directory / "a.txt").write_bytes(b"jello")
        assert rule_of(lambda: filing.read(root, "a.txt", sha256=known)) == "file-changed"

        (directory / "a.txt").unlink()
        (directory / "a.txt").symlink_to(tmp_path / "key")
        assert rule_of(lambda: filing.read(root, "a.txt", sha256=known)) == "file-not-regular"


def test_the_very_file_that_was_looked_at_is_read_whatever_its_name_leads_to_then(directory):
    (directory / "a.txt").write_bytes(b"hello")
    with filing.opened(directory) as root, filing.opened_file(root, "a.txt") as descriptor:
        (directory / "a.txt").unlink()
        (directory / "a.txt").write_bytes(b"jello")

        assert os.read(descriptor, 10) == b"hello"


def test_a_file_over_its_cap_is_refused_and_one_at_it_is_not(directory, monkeypatch):
    monkeypatch.setattr(filing, "MAX_FILE_BYTES", 100)
    (directory / "most").write_bytes(b"x" * 100)
    (directory / "more").write_bytes(b"x" * 101)

    assert look(directory, "most") == 100
    assert rule_of(lambda: look(directory, "more")) == "file-too-large"


def test_a_file_that_grows_while_it_is_read_is_refused_and_not_cut(directory, monkeypatch):
    monkeypatch.setattr(filing, "MAX_FILE_BYTES", 100)
    (directory / "a").write_bytes(b"x" * 100)
    with filing.opened(directory) as root, filing.opened_file(root, "a") as descriptor:
        with (directory / "a").open("ab") as more:
            more.write(b"y")

        assert rule_of(lambda: list(filing._chunks(descriptor, "a"))) == "file-too-large"


def test_everything_in_the_directory_counts(directory):
    (directory / "deep" / "er").mkdir(parents=True)
    (directory / "deep" / "er" / "a").write_bytes(b"x" * 1000)
    os.link(directory / "deep" / "er" / "a", directory / "again")
    with (directory / "sparse").open("wb") as sparse:
        sparse.truncate(50_000_000)
    (directory / "hidden").mkdir()
    (directory / "hidden" / ".more").write_bytes(b"x" * 7)

    assert measure(directory) == 50_000_000 + 2 * 1000 + 7


def test_above_the_cap_of_the_whole_it_is_refused_sparse_or_not(directory):
    with (directory / "sparse").open("wb") as sparse:
        sparse.truncate(filing.MAX_DIRECTORY_BYTES)
    assert measure(directory) == filing.MAX_DIRECTORY_BYTES

    (directory / "one-more").write_bytes(b"x")
    assert rule_of(lambda: measure(directory)) == "directory-too-large"


def test_a_link_to_something_large_outside_counts_as_a_link(directory, tmp_path):
    with (tmp_path / "large").open("wb") as large:
        large.truncate(filing.MAX_DIRECTORY_BYTES + 1)
    (directory / "link").symlink_to(tmp_path / "large")
    (directory / "loop").symlink_to(directory)

    assert measure(directory) < 1000


def test_more_or_deeper_entries_than_anybody_needs_are_refused(directory, monkeypatch):
    monkeypatch.setattr(filing, "MAX_ENTRIES", 5)
    for number in range(5):
        (directory / str(number)).touch()
    assert measure(directory) == 0
    (directory / "one-more").touch()
    assert rule_of(lambda: measure(directory)) == "too-many-entries"

    filing.empty(directory)
    nest(directory, 40)
    monkeypatch.undo()
    assert rule_of(lambda: measure(directory)) == "path-too-deep"


def nest(directory: Path, levels: int) -> None:
    """Directories inside each other, deeper than any path can say."""
    current = os.open(directory, os.O_RDONLY)
    for _ in range(levels):
        os.mkdir("x" * 100, dir_fd=current)
        below = os.open("x" * 100, os.O_RDONLY, dir_fd=current)
        os.close(current)
        current = below
    os.close(os.open("at-the-bottom", os.O_CREAT, 0o600, dir_fd=current))
    os.close(current)


def test_a_tree_deeper_than_any_path_is_removed_whole(directory):
    nest(directory, 60)
    (directory / "a").write_bytes(b"x" * 10)

    assert filing.remove(directory) == 10
    assert list(directory.parent.iterdir()) == []


def test_removal_follows_no_link_and_needs_no_permission_of_the_program(directory, tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "kept").write_bytes(b"kept")
    (directory / "way").symlink_to(outside)
    locked = directory / "locked"
    (locked / "in").mkdir(parents=True)
    (locked / "in" / "file").write_bytes(b"x")
    (locked / "in").chmod(0)
    locked.chmod(0)

    filing.remove(directory)

    assert not directory.exists()
    assert (outside / "kept").read_bytes() == b"kept"


def test_a_removal_without_a_directory_removes_nothing(tmp_path):
    assert filing.remove(tmp_path / "none") is None


def test_a_link_in_the_place_of_the_directory_is_not_followed(directory, tmp_path):
    (directory / "kept").write_bytes(b"kept")
    link = tmp_path / "pipelines" / "two"
    link.symlink_to(directory)

    with pytest.raises(FilesRefused):
        filing.remove(link)
    assert (directory / "kept").read_bytes() == b"kept"
