"""What a person may not read is covered everywhere in the console, by the permissions of now."""

from __future__ import annotations

from collections.abc import Iterator
from io import StringIO

import pytest
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from guards.models import Contact
from guards.services import permissions
from guards.types import Asker, Rwx
from mail.models import Message, Outbound, Thread
from pipelines.models import Pipeline, Stage
from tests.console.sample import Sample, message

OPERATOR = Asker("operator", "olga")


def grant(sample: Sample, address: str, rwx: str) -> None:
    contact, _ = Contact.objects.get_or_create(address=address)
    permissions.grant(
        identity=sample.account.identity, contact=contact, rwx=Rwx.parse(rwx), by=OPERATOR
    )


def text_of(console: Client, address: str) -> str:
    answer = console.get(address)
    assert answer.status_code == 200, address
    return answer.content.decode()


def pages_with_its_subject(row: Message) -> Iterator[str]:
    yield reverse("admin:mail_message_change", args=[row.pk])
    yield reverse("admin:mail_message_changelist")
    yield f"{reverse('admin:mail_message_changelist')}?q=Minutes"


def downloads(row: Message) -> Iterator[str]:
    yield reverse("admin:mail_message_html", args=[row.pk])
    yield reverse("admin:mail_message_raw", args=[row.pk])
    yield reverse("admin:mail_message_part", args=[row.pk, "2"])


@pytest.mark.one_database
def test_withdrawn_r_covers_what_was_readable_before(console: Client, sample: Sample) -> None:
    for address in pages_with_its_subject(sample.html):
        assert "Minutes of the meeting" in text_of(console, address)
    assert [console.get(address).status_code for address in downloads(sample.html)] == [200] * 3
    grant(sample, "bob@partners.example", "---")
    for address in pages_with_its_subject(sample.html):
        assert "Minutes of the meeting" not in text_of(console, address)
    assert [console.get(address).status_code for address in downloads(sample.html)] == [403] * 3


@pytest.mark.one_database
def test_granted_r_uncovers_what_a_stranger_wrote(console: Client, sample: Sample) -> None:
    page = reverse("admin:mail_message_change", args=[sample.stranger.pk])
    assert "You have been selected" not in text_of(console, page)
    grant(sample, "offers@unknown.example", "r--")
    assert "You have been selected" in text_of(console, page)


@pytest.mark.one_database
def test_the_tree_of_a_covered_message_names_no_files(console: Client, sample: Sample) -> None:
    page = reverse("admin:mail_message_change", args=[sample.html.pk])
    assert "plan.pdf" in text_of(console, page)
    grant(sample, "bob@partners.example", "---")
    covered = text_of(console, page)
    assert "application/pdf" in covered
    assert "plan.pdf" not in covered


@pytest.mark.one_database
def test_a_thread_is_called_by_what_may_be_read_of_it(console: Client, sample: Sample) -> None:
    thread = Thread.objects.create(
        account=sample.account,
        root_id="root@unknown.example",
        subject="You have been selected",
        last_at=timezone.now(),
    )
    Message.objects.filter(pk=sample.stranger.pk).update(thread=thread)
    addresses = (
        reverse("admin:mail_thread_changelist"),
        reverse("admin:mail_thread_change", args=[thread.pk]),
    )
    for address in addresses:
        assert "You have been selected" not in text_of(console, address)
    message(
        sample.account,
        70,
        sender="bob@partners.example",
        subject="Is this for us?",
        thread=thread,
        received_at=timezone.now(),
    )
    for address in addresses:
        shown = text_of(console, address)
        assert "Is this for us?" in shown
        assert "You have been selected" not in shown


@pytest.mark.one_database
@pytest.mark.parametrize("pk", [None, 999_999])
def test_who_may_not_see_messages_learns_not_even_which_there_are(
    sample: Sample, pk: int | None
) -> None:
    browser = Client()
    browser.force_login(User.objects.create_user("nina", password="nina-pass-1", is_staff=True))
    row = Message(pk=pk or sample.html.pk)
    assert {browser.get(address).status_code for address in downloads(row)} == {403}


def work_of(row: Message) -> Pipeline:
    """A pipeline whose arguments, outputs, errors and answer hold a word of its mail."""
    pipeline = Pipeline.objects.create(
        message=row,
        identity=row.account.identity,
        requester=row.sender,
        status="failed",
        plan=[{"command": "greet", "args": {"name": "Zoe"}}],
        error="greet: Zoe?",
        finished_at=timezone.now(),
    )
    Stage.objects.create(
        pipeline=pipeline,
        position=1,
        command="greet",
        runner="cli",
        status="failed",
        args={"name": "Zoe"},
        argv=[["/bin/echo", "Zoe"]],
        output="Hello Zoe",
        stderr="no Zoe",
        error="Zoe?",
        exit_code=3,
    )
    Outbound.objects.create(
        account=row.account,
        origin_type="pipelines.pipeline",
        origin_id=str(pipeline.pk),
        to=[row.sender],
        subject="Re: Zoe",
        text="Hello Zoe",
        status="accepted",
    )
    return pipeline


def shell(*arguments: str) -> str:
    out = StringIO()
    call_command("pipeline", *arguments, stdout=out)
    return out.getvalue()


@pytest.mark.one_database
def test_what_work_was_asked_and_what_came_is_covered_with_its_mail(
    console: Client, sample: Sample
) -> None:
    grant(sample, "bob@partners.example", "r-x")
    work = work_of(sample.html)
    pages = [
        reverse("admin:pipelines_pipeline_change", args=[work.pk]),
        reverse("admin:pipelines_stage_change", args=[work.stages.get().pk]),
    ]
    verbs = [("show", str(work.pk)), ("show", str(work.pk), "--json"), ("list",)]

    for address in pages:
        assert "Zoe" in text_of(console, address), address
    assert all("Zoe" in shell(*verb) for verb in verbs)
    assert "Reveal the message" not in text_of(console, pages[0])

    grant(sample, "bob@partners.example", "--x")
    for address in pages:
        covered = text_of(console, address)
        assert "Zoe" not in covered, address
        assert "exit 3" in covered and "greet" in covered
    assert not any("Zoe" in shell(*verb) for verb in verbs)
    assert "Reveal the message" in text_of(console, pages[0])

    Message.objects.filter(pk=sample.html.pk).update(revealed_at=timezone.now())
    for address in pages:
        assert "Zoe" in text_of(console, address), address
    assert all("Zoe" in shell(*verb) for verb in verbs)


@pytest.mark.one_database
def test_so_is_what_a_mission_was_given_and_handed_in(console: Client, sample: Sample) -> None:
    mission = sample.missions.reviewed.missions.get()
    said_by_its_worker = "Two figures in table 3 do not add up"
    page = reverse("admin:pipelines_mission_change", args=[mission.pk])
    pair = reverse("admin:pipelines_pipeline_change", args=[mission.pipeline_id])
    for rwx, seen in (("r-x", True), ("--x", False)):
        grant(sample, sample.missions.reviewed.message.sender, rwx)
        told = StringIO()
        call_command("mission", "show", str(mission.pk), stdout=told)
        for shown in (text_of(console, page), text_of(console, pair), told.getvalue()):
            assert (said_by_its_worker in shown) is seen


@pytest.mark.one_database
def test_a_dry_run_in_the_shell_asks_the_same(sample: Sample) -> None:
    grant(sample, "bob@partners.example", "--x")
    with pytest.raises(CommandError, match="may not be read here"):
        shell("dry-run", str(sample.html.pk))
    grant(sample, "bob@partners.example", "r-x")
    assert "planner" in shell("dry-run", str(sample.html.pk))
