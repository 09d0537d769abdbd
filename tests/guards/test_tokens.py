"""Tokens: shown once, kept as a hash, scoped, and ended at once."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from guards import registry, selectors
from guards.exceptions import AlreadyDecided, InvalidInput, NotAuthenticated, Refused
from guards.models import ApiToken, Identity
from guards.services import identities, tokens
from guards.signals import token_changed
from guards.types import SYSTEM, Asker, Refusal, Subject
from tests.guards.factories import OPERATOR, ContactFactory, IdentityFactory

pytestmark = pytest.mark.django_db

SCOPES = ["decisions:read", "contacts:read"]


def test_the_secret_is_not_in_the_database_and_opens_the_door() -> None:
    token, secret = tokens.mint(label="ci", scopes=SCOPES, by=OPERATOR)
    stored = ApiToken.objects.values().get()
    assert secret.startswith(token.prefix)
    assert all(secret not in str(value) for value in stored.values())
    assert tokens.authenticate(secret) == token
    assert ApiToken.objects.get().last_used_at is not None


def test_two_tokens_never_share_prefix_or_secret() -> None:
    minted = [tokens.mint(label="ci", scopes=SCOPES, by=OPERATOR) for _ in range(5)]
    assert len({secret for _, secret in minted}) == 5
    assert len({token.prefix for token, _ in minted}) == 5


@pytest.mark.parametrize("secret", ["", "cs_", "cs_00000000_x", "\udcff", "x" * 10_000])
def test_a_guess_is_refused_with_its_rule(secret: str) -> None:
    with pytest.raises(NotAuthenticated) as refused:
        tokens.authenticate(secret)
    assert refused.value.rule == Refusal.TOKEN_UNKNOWN


def test_a_revoked_token_counts_no_longer_and_is_revoked_once() -> None:
    token, secret = tokens.mint(label="ci", scopes=SCOPES, by=OPERATOR)
    tokens.revoke(token=token, by=OPERATOR)
    with pytest.raises(NotAuthenticated) as refused:
        tokens.authenticate(secret)
    assert refused.value.rule == Refusal.TOKEN_REVOKED
    with pytest.raises(AlreadyDecided):
        tokens.revoke(token=token, by=OPERATOR)


@pytest.mark.one_database
def test_an_expired_token_counts_no_longer() -> None:
    token, secret = tokens.mint(
        label="ci", scopes=SCOPES, expires_at=timezone.now() + timedelta(hours=1), by=OPERATOR
    )
    assert tokens.authenticate(secret) == token
    ApiToken.objects.update(expires_at=timezone.now() - timedelta(seconds=1))
    with pytest.raises(NotAuthenticated) as refused:
        tokens.authenticate(secret)
    assert refused.value.rule == Refusal.TOKEN_EXPIRED


@pytest.mark.one_database
def test_a_token_of_an_identity_that_is_switched_off_counts_no_longer() -> None:
    identity = IdentityFactory()
    _, secret = tokens.mint(label="agent", scopes=SCOPES, identity=identity, by=OPERATOR)
    identities.update_identity(identity=identity, is_active=False, by=OPERATOR)
    with pytest.raises(NotAuthenticated):
        tokens.authenticate(secret)


@pytest.mark.one_database
@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"label": " "}, "label"),
        ({"label": "x" * 201}, "label"),
        ({"label": "two\nlines"}, "label"),
        ({"project": "x" * 65}, "project"),
        ({"scopes": []}, "scopes"),
        ({"scopes": ["everything"]}, "scopes"),
        ({"expires_at": timezone.now() - timedelta(days=1)}, "expires_at"),
    ],
)
def test_it_names_what_is_wrong_with_a_token(fields: dict[str, object], field: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        tokens.mint(**{"label": "ci", "scopes": SCOPES, "by": OPERATOR} | fields)
    assert refused.value.field == field


@pytest.mark.one_database
def test_an_agent_mints_and_revokes_no_token() -> None:
    token, _ = tokens.mint(label="agent", scopes=SCOPES, by=OPERATOR)
    agent = Asker("token", token.prefix)
    for attempt in (
        lambda: tokens.mint(label="more", scopes=SCOPES, by=agent),
        lambda: tokens.revoke(token=token, by=agent),
    ):
        with pytest.raises(Refused) as refused:
            attempt()
        assert refused.value.rule == Refusal.OPERATOR_ONLY


@pytest.mark.one_database
def test_both_changes_are_announced() -> None:
    heard: list[str] = []

    def listen(change: str, **_: object) -> None:
        heard.append(change)

    token_changed.connect(listen)
    try:
        token, _ = tokens.mint(label="ci", scopes=SCOPES, by=OPERATOR)
        tokens.revoke(token=token, by=OPERATOR)
    finally:
        token_changed.disconnect(listen)
    assert heard == ["minted", "revoked"]


# --- Tokens of one row ----------------------------------------------------------------------------

MISSION = Subject("pipelines.mission", "4711")
TOMORROW = timedelta(days=1)


def _minted_for(holder: Subject = MISSION, **changes: Any) -> tuple[ApiToken, str]:
    fields: dict[str, Any] = {
        "label": "a row's own",
        "scopes": SCOPES,
        "identity": IdentityFactory(),
        "expires_at": timezone.now() + TOMORROW,
        "by": SYSTEM,
        **changes,
    }
    return tokens.mint_for(holder=holder, **fields)


def test_a_rows_token_dies_with_its_row_and_no_other_does() -> None:
    _, first = _minted_for()
    _, second = _minted_for()
    _, other = _minted_for(Subject("pipelines.mission", "4712"))
    own, mine = tokens.mint(label="ci", scopes=SCOPES, by=OPERATOR)
    assert tokens.revoke_for(holder=MISSION) == 2
    assert tokens.revoke_for(holder=MISSION) == 0
    for secret in (first, second):
        with pytest.raises(NotAuthenticated) as refused:
            tokens.authenticate(secret)
        assert refused.value.rule == Refusal.TOKEN_REVOKED
    assert tokens.authenticate(other).holder_id == "4712"
    assert tokens.authenticate(mine) == own


@pytest.mark.one_database
def test_a_rows_token_sees_nothing_of_its_identity() -> None:
    token, _ = _minted_for(identity=(identity := IdentityFactory()))
    ContactFactory()
    own, _ = tokens.mint(label="ci", scopes=SCOPES, identity=identity, by=OPERATOR)
    assert not selectors.sees_everything(token)
    assert not selectors.identities_for(token).exists()
    assert not selectors.contacts_for(token).exists()
    assert not selectors.sees_everything(_minted_for(identity=None)[0])
    assert selectors.identities_for(own).get() == identity
    assert selectors.contacts_for(own).exists()


def test_a_rows_token_counts_for_that_row_only() -> None:
    token, _ = _minted_for()
    tokens.require_holder(token, holder=MISSION)
    for other in (Subject("pipelines.mission", "4712"), Subject("mail.message", "4711")):
        with pytest.raises(Refused) as refused:
            tokens.require_holder(token, holder=other)
        assert refused.value.rule == Refusal.OTHER_HOLDER
    with pytest.raises(Refused):
        tokens.require_holder(
            tokens.mint(label="ci", scopes=SCOPES, by=OPERATOR)[0], holder=MISSION
        )


@pytest.mark.one_database
@pytest.mark.parametrize("by", [OPERATOR, Asker("token", "cs_00000000"), Asker("identity", "ada")])
def test_only_the_program_mints_for_a_row(by: Asker) -> None:
    with pytest.raises(Refused) as refused:
        _minted_for(by=by)
    assert refused.value.rule == Refusal.SYSTEM_ONLY
    assert not ApiToken.objects.exists()


def test_a_rows_token_needs_its_row() -> None:
    with pytest.raises(InvalidInput) as refused:
        _minted_for(Subject("pipelines.mission", ""))
    assert refused.value.field == "holder"


def test_a_rows_token_dies_when_its_identity_is_switched_off() -> None:
    token, secret = _minted_for()
    assert tokens.authenticate(secret) == token
    Identity.objects.update(is_active=False)
    with pytest.raises(NotAuthenticated):
        tokens.authenticate(secret)


@pytest.fixture
def answering() -> Iterator[str]:
    """A scope of people alone, as approvals registers one."""
    registry.register_scopes("tests", {"tests:answer": "Answer."}, of_people=["tests:answer"])
    yield "tests:answer"
    registry._scopes.pop("tests:answer")
    registry._of_people.discard("tests:answer")


@pytest.mark.one_database
def test_what_only_people_may_do_is_in_a_persons_token_alone(answering: str) -> None:
    person, agent = IdentityFactory(kind="human"), IdentityFactory(kind="agent")
    token, _ = tokens.mint(label="hers", scopes=[answering], identity=person, by=OPERATOR)
    assert token.scopes == [answering]
    for identity, field in ((agent, "scopes"), (None, "identity")):
        with pytest.raises(Refused) as refused:
            tokens.mint(label="no", scopes=[answering, *SCOPES], identity=identity, by=OPERATOR)
        assert (refused.value.rule, refused.value.field) == ("not-a-person", field)
        assert "tests:answer is for the token of a person" in refused.value.detail
        assert tokens.mint(label="yes", scopes=SCOPES, identity=identity, by=OPERATOR)
    assert ApiToken.objects.count() == 3


def test_no_row_holds_it_whosever_mail_it_works_on(answering: str) -> None:
    later = timezone.now() + timedelta(hours=1)
    with pytest.raises(Refused) as refused:
        tokens.mint_for(
            holder=MISSION,
            label="worker",
            scopes=[answering],
            identity=IdentityFactory(kind="human"),
            expires_at=later,
            by=SYSTEM,
        )
    assert refused.value.rule == "not-a-person"


@pytest.mark.one_database
def test_the_form_refuses_it_with_the_rule(admin_client: Client) -> None:
    person, agent = IdentityFactory(kind="human"), IdentityFactory(kind="agent")
    add = reverse("admin:guards_apitoken_add")
    asked = {"label": "answers", "scopes": ["approvals:answer"], "project": ""}
    refused = admin_client.post(add, asked | {"identity": agent.pk}).content.decode()
    assert "approvals:answer is for the token of a person" in refused
    assert "(rule: not-a-person)" in refused
    assert not ApiToken.objects.exists()
    assert (
        "token-secret" in admin_client.post(add, asked | {"identity": person.pk}).content.decode()
    )
