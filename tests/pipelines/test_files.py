"""Attachments and files that stages make: handed on by the pipe, looked at both ways, removed."""

from __future__ import annotations

import json
import os
from email.message import EmailMessage
from email.policy import SMTP
from pathlib import Path
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as rounds
from hypothesis import strategies as st

from mail import selectors as mail
from mail.mime import PARSER_VERSION
from pipelines import file_names, filing, specification
from pipelines.exceptions import FilesRefused, OutputInvalid
from pipelines.models import Pipeline
from pipelines.services import execution, files, intake, rules
from tests.keys import Key, sign_detached
from tests.pipelines.factories import OPERATOR, Desk, MessageFactory, cli, script

pytestmark = pytest.mark.django_db

OBJECT = {"type": "object"}
PDF = b"%PDF-1.7\n" + bytes(range(256)) * 4

#: A program that answers with what a test has written beside it.
SAY = 'cat "$(dirname "$0")/answer"'


@pytest.fixture(autouse=True)
def pipelines_directory(settings, tmp_path: Path) -> Path:
    settings.PIPELINES_DIR = tmp_path / "pipelines"
    return settings.PIPELINES_DIR


def signed_mail(desk: Desk, text: str, *attachments: tuple[str, bytes], key: Key | None = None):
    """A PGP/MIME message of the requester with attachments inside what is signed."""
    part = EmailMessage(policy=SMTP)
    part["X-Number"] = str(uuid4())  # the same signed bytes start work once, ever
    part.set_content(f"@{desk.identity.handle}\n{text}\n")
    for name, content in attachments:
        part.add_attachment(content, maintype="application", subtype="pdf", filename=name)
    payload = part.as_bytes()
    head = (
        f"From: {desk.requester.email}\r\nTo: {desk.identity.email}\r\nSubject: A request\r\n"
        f"Message-ID: <{uuid4()}@example.org>\r\nMIME-Version: 1.0\r\n"
        'Content-Type: multipart/signed; boundary="bb"; micalg=pgp-sha256;\r\n'
        ' protocol="application/pgp-signature"\r\n\r\n'
    ).encode()
    signature = sign_detached(key or desk.requester, payload)
    middle = b"\r\n--bb\r\nContent-Type: application/pgp-signature\r\n\r\n"
    return head + b"--bb\r\n" + payload + middle + signature + b"\r\n--bb--\r\n"


def run(desk: Desk, *commands: str, attachments=(("report.pdf", PDF),)) -> Pipeline:
    calls = [{"command": name} for name in commands]
    rules.save_rule(name="all", match="please", calls=calls, by=OPERATOR)
    raw = signed_mail(desk, "please do it", *attachments)
    pipeline = intake.take_in(message_id=desk.message("", raw=raw).pk)
    assert pipeline is not None
    return execution.run(pipeline_id=pipeline.pk)


def answering(scripts: Path, answer: object, lines: str = "") -> str:
    """A program that does `lines` in its working directory and then writes that answer."""
    written = answer if isinstance(answer, str) else json.dumps(answer)
    (scripts / "answer").write_text(written)
    return script(scripts, "program", f"{lines}\n{SAY}")


def error_of(pipeline: Pipeline) -> str:
    assert pipeline.failing
    return pipeline.stages.exclude(command="reply").get(status="failed").error


@pytest.mark.one_database
def test_an_attachment_lies_in_the_directory_and_stands_in_the_pipe(desk, owner, server):
    owner.install("see", binary="cat", mode="passthrough", output_schema=...)

    pipeline = run(desk, "see")

    assert pipeline.status == "completed", pipeline.error
    seen = json.loads(pipeline.stages.get(command="see").output)
    place = files.directory_of(pipeline.pk)
    assert seen["files"] == [
        {
            "name": "02-report.pdf",
            "path": f"{place}/02-report.pdf",
            "mime_type": "application/pdf",
            "size": len(PDF),
            "origin": "attachment",
        }
    ]
    assert (place / "02-report.pdf").read_bytes() == PDF
    assert place.stat().st_mode & 0o777 == 0o700
    assert (place / "02-report.pdf").stat().st_mode & 0o777 == 0o600
    assert pipeline.pipe["files"][0]["path"] == "02-report.pdf"


