"""The journey of an exact reply as a person goes it: held, opened, read, answered, looked for."""

from __future__ import annotations

import re
from html import unescape

import pytest
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Permission
from django.contrib.messages import get_messages
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from approvals.models import Approval, Effect, Hold, Job, Root
from approvals.services import effects, recovery, roots
from guards.models import Identity
from mail.models import Outbound
from tests.console.test_get_is_safe import state_of_the_house
from tests.mail.gmail.world import ADDRESS, OPERATOR, SENDER, GmailWorld
from tests.servers.google import GoogleServer

pytestmark = [pytest.mark.django_db, pytest.mark.one_database]


@pytest.fixture
def console(world: GmailWorld) -> Client:
    """The operator's browser, in a session of its own."""
    client = Client()
    client.force_login(get_user_model().objects.get(username="ada"))
    return client


def page(client: Client, row: Approval | Effect | Hold) -> str:
    """What a person sees of a row, as HTML."""
    name = f"admin:approvals_{row._meta.model_name}_change"
    answer = client.get(reverse(name, args=[row.pk]))
    assert answer.status_code == 200
    return unescape(answer.content.decode())


def press(client: Client, act: str, key: object, **fields: str) -> list[str]:
    """Press a button; what the console says then."""
    answered = client.post(reverse(f"admin:approvals_{act}", args=[key]), fields)
    assert answered.status_code == 302
    return [str(message) for message in get_messages(answered.wsgi_request)]


def opened(client: Client, draft: Outbound) -> Approval:
    """Open a draft for review, as its button does."""
    assert press(client, "hold_open", draft.hold_id) == []
    return Approval.objects.get(hold=draft.hold_id, state=Approval.State.PENDING)


def approved(client: Client, draft: Outbound) -> Effect:
    """Say yes to it in the same browser."""
    approval = opened(client, draft)
    said = press(client, "approval_approve", approval.pk, digest=approval.digest)
    assert said == ["Approved. It leaves now, exactly once."]
    return Effect.objects.get(approval=approval)


def lost(client: Client, world: GmailWorld, server: GoogleServer) -> Effect:
    """A reply that Google took, and whose answer never came."""
    effect = approved(client, world.draft())
    server.fault("send.reset-after", times=1)
    effects.dispatch(effect_id=effect.pk)
    effect.refresh_from_db()
    assert effect.phase == Effect.Phase.UNKNOWN
    world.google.contacts.clear()
    return effect


def button(html: str, value: str) -> str:
    """The opening tag of an answer's button."""
    return html.split(f'value="{value}"')[1].split(">")[0]


def test_every_field_of_what_would_leave_is_read_before_the_answer(
    world: GmailWorld, console: Client
):
    letter = world.letter(
        "Quarterly figures", Reply_To="elsewhere@evil.example", References="<a@x.example>"
    )
    approval = opened(console, world.draft("They are fine.\n", letter))
    html = page(console, approval)
    gmail = world.stored
    for shown in (
        f"Mailbox, as verified</dt>\n        <dd><div>{ADDRESS}",
        f"To</dt>\n        <dd><div>{SENDER}",
        "Reply-To of the source, not used</dt>\n        <dd><div>elsewhere@evil.example",
        'Bcc</dt>\n        <dd><span class="cs-muted">none',
        "Re: Quarterly figures",
        f'In-Reply-To</dt>\n        <dd><div class="cs-mono">{letter.message_id}',
        "a@x.example",
        "They are fine.",
        f'<span class="cs-mono">{gmail.thread_id}</span> · 1 message',
        "Read at Gmail",
        "Revision",
        "Verified in sender's Sent mailbox",
        approval.digest,
        'id="cs-clock"',
        "valid until",
        "for answers of this session only",
        "<span>read</span> <b>2 of 2</b>",
        "<span>post</span> <b>1</b>",
    ):
        assert shown in html, shown
    assert "disabled" not in button(html, "approve")


def test_enter_in_the_reason_never_says_yes(world: GmailWorld, console: Client):
    html = page(console, opened(console, world.draft()))
    with_reason = next(part for part in html.split("<form") if 'name="reason"' in part)
    assert 'value="approve"' not in with_reason
    assert with_reason.index('value="changes"') < with_reason.index('value="reject"')


