"""Agents draft replies by API and MCP: held for a person, once per key, and told what became."""

from __future__ import annotations

import json
from email import message_from_bytes
from typing import Any

import pytest
from django.test import Client

from approvals import selectors as approval_selectors
from approvals.models import Hold
from approvals.services import approvals, effects, holds
from guards.models import Contact, Identity
from guards.services import identities, permissions, tokens
from guards.types import Rwx
from mail.gateways.base import SendOutcome, SubmissionResult
from mail.models import Account, Message, Outbound
from mail.services import polling
from teams.models import Event
from tests.agents import Agent
from tests.guards.factories import IdentityFactory
from tests.mail.factories import OPERATOR, make_contact, make_mail

pytestmark = [pytest.mark.django_db, pytest.mark.one_database]

USER = "agent@agents.test"
ALICE = "alice@example.org"


@pytest.fixture
def message(account, mail_server) -> Message:
    """One mail of Alice's, who may be written to; the identity sends replies at once."""
    make_contact(account.identity, ALICE, "rw-")
    Identity.objects.filter(pk=account.identity_id).update(reply_policy="auto")
    polling.poll(account_id=account.pk)
    mail_server.deliver(USER, make_mail(subject="Report"))
    polling.poll(account_id=account.pk)
    return Message.objects.get()


def may_not(message: Message) -> None:
    """Alice's rights are taken away."""
    permissions.grant(
        identity=message.account.identity,
        contact=Contact.objects.get(),
        rwx=Rwx.parse("---"),
        by=OPERATOR,
    )


def secret_of(identity: Identity, *scopes: str) -> str:
    _, secret = tokens.mint(
        label="agent", scopes=scopes or ["replies:draft"], identity=identity, by=OPERATOR
    )
    return secret


class Front:
    """One agent at both fronts: what it asks at the one, it may repeat at the other."""

    def __init__(self, secret: str) -> None:
        self.client = Client(headers={"authorization": f"Bearer {secret}"})
        self.mcp = Agent(secret)

    def draft(self, message_id: int, *, text: str = "Thank you.", key: str = "k-1") -> Any:
        headers = {"Idempotency-Key": key} if key else {}
        return self.client.post(
            f"/api/v1/messages/{message_id}/replies",
            data=json.dumps({"text": text}),
            content_type="application/json",
            headers=headers,
        )

    def status(self, reply_id: str) -> Any:
        answer = self.client.get(f"/api/v1/replies/{reply_id}")
        assert answer.status_code == 200, answer.content
        assert answer.json() == self.mcp.answer("reply_status", reply_id=reply_id)
        return answer.json()


@pytest.fixture
def front(message) -> Front:
    return Front(secret_of(message.account.identity))


def test_a_draft_waits_for_a_person_whatever_the_reply_policy_says(front, message, mail_server):
    answer = front.draft(message.pk)
    assert answer.status_code == 201
    drafted = answer.json()
    assert (drafted["status"], drafted["to"], drafted["replayed"]) == ("held", [ALICE], False)
    hold = Hold.objects.get(state="waiting")
    assert (hold.requested_by, hold.reason) == (
        f"identity:{message.account.identity.handle}",
        "agent-draft",
    )
    assert mail_server.submissions == 0
    assert front.status(drafted["id"])["says"] == "It waits for a person to look at it."


@pytest.mark.fault("send-05")
def test_the_same_key_acts_once_at_both_fronts(front, message):
    first = front.draft(message.pk)
    again = front.draft(message.pk)
    assert (again.status_code, again["Idempotency-Replayed"]) == (201, "true")
    assert "Idempotency-Replayed" not in first
    by_mcp = front.mcp.answer(
        "draft_reply", message_id=message.pk, text="Thank you.", idempotency_key="k-1"
    )
    assert by_mcp["replayed"] is True
    assert {first.json()["id"], again.json()["id"], by_mcp["id"]} == {first.json()["id"]}
    assert Outbound.objects.count() == Hold.objects.count() == 1