@pytest.mark.one_database
@pytest.mark.fault("attachments-01", "attachments-03", "exec-02", "sister-25")
def test_hostile_names_are_text_and_the_files_stay_below_the_directory(desk, owner, server):
    owner.install("see", binary="cat", mode="passthrough", output_schema=...)
    hostile = ["../../../../tmp/x", "--output=x", "a\x00b.pdf", "same.pdf", "same.pdf", "é" * 300]

    pipeline = run(desk, "see", attachments=[(name, PDF) for name in hostile])

    place = files.directory_of(pipeline.pk)
    paths = [entry["path"] for entry in pipeline.pipe["files"]]
    assert len(set(paths)) == len(hostile)
    assert sorted(one.name for one in place.iterdir()) == sorted(paths)
    assert all(path[:2].isdigit() and path.isascii() for path in paths)
    assert [entry["size"] for entry in pipeline.pipe["files"]] == [len(PDF)] * len(hostile)


@pytest.mark.one_database
def test_what_stands_outside_of_the_signature_is_no_attachment(desk, owner, server):
    raw = signed_mail(desk, "please do it", ("inside.pdf", PDF))
    outside = (
        b"--oo\r\n" + b"Content-Type: application/pdf\r\n"
        b'Content-Disposition: attachment; filename="outside.pdf"\r\n\r\nx\r\n--oo--\r\n'
    )
    message = MessageFactory(raw=raw.replace(b"--bb--\r\n", b"--bb--\r\n" + outside))

    assert [one.name for one in mail.attachments(message)] == ["inside.pdf"]


def test_a_program_makes_a_file_and_the_pipe_holds_it(desk, owner, server, scripts):
    answer = {
        "data": {"title": "Q3"},
        "files": [{"path": "chart.png", "size": 1, "origin": "attachment"}],
    }
    made = answering(scripts, answer, "printf png > chart.png")
    owner.install("chart", binary=made, files=True, output_schema=OBJECT)

    pipeline = run(desk, "chart")

    entry = pipeline.pipe["files"][0]
    assert pipeline.pipe["data"] == {"title": "Q3"}
    assert {key: entry[key] for key in ("name", "path", "mime_type", "size", "origin")} == {
        "name": "chart.png",
        "path": "chart.png",
        "mime_type": "image/png",
        "size": 3,
        "origin": "stage-1",
    }


@pytest.mark.one_database
def test_a_program_that_echoes_the_pipe_hands_its_files_on(desk, owner, server):
    owner.install("echo-pipe", binary="cat", files=True, output_schema=OBJECT)
    owner.install("again", binary="cat", files=True, output_schema=OBJECT)

    pipeline = run(desk, "echo-pipe", "again")

    (entry,) = pipeline.pipe["files"]
    assert (entry["path"], entry["origin"]) == ("02-report.pdf", "attachment")


@pytest.mark.one_database
def test_a_written_over_attachment_is_told_from_the_mails_own(desk, owner, server, scripts):
    answer = {"data": {}, "files": [{"path": "02-report.pdf", "origin": "attachment"}]}
    made = answering(scripts, answer, "printf other > 02-report.pdf")
    owner.install("over", binary=made, files=True, output_schema=OBJECT)

    (entry,) = run(desk, "over").pipe["files"]

    assert (entry["origin"], entry["size"]) == ("stage-1", 5)


@pytest.mark.one_database
@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"mode": "passthrough", "output_schema": ...}, ["02-report.pdf"]),
        ({"output_schema": "text"}, []),
    ],
)
def test_files_pass_through_or_end_with_a_stage_that_does_not_say_them(
    desk, owner, server, fields, expected
):
    owner.install("stage", fixed_args=["ok"], **fields)

    assert [entry["path"] for entry in run(desk, "stage").pipe["files"]] == expected


@pytest.mark.one_database
def test_a_stage_that_returns_files_and_leaves_them_out_drops_them(desk, owner, server, scripts):
    made = answering(scripts, {"data": {"a": 1}})
    owner.install("drops", binary=made, files=True, output_schema=OBJECT)

    pipeline = run(desk, "drops")

    assert (pipeline.status, pipeline.pipe) == ("completed", {"data": {"a": 1}, "files": []})


@pytest.mark.one_database
@pytest.mark.fault("attachments-03", "sister-25")
def test_a_stage_that_names_a_file_outside_fails_and_nothing_of_it_leaves(
    desk, owner, server, scripts
):
    answer = {"data": {}, "files": [{"path": "link"}]}
    made = answering(scripts, answer, "ln -s /etc/hostname link")
    owner.install("leak", binary=made, files=True, output_schema=OBJECT)

    pipeline = run(desk, "leak")

    assert error_of(pipeline).startswith("file-not-regular: ")
    assert b"could not be completed" in server.sent[0].payload


