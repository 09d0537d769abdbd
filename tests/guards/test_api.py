"""`/api/v1` of guards: scopes are asked for, and every refusal names its rule in one shape."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from django.test import Client

from guards.exceptions import InvalidInput
from guards.fronts.api import TokenAuth, take_page
from guards.models import Decision
from guards.services import contacts, decisions, tokens
from guards.types import SYSTEM, Action, Judgement, Rule, Rwx, Subject, Verdict
from tests.guards.factories import OPERATOR, ContactFactory, IdentityFactory

pytestmark = pytest.mark.django_db

ALL = ["contacts:read", "decisions:read", "identities:read"]
LISTS = {
    "/api/v1/decisions": "decisions:read",
    "/api/v1/contacts": "contacts:read",
    "/api/v1/identities": "identities:read",
}


def caller(scopes: list[str], identity: object = None) -> Client:
    _, secret = tokens.mint(label="caller", scopes=scopes, identity=identity, by=OPERATOR)
    return Client(headers={"authorization": f"Bearer {secret}"})


def cursor_of(text: str) -> str:
    """A cursor as it would be given out, with a content of our own."""
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def answer(client: Client, address: str, status: int = 200) -> Any:
    response = client.get(address)
    assert response.status_code == status, response.content
    return json.loads(response.content)


def decide(identity: object, rule: Rule = Rule.READ_PERMITTED, number: int = 1) -> None:
    decisions.record_decision(
        judgement=Judgement(Action.READ, Verdict.ALLOW, rule, {"trust": "verified"}),
        asker=SYSTEM,
        subject=Subject("mail.message", str(number)),
        identity_id=identity.pk,
        sender="ada@example.org",
        permission=Rwx(read=True),
    )


@pytest.mark.one_database
@pytest.mark.parametrize("address", [*LISTS, "/api/v1/whoami"])
@pytest.mark.parametrize(
    ("header", "rule"),
    [
        ("", "token-missing"),
        ("Basic abc", "token-missing"),
        ("Bearer cs_00000000_guess", "token-unknown"),
        ("Bearer ", "token-unknown"),
    ],
)
def test_without_a_token_that_counts_nothing_is_shown(address: str, header: str, rule: str) -> None:
    response = Client(headers={"authorization": header} if header else {}).get(address)
    assert response.status_code == 401
    assert response["WWW-Authenticate"] == "Bearer"
    body = json.loads(response.content)
    assert set(body) == {"code", "message", "field", "rule"}
    assert (body["code"], body["rule"]) == ("not-authenticated", rule)


@pytest.mark.one_database
@pytest.mark.parametrize(("address", "scope"), LISTS.items())
def test_each_list_asks_for_its_own_scope(address: str, scope: str) -> None:
    others = [other for other in ALL if other != scope]
    refused = answer(caller(others), address, 403)
    assert (refused["code"], refused["rule"]) == ("refused", "scope-missing")
    assert scope in refused["message"]
    assert answer(caller([scope]), address)["items"] == []


@pytest.mark.one_database
def test_a_revoked_token_is_refused_at_its_next_call() -> None:
    token, secret = tokens.mint(label="ci", scopes=ALL, by=OPERATOR)
    client = Client(headers={"authorization": f"Bearer {secret}"})
    assert answer(client, "/api/v1/whoami")["prefix"] == token.prefix
    tokens.revoke(token=token, by=OPERATOR)
    assert answer(client, "/api/v1/whoami", 401)["rule"] == "token-revoked"


@pytest.mark.one_database
def test_whoami_says_what_the_token_may() -> None:
    identity = IdentityFactory(handle="claude", name="Claude")
    shown = answer(caller(["decisions:read"], identity), "/api/v1/whoami")
    assert (shown["identity"], shown["name"], shown["kind"]) == ("claude", "Claude", "agent")
    assert shown["scopes"] == ["decisions:read"]
    assert "digest" not in shown


@pytest.mark.one_database
def test_whoami_names_the_person_and_for_a_token_of_nobody_nobody() -> None:
    person = IdentityFactory(handle="zoe", name="Zoe Marsh", kind="human")
    shown = answer(caller(ALL, person), "/api/v1/whoami")
    assert (shown["name"], shown["kind"]) == ("Zoe Marsh", "human")
    nobodys = answer(caller(ALL), "/api/v1/whoami")
    assert (nobodys["identity"], nobodys["name"], nobodys["kind"]) == (None, None, None)


@pytest.mark.one_database
def test_a_token_of_an_identity_sees_that_identitys_decisions_only() -> None:
    mine, other = IdentityFactory(), IdentityFactory()
    decide(mine, number=1)
    decide(other, number=2)
    (shown,) = answer(caller(ALL, mine), "/api/v1/decisions")["items"]
    assert (shown["subject_id"], shown["identity"]) == ("1", mine.handle)
    assert shown["evidence"] == {"trust": "verified"}
    assert len(answer(caller(ALL), "/api/v1/decisions")["items"]) == 2


@pytest.mark.one_database
def test_a_projects_token_without_an_identity_sees_nobodys_rows() -> None:
    identity = IdentityFactory()
    decide(identity)
    contacts.add_contact(address="a@example.org", by=OPERATOR)
    _, secret = tokens.mint(label="ci", scopes=ALL, project="apollo", by=OPERATOR)
    bound = Client(headers={"authorization": f"Bearer {secret}"})
    for address in LISTS:
        assert answer(bound, address)["items"] == [], address
        assert answer(caller(ALL), address)["items"] != [], address


def test_decisions_are_filtered_by_rule_verdict_and_subject() -> None:
    identity = IdentityFactory()
    decide(identity, Rule.READ_PERMITTED, 1)
    decide(identity, Rule.WRITE_PERMITTED, 2)
    client = caller(ALL)
    for query in ("rule=write-permitted", "subject_type=mail.message&subject_id=2"):
        (shown,) = answer(client, f"/api/v1/decisions?{query}")["items"]
        assert shown["rule"] == "write-permitted"
    assert answer(client, "/api/v1/decisions?verdict=deny")["items"] == []
    wrong = answer(client, "/api/v1/decisions?rule=because", 422)
    assert (wrong["code"], wrong["field"]) == ("invalid-input", "rule")


def test_pages_follow_each_other_without_gap_or_repetition_while_rows_arrive() -> None:
    identity = IdentityFactory()
    for number in range(5):
        decide(identity, number=number)
    client = caller(ALL)
    seen: list[str] = []
    cursor = ""
    while True:
        page = answer(client, f"/api/v1/decisions?limit=2&cursor={cursor}")
        seen += [item["subject_id"] for item in page["items"]]
        decide(identity, number=99)
        cursor = page["next_cursor"]
        if cursor is None:
            break
    assert seen == ["4", "3", "2", "1", "0"]


@pytest.mark.one_database
@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("limit=0", "limit"),
        ("limit=201", "limit"),
        ("limit=x", "limit"),
        ("cursor=abc", "cursor"),
        ("cursor=W251bGwsbnVsbF0", "cursor"),
        ("cursor=%00", "cursor"),
        (f"cursor={cursor_of('[' * 700)}", "cursor"),
        (f"cursor={'A' * 5000}", "cursor"),
    ],
)
def test_a_page_that_makes_no_sense_is_refused_by_its_field(query: str, field: str) -> None:
    wrong = answer(caller(ALL), f"/api/v1/contacts?{query}", 422)
    assert (wrong["code"], wrong["field"]) == ("invalid-input", field)


@pytest.mark.parametrize(
    ("address", "field"),
    [
        ("/api/v1/decisions?subject_type=%00", "subject_type"),
        ("/api/v1/decisions?subject_id=1%002", "subject_id"),
        ("/api/v1/events?project=%00", "project"),
        ("/api/v1/projects/%00/events", None),
    ],
)
def test_an_address_that_no_database_takes_is_refused(address: str, field: str | None) -> None:
    wrong = answer(caller([*ALL, "events:read"]), address, 422)
    assert (wrong["code"], wrong["field"]) == ("invalid-input", field)


@pytest.mark.parametrize(
    "moment", ["0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-12:00", "2026-13-01", "1"]
)
def test_a_cursor_with_a_moment_that_no_database_holds_is_refused(moment: str) -> None:
    cursor = cursor_of(json.dumps([moment, "1"]))
    with pytest.raises(InvalidInput) as wrong:
        take_page(Decision.objects.all(), cursor=cursor, key="at")
    assert wrong.value.field == "cursor"


def test_a_cursor_with_half_a_character_is_a_place_like_any_other() -> None:
    cursor = cursor_of(json.dumps(["\ud800", "1"]))
    assert take_page(Decision.objects.all(), cursor=cursor, key="sender").items == []


@pytest.mark.one_database
def test_contacts_show_the_rights_for_the_callers_identity_only() -> None:
    mine, other = IdentityFactory(), IdentityFactory()
    contacts.add_contact(
        address="ada@example.org",
        aliases=["ada@work.example"],
        grants={mine: Rwx(read=True), other: Rwx(True, True, True)},
        by=OPERATOR,
    )
    (shown,) = answer(caller(ALL, mine), "/api/v1/contacts")["items"]
    assert shown["aliases"] == ["ada@work.example"]
    assert shown["rights"] == [{"identity": mine.handle, "rwx": "r--"}]
    (whole,) = answer(caller(ALL), "/api/v1/contacts")["items"]
    assert len(whole["rights"]) == 2


def test_the_address_book_costs_the_same_queries_however_long_it_is(
    django_assert_max_num_queries: Any,
) -> None:
    ContactFactory.create_batch(30)
    client = caller(ALL)
    with django_assert_max_num_queries(8):
        assert len(answer(client, "/api/v1/contacts")["items"]) == 30


@pytest.mark.one_database
def test_identities_show_neither_the_keys_home_nor_the_secrets_reference() -> None:
    identity = IdentityFactory(gpg_home="/srv/gpg", passphrase_ref="env:CLAUDE")
    IdentityFactory()
    (shown,) = answer(caller(ALL, identity), "/api/v1/identities")["items"]
    assert shown["handle"] == identity.handle
    assert "/srv/gpg" not in str(shown)
    assert "env:" not in str(shown)


def test_an_address_cannot_ask_for_a_scope_that_nobody_registered() -> None:
    with pytest.raises(ValueError, match="decision:read"):
        TokenAuth("decision:read")


@pytest.mark.one_database
@pytest.mark.fault("sister-16")
def test_a_strangers_address_stands_in_the_decision_that_held_the_mail() -> None:
    identity = IdentityFactory()
    judgement = decisions.decide_read(
        action=Action.SURFACE, sender="stranger@example.net", permission=Rwx()
    )
    decisions.record_decision(
        judgement=judgement,
        asker=SYSTEM,
        subject=Subject("mail.message", "1"),
        identity_id=identity.pk,
        sender="stranger@example.net",
    )
    (shown,) = answer(caller(ALL, identity), "/api/v1/decisions")["items"]
    assert (shown["sender"], shown["verdict"], shown["rule"]) == (
        "stranger@example.net",
        "hold",
        "no-permission",
    )


@pytest.mark.one_database
def test_the_description_of_the_api_names_the_error_shape_of_every_operation() -> None:
    described = answer(Client(), "/api/v1/openapi.json")
    for address in (*LISTS, "/api/v1/whoami"):
        answers = described["paths"][address]["get"]["responses"]
        for status in ("401", "403", "422"):
            shape = answers[status]["content"]["application/json"]["schema"]["$ref"]
            assert shape == "#/components/schemas/ErrorOut"


@pytest.mark.one_database
@pytest.mark.parametrize(
    ("method", "address", "status", "code"),
    [
        ("get", "/api/v1/nowhere", 404, "not-found"),
        ("get", "/api/v2/decisions", 404, "not-found"),
        ("post", "/api/v1/decisions", 405, "method-not-allowed"),
        ("delete", "/api/v1/whoami", 405, "method-not-allowed"),
    ],
)
def test_a_wrong_address_or_method_is_refused_in_the_same_shape(
    method: str, address: str, status: int, code: str
) -> None:
    response = getattr(Client(), method)(address)
    assert response.status_code == status
    assert json.loads(response.content) == {
        "code": code,
        "message": json.loads(response.content)["message"],
        "field": None,
        "rule": None,
    }
    assert ("GET" in response.headers.get("Allow", "")) == (status == 405)


@pytest.mark.one_database
def test_pages_outside_the_api_keep_their_own_errors() -> None:
    response = Client().get("/nowhere")
    assert response.status_code == 404
    assert response["Content-Type"].startswith("text/html")
