"""Which rule decides: the first that applies, in the order of the closed list."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import transaction

from guards.models import Decision
from guards.services import decisions
from guards.signals import decided
from guards.types import (
    SYSTEM,
    Action,
    Asker,
    Judgement,
    Rule,
    Rwx,
    Subject,
    TrustEvidence,
    TrustLevel,
    TrustReason,
    TrustVerdict,
    Verdict,
)
from tests.guards.factories import OPERATOR, IdentityFactory

TRUSTED = TrustVerdict(TrustLevel.TRUSTED, TrustReason.PROTON_INTERNAL, TrustEvidence())
UNTRUSTED = TrustVerdict(TrustLevel.UNTRUSTED, TrustReason.BAD_SIGNATURE, TrustEvidence())

# From the first hindrance to the last; each is taken away in turn.
WORST: dict[str, Any] = {
    "sender": None,
    "trust": UNTRUSTED,
    "loop": "own-mail",
    "has_text": False,
    "bound": False,
    "too_old": True,
    "replayed": True,
    "first_pass": True,
}
CURES: list[tuple[str, Any, Rule]] = [
    ("sender", "a@example.org", Rule.NO_IDENTITY),
    ("trust", TRUSTED, Rule.TRUST_TOO_LOW),
    ("loop", None, Rule.LOOP),
    ("has_text", True, Rule.NO_TEXT),
    ("bound", True, Rule.RECIPIENT_NOT_BOUND),
    ("too_old", False, Rule.SIGNATURE_TOO_OLD),
    ("replayed", False, Rule.REPLAYED),
    ("first_pass", False, Rule.FIRST_PASS),
]


def test_hindrances_are_named_in_their_order_until_none_is_left() -> None:
    facts = dict(WORST)
    for name, cure, rule in CURES:
        judgement = decisions.decide_message(permission=Rwx(execute=True), **facts)
        assert (judgement.rule, judgement.verdict) == (rule, Verdict.HOLD)
        facts[name] = cure
    judgement = decisions.decide_message(permission=Rwx(execute=True), **facts)
    assert judgement.rule is Rule.EXECUTE_PERMITTED
    assert (judgement.action, judgement.verdict) == (Action.EXECUTE, Verdict.ALLOW)


@pytest.mark.invariant(9)
def test_a_message_without_one_sender_is_held_unsurfaced_whatever_the_permission() -> None:
    judgement = decisions.decide_message(permission=Rwx(True, True, True), **WORST)
    assert (judgement.action, judgement.verdict) == (Action.SURFACE, Verdict.HOLD)


def test_without_x_no_hindrance_of_execution_is_asked_for() -> None:
    facts = WORST | {"sender": "a@example.org"}
    shown = decisions.decide_message(permission=Rwx(read=True, write=True), **facts)
    assert (shown.action, shown.verdict, shown.rule) == (
        Action.SURFACE,
        Verdict.ALLOW,
        Rule.READ_PERMITTED,
    )
    held = decisions.decide_message(permission=Rwx(write=True), **facts)
    assert (held.verdict, held.rule) == (Verdict.HOLD, Rule.NO_PERMISSION)


@pytest.mark.parametrize("action", [Action.DIAGNOSE, Action.MOVE])
def test_to_diagnose_and_to_move_need_no_permission_of_the_sender(action: Action) -> None:
    judgement = decisions.decide_read(action=action, sender=None, permission=Rwx())
    assert (judgement.verdict, judgement.rule) == (Verdict.ALLOW, Rule.OWN_MAILBOX)


@pytest.mark.parametrize(
    ("action", "verdict"),
    [
        (Action.SURFACE, Verdict.HOLD),
        (Action.READ, Verdict.DENY),
        (Action.DOWNLOAD, Verdict.DENY),
    ],
)
def test_without_r_a_listing_is_held_and_a_read_is_denied(action: Action, verdict: Verdict) -> None:
    refused = decisions.decide_read(
        action=action, sender="a@example.org", permission=Rwx(False, True, True)
    )
    assert (refused.verdict, refused.rule) == (verdict, Rule.NO_PERMISSION)
    nobody = decisions.decide_read(action=action, sender=None, permission=Rwx(read=True))
    assert (nobody.verdict, nobody.rule) == (verdict, Rule.NO_IDENTITY)


def test_reading_does_not_decide_about_sending() -> None:
    with pytest.raises(ValueError, match="send"):
        decisions.decide_read(action=Action.SEND, sender="a@example.org", permission=Rwx())


def test_one_recipient_without_w_refuses_the_whole_send_and_is_named() -> None:
    judgement = decisions.decide_send(
        permissions={"b@example.org": Rwx(write=True), "a@example.org": Rwx(True, False, True)}
    )
    assert (judgement.verdict, judgement.rule) == (Verdict.DENY, Rule.NO_WRITE)
    assert judgement.evidence == {"refused": ["a@example.org"]}
    assert decisions.decide_send(permissions={}).rule is Rule.NO_WRITE
    allowed = decisions.decide_send(permissions={"b@example.org": Rwx(write=True)})
    assert allowed.rule is Rule.WRITE_PERMITTED


def test_only_a_person_reveals_or_releases() -> None:
    allowed = decisions.decide_override(action=Action.REVEAL, by=OPERATOR)
    assert (allowed.verdict, allowed.rule) == (Verdict.ALLOW, Rule.OPERATOR_OVERRIDE)
    for asker in (SYSTEM, Asker("token", "cs_12345678"), Asker("identity", "claude")):
        refused = decisions.decide_override(action=Action.RELEASE, by=asker)
        assert (refused.verdict, refused.rule) == (Verdict.DENY, Rule.NO_PERMISSION)
    with pytest.raises(ValueError, match="execute"):
        decisions.decide_override(action=Action.EXECUTE, by=OPERATOR)


@pytest.mark.django_db
def test_a_decision_is_written_with_its_evidence_and_announced() -> None:
    identity = IdentityFactory()
    heard: list[Decision] = []

    def listen(decision: Decision, **_: object) -> None:
        heard.append(decision)

    decided.connect(listen)
    try:
        row = decisions.record_decision(
            judgement=Judgement(Action.EXECUTE, Verdict.HOLD, Rule.LOOP, {"loop": "own-mail"}),
            asker=SYSTEM,
            subject=Subject("mail.message", "7"),
            identity_id=identity.pk,
            sender="a@example.org",
            permission=Rwx(True, False, True),
        )
    finally:
        decided.disconnect(listen)
    assert heard == [row]
    row.refresh_from_db()
    assert (row.asker, row.action, row.verdict, row.rule) == ("system", "execute", "hold", "loop")
    assert (row.subject_type, row.subject_id, row.permission) == ("mail.message", "7", "r-x")
    assert row.evidence == {"loop": "own-mail"}


@pytest.mark.django_db
def test_a_receiver_that_fails_takes_the_decision_back() -> None:
    def fail(**_: object) -> None:
        raise RuntimeError("the log is full")

    decided.connect(fail)
    try:
        with pytest.raises(RuntimeError), transaction.atomic():
            decisions.record_decision(
                judgement=Judgement(Action.READ, Verdict.DENY, Rule.NO_PERMISSION),
                asker=SYSTEM,
                subject=Subject("mail.message", "7"),
            )
    finally:
        decided.disconnect(fail)
    assert not Decision.objects.exists()


@pytest.mark.django_db
def test_hostile_text_in_sender_and_evidence_can_be_stored_on_every_database() -> None:
    row = decisions.record_decision(
        judgement=Judgement(
            Action.READ,
            Verdict.DENY,
            Rule.NO_PERMISSION,
            {"name": "a\x00b\udcff", "list": ("x\x00",), "number": 3, "none": None},
        ),
        asker=SYSTEM,
        subject=Subject("mail.message", "7"),
        sender="x" * 400 + "\x00",
    )
    row.refresh_from_db()
    assert len(row.sender) == 254
    assert "\x00" not in row.evidence["name"]
    assert row.evidence["list"] == ["x�"]
    assert (row.evidence["number"], row.evidence["none"]) == (3, None)
