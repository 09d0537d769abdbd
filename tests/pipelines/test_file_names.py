"""A name that came with mail is text; what lies on disk has a name of ours."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import settings as rounds
from hypothesis import strategies as st

from pipelines import file_names
from pipelines.exceptions import FilesRefused
from pipelines.types import FileRule

PAGE = Path(__file__).resolve().parents[2] / "docs" / "pipelines.md"
HERE = Path("/var/pipelines/one")


@pytest.mark.fault("attachments-01", "attachments-03", "exec-02", "sister-25")
@pytest.mark.parametrize(
    ("given", "path"),
    [
        ("report.pdf", "02-report.pdf"),
        ("Q3 report.pdf", "02-Q3_report.pdf"),
        ("../../../etc/cron.d/x", "02-etc_cron.d_x"),
        ("..\\..\\boot.ini", "02-boot.ini"),
        ("../foo", "02-foo"),
        ("/etc/passwd", "02-etc_passwd"),
        ("a\0b.txt", "02-a_b.txt"),
        ("a\r\nBcc: eve@example.org", "02-a_Bcc_eve@example.org"),
        ("--output=x", "02-output=x"),
        (".bashrc", "02-bashrc"),
        ("rapport-été.pdf", "02-rapport-ete.pdf"),
        ("日本語.pdf", "02-part.pdf"),
        ("evil\u202egpj.exe", "02-evil_gpj.exe"),
        ("", "02-part.pdf"),
        ("...", "02-part.pdf"),
        ("x" * 500 + ".pdf", "02-" + "x" * 90 + ".pdf"),
    ],
)
def test_an_attachment_lies_under_a_name_of_ours(given, path):
    assert file_names.of_attachment(given, "application/pdf", 2)[1] == path


def test_people_read_the_name_as_it_was_meant():
    shown, path = file_names.of_attachment("rapport été.pdf", "application/pdf", 3)

    assert (shown, path) == ("03-rapport été.pdf", "03-rapport_ete.pdf")


def test_two_of_the_same_name_are_two():
    first, second = (file_names.of_attachment("a.txt", "text/plain", index) for index in (2, 3))

    assert first[1] != second[1]


@given(st.text(max_size=300), st.integers(1, 1000))
@rounds(max_examples=100, deadline=None)
def test_whatever_a_mail_calls_it_the_path_is_one_plain_segment(name, index):
    shown, path = file_names.of_attachment(name, "text/plain", index)

    assert file_names.segments(path) == (path,)
    assert path.isascii()
    assert path[0].isdigit()
    assert len(path) <= 110
    assert file_names.shown(shown) == shown
    assert not {"/", "\\", "\0", "\n", "\r", '"'} & set(shown)


@pytest.mark.fault("sister-49")
@pytest.mark.parametrize(
    ("path", "rule"),
    [
        ("", "path-empty"),
        ("/etc/passwd", "path-absolute"),
        ("/var/pipelines/one", "path-absolute"),
        ("/var/pipelines/one-more/a", "path-absolute"),
        ("/var/pipelines/one/../two/a", "path-not-plain"),
        ("/var/pipelines/one//etc/passwd", "path-absolute"),
        ("../two/a", "path-not-plain"),
        ("a/../../b", "path-not-plain"),
        ("..", "path-not-plain"),
        ("a/./b", "path-not-plain"),
        ("a//b", "path-not-plain"),
        ("a/", "path-not-plain"),
        ("a\0b", "path-control"),
        ("a\nb", "path-control"),
        ("a\ud800", "path-control"),
        ("a/" * 40 + "b", "path-too-deep"),
        ("x" * 1025, "path-too-long"),
    ],
)
def test_a_path_that_could_lead_anywhere_else_is_refused(path, rule):
    with pytest.raises(FilesRefused) as refused:
        file_names.relative(path, HERE)

    assert refused.value.rule == rule


@pytest.mark.parametrize("path", ["chart.png", "out/chart.png", "-x", "é.txt", "a b", "..."])
def test_a_plain_path_comes_back_whichever_way_it_was_written(path):
    assert file_names.relative(path, HERE) == path
    assert file_names.relative(f"{HERE}/{path}", HERE) == path


@given(st.text(max_size=60))
@rounds(max_examples=120, deadline=None)
def test_what_passes_never_leaves_the_directory(path):
    try:
        inside = file_names.relative(path, HERE)
    except FilesRefused:
        return
    meant = (HERE / inside).as_posix()
    assert Path(meant).parts[: len(HERE.parts)] == HERE.parts
    assert ".." not in Path(meant).parts
    assert meant == f"{HERE}/{inside}"


@pytest.mark.parametrize(
    ("given", "path", "expected"),
    [
        ("image/PNG", "a.txt", "image/png"),
        (None, "a.png", "image/png"),
        ("image/png\r\nBcc: x", "a.txt", "text/plain"),
        ("nonsense", "a", "application/octet-stream"),
        (7, "a.json", "application/json"),
    ],
)
def test_a_media_type_is_one_or_is_told_by_the_ending(given, path, expected):
    assert file_names.media_type(given, path) == expected


def test_every_rule_is_told_to_whoever_writes_commands():
    page = PAGE.read_text(encoding="utf-8")

    assert [rule for rule in FileRule if f"`{rule}`" not in page] == []