@pytest.mark.one_database
def test_what_lies_in_the_directory_is_nobodys_configuration(desk, owner, server, scripts):
    owner.install("tells", binary=script(scripts, "tells", 'printf "%s %s" "$HOME" "$PWD"'))

    pipeline = run(desk, "tells", attachments=())

    place = files.directory_of(pipeline.pk)
    assert pipeline.pipe["data"] == f"/nonexistent {place}"


def after(directory: Path, output: object) -> dict:
    """What the pipe is after a stage that returns files has written that."""
    spec = specification.read(cli(files=True, output_schema=OBJECT))
    before = {"data": {}, "files": []}
    return files.after(spec, before, json.dumps(output).encode(), directory, 1)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A pipeline's directory with one file, and a secret beside it."""
    made = tmp_path / "pipelines" / "one"
    filing.make(made)
    (made / "a").write_bytes(b"x")
    (made.parent / "secret").write_text("secret")
    return made


def sparse(path: Path, size: int) -> None:
    with path.open("wb") as file:
        file.truncate(size)


@pytest.mark.one_database
@pytest.mark.fault("attachments-03", "sister-25")
@pytest.mark.parametrize(
    ("path", "lay", "rule"),
    [
        ("../secret", None, "path-not-plain"),
        ("/etc/passwd", None, "path-absolute"),
        ("b/../../secret", lambda here: (here / "b").mkdir(), "path-not-plain"),
        ("", None, "path-empty"),
        (7, None, "path-missing"),
        ("none.txt", None, "file-missing"),
        ("link", lambda here: (here / "link").symlink_to("/etc/passwd"), "file-not-regular"),
        ("way/passwd", lambda here: (here / "way").symlink_to("/etc"), "file-not-regular"),
        ("fifo", lambda here: os.mkfifo(here / "fifo"), "file-not-regular"),
        ("folder", lambda here: (here / "folder").mkdir(), "file-not-regular"),
        ("hard", lambda here: os.link(here.parent / "secret", here / "hard"), "file-linked"),
        ("big", lambda here: sparse(here / "big", 25_000_001), "file-too-large"),
        ("a", lambda here: sparse(here / ".hidden", 100_000_000), "directory-too-large"),
    ],
)
def test_a_file_that_may_not_be_where_it_is_said_to_be_is_refused(place, path, lay, rule):
    if lay is not None:
        lay(place)

    with pytest.raises(FilesRefused) as refused:
        after(place, {"data": {}, "files": [{"path": path}]})

    assert refused.value.rule == rule


_SEGMENTS = st.sampled_from(["a", "b", "..", ".", "", "way", "link", "secret", "-x", "\0", "é"])
_PATHS = st.lists(_SEGMENTS, max_size=4).map("/".join)
_CLAIMS = st.fixed_dictionaries(
    {"path": st.one_of(_PATHS, st.integers(), st.none())},
    optional={"name": st.text(max_size=20), "mime_type": st.text(max_size=20), "size": st.floats()},
)