@pytest.mark.parametrize(
    ("fault", "reason", "words"),
    [
        ("token.scope-null", "scope_null", "null where the scopes should be"),
        ("token.scope-extra", "scope_extra", "may do more than this connection"),
        ("userinfo.unverified", "email_not_verified", "does not say that the account"),
        ("profile.other-mailbox", "mailbox_differs", "not exactly the verified address"),
        ("thread.eleven-messages", "thread_too_long", "more than 10 messages"),
        ("thread.status-503", "http-503", "Google answered 503"),
    ],
)
def test_a_review_that_cannot_be_opened_says_why_in_a_sentence(
    world: GmailWorld,
    console: Client,
    google_server: GoogleServer,
    fault: str,
    reason: str,
    words: str,
):
    draft = world.draft()
    google_server.fault(fault)
    said = press(console, "hold_open", draft.hold_id)
    assert len(said) == 1
    assert words in said[0]
    assert said[0].endswith(f"Nothing was sent. (rule: {reason})")
    assert not Approval.objects.exists()
    assert world.google.posts == 0
    assert "Open for review" in page(console, Hold.objects.get(pk=draft.hold_id))


def test_without_a_connection_nobody_is_asked_and_the_page_says_so(
    world: GmailWorld, console: Client
):
    draft = world.draft()
    world.revoke("read")
    [said] = press(console, "hold_open", draft.hold_id)
    assert said.endswith("Nothing was sent. (rule: connection_unavailable)")
    assert not world.contacts()


def test_what_drifted_is_named_on_the_page_and_to_a_page_that_is_open(
    world: GmailWorld, console: Client
):
    approval = opened(console, world.draft())
    address = reverse("admin:approvals_approval_standing", args=[approval.pk])
    assert console.get(address).json() == {"state": "pending", "drifted": "", "says": ""}
    Identity.objects.filter(pk=world.account.identity_id).update(is_active=False)
    asked, before = world.contacts(), state_of_the_house()
    told = console.get(address).json()
    assert told["drifted"] == "identity_active"
    assert told["says"] == "Whether the identity is active has changed since this was opened."
    html = page(console, approval)
    assert f"<strong>{told['says']}</strong>" in html
    assert "disabled" in button(html, "approve")
    assert "disabled" in button(html, "reject")
    assert (world.contacts(), state_of_the_house()) == (asked, before)


def test_a_connection_that_was_revoked_meanwhile_is_named(world: GmailWorld, console: Client):
    approval = opened(console, world.draft())
    world.revoke("send")
    said = press(console, "approval_approve", approval.pk, digest=approval.digest)
    assert not said[0].startswith("Approved")
    assert "Nothing was sent." in said[0] or "connection" in said[0]
    assert not Effect.objects.exists()


def test_another_session_is_told_where_it_is_answered(world: GmailWorld, console: Client):
    approval = opened(console, world.draft())
    other = Client()
    other.force_login(get_user_model().objects.get(username="ada"))
    html = page(other, approval)
    assert "It was opened in another session" in html
    assert "disabled" in button(html, "approve")
    [said] = press(other, "approval_approve", approval.pk, digest=approval.digest)
    assert said.endswith("Nothing was sent. (rule: session_unavailable)")
    assert not Effect.objects.exists()
    assert "disabled" not in button(page(console, approval), "approve")


def test_the_page_looks_again_while_it_leaves_and_then_says_verified(
    world: GmailWorld, console: Client
):
    effect = approved(console, world.draft())
    again = 'http-equiv="refresh"'
    assert again in page(console, effect.approval)
    assert again in page(console, effect)
    effects.dispatch(effect_id=effect.pk)
    html = page(console, effect)
    assert again not in html
    assert "an independent look found exactly it" in html
    assert "<span>post</span> <b>1 of 1</b>" in html
    assert "an independent look found exactly it" in page(console, effect.approval)
    assert world.google.posts == 1


@pytest.mark.parametrize("answer", ["reject", "request_changes"])
def test_a_no_carries_its_reason_to_the_draft(world: GmailWorld, console: Client, answer: str):
    draft = world.draft()
    approval = opened(console, draft)
    asked = world.contacts()
    press(console, f"approval_{answer}", approval.pk, reason="The sum is wrong.")
    assert Hold.objects.get(pk=draft.hold_id).answer == "The sum is wrong."
    assert "The sum is wrong." in page(console, approval)
    assert (world.contacts(), world.google.posts) == (asked, 0)


