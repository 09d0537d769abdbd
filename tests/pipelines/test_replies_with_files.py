"""The answer carries the pipe's files, exactly as they were looked at, or it is the fixed text."""

from __future__ import annotations

from email import message_from_bytes
from email.policy import default
from pathlib import Path

import pytest

from approvals.models import Approval
from approvals.services import approvals, effects, holds
from guards.models import Identity
from mail.gateways import blobs
from mail.services import enclosures
from pipelines.models import Pipeline
from pipelines.services import execution, files, intake, replies, rules
from tests.pipelines.factories import OPERATOR, Desk, script

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def pipelines_directory(settings, tmp_path: Path) -> None:
    settings.PIPELINES_DIR = tmp_path / "pipelines"


@pytest.fixture(autouse=True)
def makes_a_chart(owner, scripts) -> None:
    answer = '{"data": {"title": "Q3"}, "files": [{"path": "c.png", "name": "chart été.png"}]}'
    made = script(scripts, "made", f"printf png > c.png; printf '{answer}'")
    owner.install("chart", binary=made, files=True, output_schema={"type": "object"})


def run(desk: Desk, *commands: str) -> Pipeline:
    calls = [{"command": name} for name in commands]
    rules.save_rule(name="all", match="please", calls=calls, by=OPERATOR)
    pipeline = intake.take_in(message_id=desk.message("please do it").pk)
    assert pipeline is not None
    return execution.run(pipeline_id=pipeline.pk)


def attached(payload: bytes) -> list[tuple[str | None, str, bytes]]:
    letter = message_from_bytes(payload, policy=default)
    return [
        (part.get_filename(), part.get_content_type(), part.get_payload(decode=True))
        for part in letter.iter_attachments()
    ]


@pytest.mark.one_database
def test_the_answer_carries_the_data_and_the_files(desk, server):
    pipeline = run(desk, "chart")

    assert pipeline.status == "completed", pipeline.error
    (sent,) = server.sent
    assert b'"title": "Q3"' in sent.payload
    assert attached(sent.payload) == [("chart été.png", "image/png", b"png")]


@pytest.mark.one_database
def test_a_failure_text_carries_none(desk, owner, server, scripts):
    owner.install("broken", binary=script(scripts, "broken", "exit 1"))

    run(desk, "chart", "broken")

    assert attached(server.sent[0].payload) == []
    assert b"could not be completed" in server.sent[0].payload


@pytest.mark.one_database
@pytest.mark.fault("sister-25")
@pytest.mark.parametrize(
    ("lines", "rule"),
    [
        ("printf gnp > c.png", "file-changed"),
        ("rm c.png", "file-missing"),
        ("rm c.png; ln -s /etc/hostname c.png", "file-not-regular"),
        ("truncate -s 25000001 c.png", "file-too-large"),
    ],
)
def test_a_file_that_is_not_what_was_looked_at_makes_it_the_fixed_text(
    desk, owner, server, scripts, lines, rule
):
    spoil = script(scripts, "spoil", lines)
    owner.install("spoil", binary=spoil, mode="passthrough", output_schema=...)

    pipeline = run(desk, "chart", "spoil")

    assert pipeline.status == "failed"
    assert pipeline.error.startswith(f"reply: {rule}: ")
    (sent,) = server.sent
    assert b"could not be completed" in sent.payload
    assert attached(sent.payload) == []
    assert b"c.png" not in sent.payload


@pytest.mark.one_database
def test_more_than_a_mail_carries_makes_it_the_fixed_text(desk, server, monkeypatch):
    monkeypatch.setattr(enclosures, "MAX_BYTES", 2)

    pipeline = run(desk, "chart")

    assert pipeline.error.startswith("reply: files-too-large: ")
    assert b"could not be completed" in server.sent[0].payload
    assert replies.reply_of(pipeline.pk).status == "accepted"


@pytest.mark.one_database
def test_a_store_that_takes_nothing_makes_it_the_fixed_text(desk, owner, server, scripts, tmp_path):
    store, aside = Path(blobs.storages["mail"].location), tmp_path / "aside"
    breaks = script(scripts, "breaks", f"mv {store} {aside}; touch {store}")
    owner.install("breaks", binary=breaks, mode="passthrough", output_schema=...)
    try:
        pipeline = run(desk, "chart", "breaks")
    finally:
        store.unlink()
        aside.rename(store)

    assert pipeline.error.startswith("reply: the store took no files")
    assert b"could not be completed" in server.sent[0].payload


@pytest.mark.one_database
def test_a_held_answer_leaves_with_its_files_though_the_directory_has_gone(desk, server):
    Identity.objects.filter(pk=desk.identity.pk).update(reply_policy="approve")
    pipeline = run(desk, "chart")
    reply = replies.reply_of(pipeline.pk)
    for file in files.directory_of(pipeline.pk).iterdir():
        file.unlink()

    approval = holds.open_for_review(hold_id=reply.hold_id, by=OPERATOR)
    effect = approvals.approve(
        approval_id=approval.pk, by=OPERATOR, via=Approval.Via.CONSOLE, digest=approval.digest
    )
    effects.dispatch(effect_id=effect.pk)

    assert attached(server.sent[0].payload) == [("chart été.png", "image/png", b"png")]