@pytest.mark.one_database
@given(st.lists(_CLAIMS, max_size=3))
@rounds(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_whatever_a_stage_claims_only_plain_files_of_the_directory_are_taken(place, claims):
    for name, target in (("way", "/etc"), ("link", "/etc/passwd")):
        if not (place / name).is_symlink():
            (place / name).symlink_to(target)
    try:
        pipe = after(place, {"data": {}, "files": claims})
    except (FilesRefused, OutputInvalid):
        return
    assert {entry["path"] for entry in pipe["files"]} <= {"a"}
    assert all(file_names.shown(entry["name"]) == entry["name"] for entry in pipe["files"])


@pytest.mark.one_database
@pytest.mark.parametrize("path", ["a", "{place}/a"])
def test_a_file_that_may_is_taken_whichever_way_it_is_written(place, path):
    pipe = after(place, {"data": {}, "files": [{"path": path.format(place=place)}]})

    assert [entry["path"] for entry in pipe["files"]] == ["a"]


@pytest.mark.one_database
def test_a_stage_that_returns_no_files_fills_no_more_than_its_share(desk, owner, server, scripts):
    fills = script(scripts, "fills", "truncate -s 99999999 x; printf 1 > y; printf {}")
    more = script(scripts, "more", "printf 2 >> y; printf {}")
    owner.install("fills", binary=fills, mode="passthrough", output_schema=OBJECT)
    owner.install("more", binary=more, mode="passthrough", output_schema=OBJECT)

    within = run(desk, "fills", attachments=())
    above = run(desk, "fills", "more", attachments=())

    assert within.status == "completed", within.error
    assert error_of(above).startswith("directory-too-large: ")


@pytest.mark.one_database
@pytest.mark.parametrize(
    ("answer", "sentence"),
    [
        ([], "the output is"),
        ({"files": []}, "the output is"),
        ({"data": {}, "file": []}, "'file'"),
        ({"data": {}, "files": {}}, "a list of objects"),
        ({"data": {}, "files": ["a"]}, "a list of objects"),
        ({"data": "text", "files": []}, "not of type 'object'"),
        ({"data": {}, "files": [{"path": "a"}, {"path": "./a"}]}, "path-not-plain"),
        ({"data": {}, "files": [{"path": "a"}, {"path": "a"}]}, "file-twice"),
        ({"data": {}, "files": [{"path": "a"}] * 1001}, "too-many-files"),
    ],
)
def test_an_output_with_files_has_its_exact_form(place, answer, sentence):
    with pytest.raises((OutputInvalid, FilesRefused)) as refused:
        after(place, answer)

    assert sentence in f"{refused.value.rule}: {refused.value.detail}"


@pytest.mark.one_database
def test_a_file_that_is_swapped_before_the_next_stage_fails_it(desk, owner, server, scripts):
    swap = script(scripts, "swap", "rm 02-report.pdf; ln -s /etc/passwd 02-report.pdf")
    owner.install("swap", binary=swap, mode="passthrough", output_schema=...)
    owner.install("see", binary="cat", mode="passthrough", output_schema=...)

    assert error_of(run(desk, "swap", "see")).startswith("file-not-regular: ")


@pytest.mark.one_database
def test_a_path_from_the_pipe_is_one_argument_that_opens(desk, owner, server):
    argument = {"name": "file", "type": "string", "position": 1, "from_pipe": "/files/0/path"}
    owner.install("count", binary="wc", fixed_args=["-c"], args=[argument])

    pipeline = run(desk, "count", attachments=[("--files0-from=x", PDF)])

    assert pipeline.pipe["data"].split()[0] == str(len(PDF)), pipeline.error


@pytest.mark.one_database
def test_attachments_above_a_cap_fail_the_work_and_are_not_written(
    desk, owner, server, monkeypatch
):
    monkeypatch.setattr(filing, "MAX_FILE_BYTES", len(PDF) - 1)
    owner.install("see", binary="cat", mode="passthrough", output_schema=...)

    pipeline = run(desk, "see")

    assert error_of(pipeline).startswith("file-too-large: ")
    assert list(files.directory_of(pipeline.pk).iterdir()) == []


@pytest.mark.one_database
def test_a_directory_that_was_lost_is_filled_again_from_the_mail(desk, owner, server):
    owner.install("see", binary="cat", mode="passthrough", output_schema=...)
    pipeline = run(desk, "see")
    filing.remove(files.directory_of(pipeline.pk))

    assert files.prepare(pipeline=pipeline) == {}  # its row says all there is to say

    assert (files.directory_of(pipeline.pk) / "02-report.pdf").read_bytes() == PDF


@pytest.mark.one_database
@pytest.mark.parametrize(
    ("recorded", "version", "left_out"),
    [
        ([{"is_text": True}], PARSER_VERSION, True),
        ([{"is_text": True}, {"is_attachment": True}], PARSER_VERSION, False),
        ([{"is_text": True}], PARSER_VERSION - 1, False),
        ([], PARSER_VERSION, False),
    ],
)
def test_only_where_this_very_parser_saw_no_attachment_is_the_mail_not_parsed_again(
    desk, owner, server, recorded, version, left_out
):
    message = desk.message("", raw=signed_mail(desk, "please", ("report.pdf", PDF)))
    message.parts.all().delete()
    for part in recorded:
        message.parts.create(path="1", type="text/plain", size=1, **part)
    type(message).objects.filter(pk=message.pk).update(parser_version=version)

    assert mail.has_no_attachments(message.pk) is left_out


@pytest.mark.one_database
def test_what_a_stage_that_was_cut_off_has_written_over_is_not_gone_on_from(desk, owner, server):
    """Of the same size, so that only the bytes tell."""
    owner.install("see", binary="cat", mode="passthrough", output_schema=...)
    pipeline = run(desk, "see")
    pipeline.resumptions = 1
    assert files.prepare(pipeline=pipeline) == {}  # the control

    (files.directory_of(pipeline.pk) / "02-report.pdf").write_bytes(PDF[::-1])

    with pytest.raises(FilesRefused) as refused:
        files.prepare(pipeline=pipeline)
    assert refused.value.rule == "file-changed"