def test_an_unknown_outcome_says_what_is_known_and_a_look_adds_to_it(
    world: GmailWorld, console: Client, google_server: GoogleServer
):
    effect = lost(console, world, google_server)
    html = page(console, effect)
    for shown in ("What is known", "What is not", "It is never made again", "Whether it left."):
        assert shown in html, shown
    assert not world.contacts()
    wish = html.split('name="request_id" value="')[1].split('"')[0]
    [said] = press(console, "effect_look_again", effect.pk, request_id=wish)
    assert said.startswith("Looking, read-only.")
    assert 'http-equiv="refresh"' in page(console, effect)
    recovery.run(job_id=Job.objects.get(looks_at=effect).pk)
    html = page(console, effect)
    assert "found among the sent" in html
    assert "A later look found exactly it among the sent mail." in html
    assert "Nobody can say whether it arrived" in html
    assert "<span>list</span> <b>1 of 1</b>" in html
    effect.refresh_from_db()
    assert effect.phase == Effect.Phase.UNKNOWN
    assert world.google.count("send") == 0


def test_the_same_look_asked_for_twice_is_one_look(
    world: GmailWorld, console: Client, google_server: GoogleServer
):
    effect = lost(console, world, google_server)
    wish = page(console, effect).split('name="request_id" value="')[1].split('"')[0]
    press(console, "effect_look_again", effect.pk, request_id=wish)
    press(console, "effect_look_again", effect.pk, request_id=wish)
    assert Job.objects.filter(looks_at=effect).count() == 1


def _end(root: Root) -> str:
    Root.objects.filter(pk=root.pk).update(idle_until=timezone.now())
    return "session_unavailable"


def _revoke(root: Root) -> str:
    roots.revoke(root_id=root.pk, by=OPERATOR, reason="a lost laptop")
    return "authority_revoked"


@pytest.mark.parametrize("over", [_end, _revoke])
def test_a_look_of_a_session_that_is_over_is_grey_with_its_reason(
    world: GmailWorld, console: Client, google_server: GoogleServer, over
):
    effect = lost(console, world, google_server)
    reason = over(Root.objects.get(pk=effect.root_id))
    later = Client()
    later.force_login(get_user_model().objects.get(username="ada"))
    html = page(later, effect)
    form = html.split("look-again/")[1].split("</form>")[0]
    assert "disabled" in form.split("<button")[1].split(">")[0]
    assert f"({reason})" in form
    wish = form.split('name="request_id" value="')[1].split('"')[0]
    [said] = press(later, "effect_look_again", effect.pk, request_id=wish)
    assert said.endswith(f"(rule: {reason})")
    assert not world.contacts()
    assert not Job.objects.filter(looks_at=effect).exists()


def test_whoever_may_only_look_finds_nothing_to_press(
    world: GmailWorld, console: Client, google_server: GoogleServer
):
    waiting = opened(console, world.draft())
    effect = lost(console, world, google_server)
    otto = get_user_model().objects.create_user("otto", is_staff=True)
    otto.user_permissions.set(Permission.objects.filter(codename__startswith="view_"))
    onlooker = Client()
    onlooker.force_login(otto)
    for row in (waiting, effect, Hold.objects.get(pk=waiting.hold_id)):
        forms = re.findall(r'<form[^>]*action="(/admin/approvals/[^"]+)"', page(onlooker, row))
        assert forms == []
    acts = {"hold_open": waiting.hold_id, "approval_approve": waiting.pk}
    for act, key in {**acts, "effect_look_again": effect.pk}.items():
        assert onlooker.post(reverse(f"admin:approvals_{act}", args=[key])).status_code == 403


def test_a_press_after_the_session_was_over_leads_back_to_the_page(
    world: GmailWorld, console: Client
):
    approval = opened(console, world.draft())
    Root.objects.filter(pk=approval.root_id).update(idle_until=timezone.now())
    asked = world.contacts()
    url = reverse("admin:approvals_approval_approve", args=[approval.pk])
    answer = console.post(url, {"digest": approval.digest})
    target = reverse("admin:approvals_approval_change", args=[approval.pk])
    assert answer["Location"] == f"{reverse('admin:login')}?next={target}"
    assert not Effect.objects.exists()
    assert world.contacts() == asked