def test_another_body_under_the_same_key_is_refused(front, message):
    front.draft(message.pk)
    other = front.draft(message.pk, text="Something else.")
    assert (other.status_code, other.json()["code"]) == (409, "key-reused")
    refused = front.mcp.refusal(
        "draft_reply", message_id=message.pk, text="Something else.", idempotency_key="k-1"
    )
    assert refused == other.json()
    assert Outbound.objects.get().text.startswith("Thank you.")


@pytest.mark.parametrize("how", ["reject", "request_changes"])
def test_a_no_reaches_the_agent_with_its_reason_and_raises_an_event(
    front, message, mail_server, how
):
    drafted = front.draft(message.pk).json()
    approval = holds.open_for_review(hold_id=Hold.objects.get().pk, by=OPERATOR)
    getattr(approvals, how)(
        approval_id=approval.pk, by=OPERATOR, via="console", reason="Say that it takes a week."
    )
    told = front.status(drafted["id"])
    assert (told["status"], told["answer"]) == ("rejected", "Say that it takes a week.")
    assert told["answered_by"] == str(OPERATOR)
    settled = Event.objects.filter(kind="outbound.settled").get()
    assert settled.facts["status"] == "rejected"
    assert mail_server.submissions == 0
    # Another draft is another call.
    assert front.draft(message.pk, text="It takes a week.", key="k-2").status_code == 201


def test_a_yes_sends_it_once_and_the_agent_is_told(front, message, mail_server):
    drafted = front.draft(message.pk).json()
    approval = holds.open_for_review(hold_id=Hold.objects.get().pk, by=OPERATOR)
    effect = approvals.approve(
        approval_id=approval.pk, by=OPERATOR, via="console", digest=approval.digest
    )
    effects.dispatch(effect_id=effect.pk)
    told = front.status(drafted["id"])
    assert (told["status"], told["phase"], told["outcome"]) == ("accepted", "accepted", "smtp-250")
    # The first answer stays the first answer.
    assert front.draft(message.pk).json()["status"] == "held"
    assert mail_server.submissions == 1


def test_unknown_is_told_as_unknown(front, message, mail_server):
    drafted = front.draft(message.pk).json()
    approval = holds.open_for_review(hold_id=Hold.objects.get().pk, by=OPERATOR)
    effect = approvals.approve(
        approval_id=approval.pk, by=OPERATOR, via="console", digest=approval.digest
    )
    mail_server.next_result = SubmissionResult(
        SendOutcome.UNKNOWN, "connection-lost-after-data", final_dot_sent=True
    )
    effects.dispatch(effect_id=effect.pk)
    told = front.status(drafted["id"])
    assert (told["status"], told["phase"]) == ("unknown", "unknown")
    assert "not sent again" in told["says"]


def test_who_may_not_be_written_to_gets_no_draft(front, message):
    may_not(message)
    refused = front.draft(message.pk)
    assert (refused.status_code, refused.json()["rule"]) == (403, "no-write")
    assert (
        front.mcp.refusal(
            "draft_reply", message_id=message.pk, text="Thank you.", idempotency_key="k-1"
        )["rule"]
        == "no-write"
    )
    assert not Outbound.objects.exists()
    assert not Hold.objects.exists()


def test_another_identitys_token_sees_neither_message_nor_reply(front, message):
    drafted = front.draft(message.pk).json()
    eve = identities.create_identity(
        handle="eve", email="eve@example.org", kind="agent", by=OPERATOR
    )
    other = Front(secret_of(eve))
    assert other.draft(message.pk).status_code == 404
    assert other.client.get(f"/api/v1/replies/{drafted['id']}").status_code == 404


