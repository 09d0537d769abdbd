"""Present scopes and token-bound identity, as Google answers: what is wrong contacts no more."""

from __future__ import annotations

import pytest

from approvals import registry
from approvals.exceptions import Blocked
from approvals.models import Effect
from tests.mail.gmail.fewer import repeated, with_one_use, without
from tests.mail.gmail.world import GmailWorld
from tests.servers.google import GoogleServer

pytestmark = [pytest.mark.django_db, pytest.mark.one_database]

#: What a refresh answer may say instead of its scopes, and the word for it.
SCOPES = {
    "scope-omitted": "scope_omitted",
    "scope-null": "scope_null",
    "scope-number": "scope_not_text",
    "scope-list": "scope_not_text",
    "scope-object": "scope_not_text",
    "scope-empty": "scope_empty",
    "scope-blank": "scope_empty",
    "scope-control": "scope_control_character",
    "scope-newline": "scope_control_character",
    "scope-quoted": "scope_malformed",
    "scope-commas": "scope_extra",
    "scope-not-ascii": "scope_malformed",
    "scope-huge": "scope_too_long",
    "scope-extra": "scope_extra",
    "scope-modify": "scope_extra",
    "scope-compose": "scope_extra",
    "scope-full-mail": "scope_extra",
    "scope-profile": "scope_extra",
    "scope-missing-mail": "scope_missing",
    "scope-missing-openid": "scope_missing",
    "scope-missing-email": "scope_missing",
    "scope-duplicate": "scope_duplicate",
    "scope-duplicate-mail": "scope_duplicate",
    "scope-unknown-alias": "scope_extra",
    "scope-shortened": "scope_extra",
    "scope-upper-case": "scope_extra",
    "scope-prefix": "scope_extra",
    "scope-other-use": "scope_extra",
    "scope-both-emails": "scope_duplicate",
}
IDENTITIES = {
    "userinfo.no-subject": "bad-answer",
    "userinfo.subject-number": "bad-answer",
    "userinfo.subject-huge": "bad-answer",
    "userinfo.unverified": "email_not_verified",
    "userinfo.verified-text": "bad-answer",
    "userinfo.no-verified": "bad-answer",
    "userinfo.no-email": "bad-answer",
    "userinfo.other-subject": "account_changed",
    "userinfo.other-email": "account_changed",
    "userinfo.email-upper-case": "account_changed",
    "userinfo.email-plus": "account_changed",
    "userinfo.other-issuer": "issuer_foreign",
    "profile.other-mailbox": "mailbox_differs",
    "profile.mailbox-upper-case": "mailbox_differs",
    "profile.mailbox-dots": "mailbox_differs",
    "profile.no-mailbox": "bad-answer",
}


_USERINFO = {one: why for one, why in IDENTITIES.items() if one.startswith("userinfo")}
_PROFILE = {one: why for one, why in IDENTITIES.items() if one.startswith("profile")}


def test_scopes_that_are_not_exact_end_a_preview_before_anybody_is_asked(
    world: GmailWorld, google_server: GoogleServer, subtests: pytest.Subtests
):
    draft = world.draft()
    for fault, reason in SCOPES.items():
        with subtests.test(fault):
            world.google.contacts.clear()
            google_server.heal()
            google_server.fault(f"token.{fault}")
            with pytest.raises(Blocked) as blocked:
                world.open(draft)
            assert blocked.value.reason == reason
            assert world.contacts() == {"token read": 1}
    google_server.heal()
    world.open(draft)  # the control: nothing but the faults kept it shut


@pytest.mark.parametrize("pairs", with_one_use(SCOPES, repeated(SCOPES)))
def test_present_scopes_every_refresh_or_the_execution_ends_before_anybody_is_asked(
    world: GmailWorld,
    google_server: GoogleServer,
    pairs: list[tuple[str, str]],
    subtests: pytest.Subtests,
):
    approved = world.approve()
    world.google.contacts.clear()
    for fault, use in pairs:
        with subtests.test(fault, use=use), world.undone(approved) as effect:
            google_server.fault(f"token.{fault}", credential=world.issued[use].name)
            after = world.dispatch(effect)
            assert (after.phase, after.reason) == (Effect.Phase.CANCELLED, SCOPES[fault])
            assert after.detail["field"] == "scope"
            assert set(world.contacts()) <= {"token read", "token send"}
            assert world.google.posts == 0


