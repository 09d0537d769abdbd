"""What the pages say: each is opened as an operator would, and read."""

from __future__ import annotations

from datetime import UTC, timedelta

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from mail.models import Account, Message
from pipelines.models import Pipeline
from tests.console.sample import Sample

pytestmark = pytest.mark.one_database


def page(client: Client, name: str, *args: object) -> str:
    answer = client.get(reverse(f"admin:{name}", args=args))
    assert answer.status_code == 200
    return answer.content.decode()


def test_the_index_lists_everything_that_waits_oldest_first(console: Client, sample: Sample):
    html = page(console, "index")
    kinds = [part.split('"')[0] for part in html.split('data-need="')[1:]]
    assert set(kinds) == {
        "held-reply",
        "held-mail",
        "interrupted-pipeline",
        "unknown-effect",
        "failing-account",
        "unsigned-command",
        "expiring-key",
        "tool-call",
        "stuck-mission",
        "budget-reached",
        "sandbox-missing",
    }
    assert kinds.index("unknown-effect") < kinds.index("interrupted-pipeline")
    assert kinds.index("interrupted-pipeline") < kinds.index("held-reply")


@pytest.mark.parametrize(("minutes", "asks"), [(11, True), (9, False)])
def test_admitted_mail_that_nobody_begins_asks_for_the_operator(
    console: Client, sample: Sample, minutes: int, asks: bool
):
    Message.objects.filter(pk=sample.bad_signature.pk).update(
        execution=Message.Execution.DUE,
        received_at=timezone.now() - timedelta(minutes=minutes),
    )
    assert ('data-need="stuck-mail"' in page(console, "index")) is asks


def test_the_index_shows_its_plots_as_tables_too(console: Client, sample: Sample):
    html = page(console, "index")
    assert html.count('<canvas class="chart"') == 3
    assert html.count("The same as a table") == 3


def test_an_empty_installation_says_what_to_do_first(console: Client):
    html = page(console, "index")
    assert "No mail has arrived yet" in html
    assert reverse("admin:mail_account_add") in html


def test_an_empty_list_says_what_to_do_next(console: Client):
    assert "Without one nothing is planned" in page(console, "pipelines_rule_changelist")
    assert "Add an account" in page(console, "mail_message_changelist")


def test_the_message_with_the_bad_signature_says_why(console: Client, sample: Sample):
    html = page(console, "mail_message_change", sample.bad_signature.pk)
    assert "The signature does not match the text" in html
    assert "BADSIG" in html and "trust-too-low" in html
    assert "Why did this start no work?" in html


def test_the_text_of_a_stranger_is_covered_and_can_be_revealed(console: Client, sample: Sample):
    html = page(console, "mail_message_change", sample.stranger.pk)
    assert "You have been selected" not in html and "Click here" not in html
    assert reverse("admin:mail_message_reveal", args=[sample.stranger.pk]) in html


def test_held_mail_that_was_seen_may_be_left_as_it_is(console: Client, sample: Sample):
    url = reverse("admin:mail_message_set_aside_sender", args=[sample.stranger.pk])
    assert url in page(console, "mail_message_change", sample.stranger.pk)
    console.post(url)
    html = page(console, "mail_message_change", sample.stranger.pk)
    assert "Left as it is by a person" in html and url not in html


def test_a_revealed_message_shows_its_text(console: Client, sample: Sample):
    console.post(reverse("admin:mail_message_reveal", args=[sample.stranger.pk]))
    assert "Click here" in page(console, "mail_message_change", sample.stranger.pk)
    assert "reveal" in page(console, "mail_message_change", sample.stranger.pk)


def test_lists_cover_the_subjects_that_pages_cover(console: Client, sample: Sample):
    html = page(console, "mail_message_changelist")
    assert "You have been selected" not in html
    assert "[redacted — no read permission]" in html


@pytest.mark.parametrize(("words", "found"), [("selected", False), ("Minutes", True)])
def test_a_search_never_finds_covered_text(
    console: Client, sample: Sample, words: str, found: bool
):
    answer = console.get(reverse("admin:mail_message_changelist"), {"q": words})
    assert (answer.context["cl"].result_count > 0) is found