def test_drafting_needs_its_scope(message):
    reader = Front(secret_of(message.account.identity, "messages:read"))
    assert reader.draft(message.pk).status_code == 403
    assert "draft_reply" not in reader.mcp.tools()
    writer = Front(secret_of(message.account.identity))
    assert {"draft_reply", "reply_status"} <= set(writer.mcp.tools())


@pytest.mark.parametrize(
    ("text", "key", "field"),
    [
        ("", "k-1", "text"),
        (" \n", "k-1", "text"),
        ("Hello.\0", "k-1", "text"),
        ("Hello.", "", "Idempotency-Key"),
        ("Hello.", "two words", "Idempotency-Key"),
        ("x" * 100_001, "k-1", "body.text"),
    ],
)
def test_bad_input_names_its_field(front, message, text, key, field):
    refused = front.draft(message.pk, text=text, key=key)
    assert refused.status_code in (400, 422)
    assert refused.json()["field"] == field
    assert not Outbound.objects.exists()


def test_a_recipient_that_an_agent_names_is_refused_and_not_passed_over(front, message):
    refused = front.client.post(
        f"/api/v1/messages/{message.pk}/replies",
        data=json.dumps({"text": "Thank you.", "to": "eve@example.com"}),
        content_type="application/json",
        headers={"Idempotency-Key": "k-1"},
    )
    assert (refused.status_code, refused.json()["field"]) == (422, "body.to")
    assert not Outbound.objects.exists()


def test_the_review_shows_every_header_that_leaves(front, message):
    front.draft(message.pk)
    approval = holds.open_for_review(hold_id=Hold.objects.get().pk, by=OPERATOR)
    preview = approval_selectors.preview(approval)
    leaving = message_from_bytes(approval_selectors.payload(approval))
    assert preview["from_name"] == message.account.identity.name
    told = {header.partition(":")[0].lower() for header in preview["headers"]}
    own = {"from", "to", "subject", "date", "message-id", "in-reply-to", "references"}
    assert told | own == {name.lower() for name in leaving} | own
    assert "x-beadle-agent" in told


def test_an_agent_has_so_many_drafts_before_people_and_then_waits(front, message, settings):
    settings.OPEN_DRAFTS_PER_AGENT = 2
    first = front.draft(message.pk, key="k-1").json()
    front.draft(message.pk, key="k-2", text="And this.")
    refused = front.draft(message.pk, key="k-3", text="And that.")
    assert (refused.status_code, refused.json()["rule"]) == (403, "open-drafts")
    assert "2 drafts of" in refused.json()["message"]
    by_mcp = front.mcp.refusal(
        "draft_reply", message_id=message.pk, text="And that.", idempotency_key="k-3"
    )
    assert by_mcp == refused.json()
    # Nothing of it is kept, and what waits is told as before.
    assert Outbound.objects.count() == Hold.objects.count() == 2
    assert front.draft(message.pk, key="k-1").json()["id"] == first["id"]
    holds.withdraw(
        hold_id=Hold.objects.order_by("since").first().pk, by=OPERATOR, reason="not needed"
    )
    # The same call counts as soon as one was answered.
    assert front.draft(message.pk, key="k-3", text="And that.").status_code == 201


def test_drafts_of_another_agent_and_replies_of_pipelines_take_no_place(front, message, settings):
    settings.OPEN_DRAFTS_PER_AGENT = 1
    Outbound.objects.create(
        account=message.account,
        origin_type="pipelines.pipeline",
        origin_id="1",
        status="held",
        message_id="<1@agents.test>",
    )
    other = Account.objects.get(pk=message.account_id)
    other.pk, other.name, other.identity = None, "other", IdentityFactory()
    other.save(force_insert=True)
    Outbound.objects.create(
        account=other,
        origin_type="guards.call",
        origin_id="another",
        status="held",
        message_id="<2@agents.test>",
    )
    assert front.draft(message.pk, key="k-1").status_code == 201
    assert front.draft(message.pk, key="k-2").json()["rule"] == "open-drafts"
