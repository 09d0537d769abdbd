"""guards' pages in the console: services behind every button, and a GET is a look."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.contrib.messages import get_messages
from django.core.files.uploadedfile import SimpleUploadedFile
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from guards.models import (
    ApiToken,
    CandidateKey,
    Contact,
    ContactAlias,
    Decision,
    Heartbeat,
    Identity,
    Permission,
    PinnedKey,
    ReplayEntry,
)
from guards.services import decisions, heartbeats, replay, tokens
from guards.services import keys as key_services
from guards.types import SYSTEM, Action, Judgement, Rule, Subject, Verdict
from tests.guards.factories import (
    OPERATOR,
    AliasFactory,
    ContactFactory,
    IdentityFactory,
    PermissionFactory,
)

pytestmark = [pytest.mark.django_db, pytest.mark.one_database]

MODELS = [
    Identity,
    Contact,
    Permission,
    PinnedKey,
    CandidateKey,
    ApiToken,
    Decision,
    ReplayEntry,
    Heartbeat,
]


def page(model: type, word: str, *args: object) -> str:
    return reverse(f"admin:guards_{model.__name__.lower()}_{word}", args=args)


def said(response: Any) -> str:
    return " ".join(str(message) for message in get_messages(response.wsgi_request))


def a_row_of_each() -> None:
    identity = IdentityFactory()
    PermissionFactory(identity=identity)
    alias = AliasFactory()
    alias.contact.pins.create(fingerprint="A" * 40, public_key=b"k", pinned_by="operator:ada")
    CandidateKey.objects.create(fingerprint="B" * 40, public_key=b"k", source="mail")
    tokens.mint(label="ci", scopes=["contacts:read"], identity=identity, by=OPERATOR)
    decisions.record_decision(
        judgement=Judgement(Action.READ, Verdict.DENY, Rule.NO_PERMISSION, {"trust": "verified"}),
        asker=SYSTEM,
        subject=Subject("mail.message", "7"),
        identity_id=identity.pk,
    )
    replay.claim(key="0" * 64, subject=Subject("pipelines.pipeline", "1"))
    heartbeats.beat(role="worker")


def test_each_noun_has_a_list_a_search_and_a_page(
    admin_client: Client, subtests: pytest.Subtests
) -> None:
    for model in MODELS:
        with subtests.test(f"no {model.__name__}"):
            assert admin_client.get(page(model, "changelist")).status_code == 200
    a_row_of_each()
    for model in MODELS:
        with subtests.test(model.__name__):
            row = model.objects.first()
            assert str(row.pk) in admin_client.get(page(model, "changelist")).content.decode()
            assert admin_client.get(page(model, "changelist") + "?q=zzz").status_code == 200
            assert admin_client.get(page(model, "change", row.pk)).status_code == 200


RECORDS: tuple[type[Any], ...] = (Decision, ReplayEntry, Heartbeat, PinnedKey, CandidateKey)


def test_a_record_can_be_neither_added_nor_changed_nor_deleted(
    admin_client: Client, subtests: pytest.Subtests
) -> None:
    a_row_of_each()
    for model in RECORDS:
        with subtests.test(model.__name__):
            row = model.objects.first()
            address = page(model, "delete", row.pk)
            assert admin_client.post(page(model, "add"), {}).status_code == 403
            assert admin_client.post(page(model, "change", row.pk), {}).status_code == 403
            assert admin_client.post(address, {"post": "yes"}).status_code == 403
            assert model.objects.filter(pk=row.pk).exists()


def test_an_identity_is_created_and_changed_by_its_service(admin_client: Client) -> None:
    fields = {
        "handle": "claude",
        "name": "Claude",
        "email": "Claude@House.example",
        "kind": "agent",
        "is_active": "on",
        "reply_policy": "approve",
        "recipient_binding": "required",
        "openpgp_fingerprint": "",
        "gpg_home": "",
        "passphrase_ref": "",
    }
    response = admin_client.post(page(Identity, "add"), fields)
    assert response.status_code == 302, response.content
    identity = Identity.objects.get()
    assert identity.email == "claude@house.example"
    changed = fields | {"reply_policy": "auto", "handle": "other"}
    assert admin_client.post(page(Identity, "change", identity.pk), changed).status_code == 302
    identity.refresh_from_db()
    assert (identity.reply_policy, identity.handle) == ("auto", "claude")
    admin_client.post(page(Identity, "make_default", identity.pk))
    identity.refresh_from_db()
    assert identity.is_default


def test_what_a_service_refuses_stands_at_its_field_with_the_typed_text_kept(
    admin_client: Client,
) -> None:
    fields = {"name": "Half a pattern", "address": "[abc*@example.org", "notes": ""}
    response = admin_client.post(page(Contact, "add"), fields)
    assert response.status_code == 200
    text = response.content.decode()
    assert "invalid pattern syntax" in text
    assert "Half a pattern" in text
    assert not Contact.objects.exists()


def test_a_pattern_is_added_and_gets_no_more_than_read(admin_client: Client) -> None:
    identity = IdentityFactory()
    admin_client.post(
        page(Contact, "add"), {"name": "", "address": "*@Mail.example.org", "notes": ""}
    )
    contact = Contact.objects.get()
    assert contact.is_pattern
    grant = page(Contact, "grant", contact.pk)
    refused = admin_client.post(grant, {"identity": identity.pk, "rwx": "rwx"})
    assert "pattern-read-only" in said(refused)
    assert not Permission.objects.exists()
    admin_client.post(grant, {"identity": identity.pk, "rwx": "r--"})
    assert str(Permission.objects.get().rwx) == "r--"
    row = Permission.objects.get()
    form = {"read": "on", "write": "on"}
    response = admin_client.post(page(Permission, "change", row.pk), form)
    assert response.status_code == 200
    assert "read permission" in response.content.decode()
    row.refresh_from_db()
    assert not row.write


def test_rights_are_set_in_the_matrix_and_say_who_granted_them(admin_client: Client) -> None:
    identity, contact = IdentityFactory(), ContactFactory()
    form = {"identity": identity.pk, "contact": contact.pk, "read": "on", "execute": "on"}
    assert admin_client.post(page(Permission, "add"), form).status_code == 302
    row = Permission.objects.get()
    assert (str(row.rwx), row.granted_by) == ("r-x", "operator:admin")


def test_aliases_come_and_go_by_buttons(admin_client: Client) -> None:
    contact = ContactFactory()
    admin_client.post(page(Contact, "add_alias", contact.pk), {"address": "Me@Work.example"})
    alias = ContactAlias.objects.get()
    assert alias.address == "me@work.example"
    taken = admin_client.post(
        page(Contact, "add_alias", contact.pk), {"address": "me@work.example"}
    )
    assert "address-taken" in said(taken)
    admin_client.post(page(Contact, "remove_alias", contact.pk), {"alias": alias.pk})
    assert not ContactAlias.objects.exists()


def test_an_alias_of_somebody_else_is_not_removed_from_here(admin_client: Client) -> None:
    alias = AliasFactory()
    other = ContactFactory()
    admin_client.post(page(Contact, "remove_alias", other.pk), {"alias": alias.pk})
    assert ContactAlias.objects.get() == alias


def test_a_contact_is_removed_by_its_button(admin_client: Client) -> None:
    contact = PermissionFactory().contact
    response = admin_client.post(page(Contact, "remove", contact.pk))
    assert response["Location"] == page(Contact, "changelist")
    assert not Contact.objects.exists()


@pytest.mark.django_db(transaction=True)
def test_a_key_is_pinned_from_text_or_file_outside_any_transaction(
    admin_client: Client, keys: Any
) -> None:
    contact = ContactFactory()
    upload = SimpleUploadedFile("alice.gpg", keys.alice.public)
    response = admin_client.post(page(Contact, "pin", contact.pk), {"file": upload})
    assert keys.alice.fingerprint in said(response)
    pin = PinnedKey.objects.get()
    assert pin.pinned_by == "operator:admin"
    nothing = admin_client.post(page(Contact, "pin", contact.pk), {"text": " "})
    assert "Paste a public key" in said(nothing)
    admin_client.post(page(PinnedKey, "remove", pin.pk), {"because": "revoked"})
    pin.refresh_from_db()
    assert pin.removed_at is not None


@pytest.mark.django_db(transaction=True)
def test_a_candidate_is_pinned_to_a_contact_that_a_person_chose_or_dropped(
    admin_client: Client, keys: Any
) -> None:
    contact = ContactFactory()
    for key in (keys.alice, keys.bob):
        key_services.record_candidate(key=key.public, seen_from="x@y.example", source="mail")
    alice = CandidateKey.objects.get(fingerprint=keys.alice.fingerprint)
    bob = CandidateKey.objects.get(fingerprint=keys.bob.fingerprint)
    response = admin_client.post(page(CandidateKey, "pin", alice.pk), {"contact": contact.pk})
    assert response["Location"] == page(CandidateKey, "changelist")
    assert PinnedKey.objects.get().contact == contact
    admin_client.post(page(CandidateKey, "drop", bob.pk))
    assert not CandidateKey.objects.exists()


def test_a_token_is_shown_once_and_revoked_at_once(admin_client: Client) -> None:
    form = {"label": "CI", "scopes": ["decisions:read"], "project": "", "identity": ""}
    form |= {"expires_at_0": "", "expires_at_1": ""}
    response = admin_client.post(page(ApiToken, "add"), form)
    assert response.status_code == 200
    assert "no-store" in response["Cache-Control"]
    found = re.search(r"cs_[0-9a-f]{8}_[\w-]+", response.content.decode())
    assert found is not None
    token = ApiToken.objects.get()
    assert tokens.authenticate(found.group()) == token
    shown = admin_client.get(page(ApiToken, "change", token.pk)).content.decode()
    assert found.group() not in shown
    assert token.digest not in shown
    admin_client.post(page(ApiToken, "revoke", token.pk))
    token.refresh_from_db()
    assert token.revoked_at is not None
    again = admin_client.post(page(ApiToken, "revoke", token.pk))
    assert "revoked before" in said(again)


def test_a_token_without_scopes_is_refused_at_its_field(admin_client: Client) -> None:
    response = admin_client.post(page(ApiToken, "add"), {"label": "CI"})
    assert response.status_code == 200
    assert not ApiToken.objects.exists()


ACTS = [
    (Identity, "make_default"),
    (Contact, "grant"),
    (Contact, "pin"),
    (Contact, "add_alias"),
    (Contact, "remove_alias"),
    (Contact, "remove"),
    (PinnedKey, "remove"),
    (CandidateKey, "pin"),
    (CandidateKey, "drop"),
    (ApiToken, "revoke"),
]


@pytest.mark.invariant(21)
def test_a_look_at_an_act_changes_nothing(admin_client: Client, subtests: pytest.Subtests) -> None:
    a_row_of_each()
    for model, word in ACTS:
        with subtests.test(f"{model.__name__} {word}"):
            address = page(model, word, model.objects.first().pk)
            for method in ("get", "head"):
                assert getattr(admin_client, method)(address).status_code == 405


def test_an_act_needs_a_login_with_the_right_and_a_csrf_token(
    django_user_model: Any, subtests: pytest.Subtests
) -> None:
    a_row_of_each()
    nobody, looking, strict = Client(), Client(), Client(enforce_csrf_checks=True)
    looking.force_login(django_user_model.objects.create_user("looker", is_staff=True))
    strict.force_login(django_user_model.objects.create_superuser("root"))
    for model, word in ACTS:
        with subtests.test(f"{model.__name__} {word}"):
            row = model.objects.first()
            address = page(model, word, row.pk)
            assert nobody.post(address).status_code == 302  # to the login
            assert looking.post(address).status_code == 403
            assert strict.post(address).status_code == 403
            assert model.objects.filter(pk=row.pk).exists()


def test_the_list_of_contacts_costs_the_same_queries_however_long_it_is(
    admin_client: Client,
) -> None:
    identity = IdentityFactory()

    def cost_with_more(count: int) -> int:
        for contact in ContactFactory.create_batch(count):
            PermissionFactory(identity=identity, contact=contact)
        with CaptureQueriesContext(connection) as captured:
            assert admin_client.get(page(Contact, "changelist")).status_code == 200
        return len(captured)

    cost_with_more(1)  # warms what is cached per process
    assert cost_with_more(1) == cost_with_more(20)


def test_people_and_groups_have_pages_too(admin_client: Client) -> None:
    for noun in ("user", "group"):
        assert admin_client.get(reverse(f"admin:auth_{noun}_changelist")).status_code == 200
        assert admin_client.get(reverse(f"admin:auth_{noun}_add")).status_code == 200