@pytest.mark.parametrize(
    "fault", ["scope-alias-only", "scope-short-email-only", "scope-other-order"]
)
def test_each_spelling_of_the_email_permission_is_accepted_once(
    world: GmailWorld, google_server: GoogleServer, fault: str
):
    google_server.fault(f"token.{fault}")
    assert world.send().phase == Effect.Phase.VERIFIED


def test_what_an_earlier_refresh_proved_never_fills_in(
    world: GmailWorld, google_server: GoogleServer
):
    effect = world.approve()  # the preview's refresh was exact
    google_server.fault("token.scope-omitted", times=1, credential=world.issued["read"].name)
    assert world.dispatch(effect).reason == "scope_omitted"
    assert world.google.posts == 0


def test_another_identity_ends_a_preview_before_the_source_is_read(
    world: GmailWorld, google_server: GoogleServer, subtests: pytest.Subtests
):
    draft = world.draft()
    for fault, reason in IDENTITIES.items():
        with subtests.test(fault):
            world.google.contacts.clear()
            google_server.heal()
            google_server.fault(fault)
            with pytest.raises(Blocked) as blocked:
                world.open(draft)
            assert blocked.value.reason == reason
            assert not {"thread read", "list read", "message read"} & set(world.contacts())


@pytest.mark.parametrize("pairs", with_one_use(_USERINFO, repeated(_USERINFO)))
def test_another_identity_of_either_credential_ends_an_execution(
    world: GmailWorld,
    google_server: GoogleServer,
    pairs: list[tuple[str, str]],
    subtests: pytest.Subtests,
):
    approved = world.approve()
    differs = {"account_changed": {"subjects_differ", "addresses_differ"}}
    for fault, use in pairs:
        with subtests.test(fault, use=use), world.undone(approved) as effect:
            google_server.fault(fault, credential=world.issued[use].name)
            after = world.dispatch(effect)
            assert after.phase == Effect.Phase.CANCELLED
            assert after.reason in differs.get(IDENTITIES[fault], {IDENTITIES[fault]})
            assert after.detail["field"]
            assert world.google.posts == 0


@pytest.mark.parametrize("fault", without(_PROFILE, repeated(_PROFILE)))
def test_another_mailbox_ends_an_execution(
    world: GmailWorld, google_server: GoogleServer, fault: str
):
    effect = world.approve()
    google_server.fault(fault)
    assert world.dispatch(effect).reason == IDENTITIES[fault]
    assert world.google.posts == 0


def test_both_credentials_swapped_to_somebody_else_end_an_execution(world: GmailWorld):
    effect = world.approve()
    other = world.google.add_person("somebody.else@gmail.test")
    for issued in world.issued.values():
        issued.person = other
    after = world.dispatch(effect)
    assert (after.phase, after.reason) == (Effect.Phase.CANCELLED, "account_changed")
    assert world.google.posts == 0


def test_one_credential_of_somebody_else_ends_an_execution(
    world: GmailWorld, subtests: pytest.Subtests
):
    approved = world.approve()
    for use in ("read", "send"):
        with subtests.test(use), world.undone(approved) as effect:
            world.issued[use].person = world.google.add_person("somebody.else@gmail.test")
            after = world.dispatch(effect)
            assert (after.phase, after.reason) == (Effect.Phase.CANCELLED, "subjects_differ")
            assert world.google.posts == 0


def test_a_revoked_credential_ends_an_execution(world: GmailWorld, subtests: pytest.Subtests):
    approved = world.approve()
    world.google.contacts.clear()
    for use in ("read", "send"):
        with subtests.test(use), world.undone(approved) as effect:
            world.issued[use].revoked = True
            after = world.dispatch(effect)
            assert (after.phase, after.reason) == (Effect.Phase.CANCELLED, "needs-reconnect")
            assert set(world.contacts()) <= {"token read", "token send"}


def test_a_last_look_that_is_too_old_posts_nothing(world: GmailWorld):
    """Freshness: the source was looked at within ten seconds before the mark, or it ends."""
    kind = registry.act("mail.gmail")
    assert kind.freshness == 10.0
    effect = world.approve()
    kind.freshness = -1.0
    try:
        after = world.dispatch(effect)
    finally:
        del kind.freshness
    assert (after.phase, after.reason) == (Effect.Phase.CANCELLED, "observation_stale")
    assert world.google.posts == 0