def test_the_message_that_became_work_leads_to_its_pipeline(console: Client, sample: Sample):
    html = page(console, "mail_message_change", sample.executed.pk)
    assert reverse("admin:pipelines_pipeline_change", args=[sample.completed.pk]) in html
    assert "Why did this start no work?" not in html


def test_quotes_are_apart_from_new_text(console: Client, sample: Sample):
    html = page(console, "mail_message_change", sample.html.pk)
    new, _, quoted = html.partition("Quoted from earlier mail")
    assert "the minutes are attached" in new
    assert "Could you send them?" in quoted and "Could you send them?" not in new


def test_the_approval_page_shows_every_field_beside_what_it_answers(
    console: Client, sample: Sample
):
    html = page(console, "approvals_approval_change", sample.approval.pk)
    for label in ("From", "To", "Cc", "Bcc", "Subject", "Message-ID", "In-Reply-To", "References"):
        assert f"<dt>{label}</dt>" in html
    assert "I have filed them." in html and "the minutes are attached" in html
    assert f'name="digest" value="{sample.approval.digest}"' in html


def test_an_unknown_effect_is_explained(console: Client, sample: Sample):
    html = page(console, "approvals_effect_change", sample.unknown.pk)
    assert "Nobody can say whether it arrived" in html
    assert reverse("admin:approvals_effect_acknowledge", args=[sample.unknown.pk]) in html


def test_the_pipeline_page_shows_argv_output_and_reply(console: Client, sample: Sample):
    html = page(console, "pipelines_pipeline_change", sample.completed.pk)
    assert "<code>/usr/bin/wc</code><code>-w</code>" in html
    assert "exit 0" in html and "Re: Numbers for November" in html


def test_an_interrupted_pipeline_says_that_nothing_is_repeated(console: Client, sample: Sample):
    html = page(console, "pipelines_pipeline_change", sample.interrupted.pk)
    assert "is not started again by itself" in html


def test_a_page_shows_text_from_mail_as_text(console: Client, sample: Sample):
    evil = "<script>alert(1)</script>"
    Message.objects.filter(pk=sample.bad_signature.pk).update(
        subject=evil, text=evil, sender_name=evil
    )
    html = page(console, "mail_message_change", sample.bad_signature.pk)
    assert evil not in html and "&lt;script&gt;alert(1)&lt;/script&gt;" in html


@pytest.mark.fault("pgp-verify-16")
def test_a_badge_drawn_inside_a_mail_stays_inside_its_frame(console: Client, sample: Sample):
    html = page(console, "mail_message_change", sample.html.pk)
    assert '<iframe class="cs-frame" sandbox=""' in html
    assert "<h2>Minutes</h2>" not in html


def test_an_unknown_id_leads_back_to_the_index(console: Client):
    answer = console.get(reverse("admin:mail_message_change", args=[999_999]))
    assert answer.status_code == 302


def test_a_failure_whose_answer_waits_is_not_called_done(console: Client, sample: Sample):
    Pipeline.objects.filter(pk=sample.completed.pk).update(
        status="waiting_approval", refused_rule="unknown-command", failing=True, error="nosuch: …"
    )
    html = page(console, "pipelines_pipeline_change", sample.completed.pk)
    assert "No work was planned" in html and "nosuch: …" in html
    assert "The reply that says so waits for you." in html
    assert "The work is done" not in html


@pytest.mark.invariant(5)
def test_the_page_of_an_account_says_when_it_last_succeeded(console: Client, sample: Sample):
    for name, words in (("grace-inbox", "Last success: "), ("ada-inbox", "last success ")):
        account = Account.objects.get(name=name)
        html = page(console, "mail_account_change", account.pk)
        assert account.last_success_at is not None
        shown = html.split(words, 1)[1][:200]
        assert account.last_success_at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M") in shown


def test_the_index_names_the_subject_of_held_mail_that_may_be_read(console: Client, sample: Sample):
    html = page(console, "index")
    assert sample.bad_signature.subject in html
    assert sample.stranger.subject not in html


def test_lists_write_times_as_pages_do(console: Client, sample: Sample):
    html = page(console, "pipelines_pipeline_changelist")
    assert f"{timezone.localtime(sample.completed.created_at):%Y, %H:%M}" in html
    assert "p.m." not in html and "a.m." not in html
