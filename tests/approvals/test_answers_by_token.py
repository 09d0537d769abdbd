"""A person's own token opens drafts and answers them; an agent's never does."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.test import Client, RequestFactory
from django.urls import reverse

from approvals.admin.fields import reason_given
from approvals.models import Approval, Effect, Hold
from guards.exceptions import InvalidInput
from guards.models import ApiToken, IdempotentCall, Identity
from guards.selectors import person_of
from guards.services import identities, tokens
from tests.approvals import factories
from tests.approvals.kinds import CountingKind

pytestmark = pytest.mark.django_db


def client_of(kind: str | None, *scopes: str, **options: Any) -> Client:
    identity: Identity | None = None
    if kind is not None:
        identity = identities.create_identity(
            handle=f"one-{kind}",
            name=f"One {kind.capitalize()}",
            email=f"{kind}@example.org",
            kind=kind,
            by=factories.OPERATOR,
        )
    wanted = list(scopes) or ["approvals:answer", "approvals:read"]
    token, secret = tokens.mint(
        label="answers",
        scopes=wanted if kind == "human" else ["approvals:read"],
        identity=identity,
        by=factories.OPERATOR,
        **options,
    )
    ApiToken.objects.filter(pk=token.pk).update(scopes=wanted)  # as one from before was minted
    return Client(headers={"authorization": f"Bearer {secret}"})


def post(client: Client, path: str, key: str = "k-1", **body: Any) -> Any:
    return client.post(
        f"/api/v1{path}",
        data=json.dumps(body),
        content_type="application/json",
        headers={"Idempotency-Key": key},
    )


@pytest.fixture
def person() -> Client:
    return client_of("human")


def test_a_person_opens_reads_and_approves_exactly_once(kind: CountingKind, person) -> None:
    hold = factories.held()
    opened = post(person, f"/holds/{hold.pk}/open").json()
    assert opened["preview"]["text"] == "exactly these bytes"
    assert 0 < opened["seconds_left"] <= 300
    read = person.get(f"/api/v1/approvals/{opened['id']}").json()
    assert read["digest"] == opened["digest"]
    path = f"/approvals/{opened['id']}/approve"
    yes = post(person, path, digest=opened["digest"])
    assert (yes.status_code, yes.json()["state"]) == (200, "consumed")
    assert yes.json()["decided_via"] == "token"
    again = post(person, path, digest=opened["digest"])
    assert (again.json()["replayed"], again["Idempotency-Replayed"]) == (True, "true")
    assert post(person, path, key="k-2", digest=opened["digest"]).status_code == 200
    assert Effect.objects.count() == 1


@pytest.mark.one_database
def test_a_yes_to_something_else_than_was_shown_is_refused(kind: CountingKind, person) -> None:
    opened = post(person, f"/holds/{factories.held().pk}/open").json()
    no = post(person, f"/approvals/{opened['id']}/approve", digest="0" * 64)
    assert (no.status_code, no.json()["code"]) == (409, "digest-mismatch")
    assert not Effect.objects.exists()


@pytest.mark.one_database
@pytest.mark.parametrize(
    ("answer", "state"), [("reject", "rejected"), ("request-changes", "changes_requested")]
)
def test_a_no_needs_its_reason(kind: CountingKind, person, answer: str, state: str) -> None:
    opened = post(person, f"/holds/{factories.held().pk}/open").json()
    path = f"/approvals/{opened['id']}/{answer}"
    assert post(person, path, reason=" ").json()["field"] == "reason"
    assert post(person, path, reason="not yet").json()["state"] == state
    assert Approval.objects.get().reason == "not yet"
    assert not Effect.objects.exists()


@pytest.mark.one_database
@pytest.mark.parametrize("answer", ["reject", "request-changes"])
def test_a_no_whose_answer_was_lost_is_repeated_and_another_one_is_refused(
    kind: CountingKind, person, answer: str
) -> None:
    opened = post(person, f"/holds/{factories.held().pk}/open").json()
    path = f"/approvals/{opened['id']}/{answer}"
    first = post(person, path, reason="not yet").json()
    IdempotentCall.objects.update(answer=None)  # the process died before it could say so
    again = post(person, path, reason="not yet")
    assert (again.status_code, again.json()["decided_at"]) == (200, first["decided_at"])
    assert post(person, path, key="k-2", reason="never").status_code == 409
    assert Approval.objects.get().reason == "not yet"


def test_a_reason_that_no_database_takes_is_cleaned_and_one_of_nothing_else_refused(
    kind: CountingKind, person
) -> None:
    opened = post(person, f"/holds/{factories.held().pk}/open").json()
    path = f"/approvals/{opened['id']}/reject"
    assert post(person, path, reason=" \n").json()["field"] == "reason"
    assert post(person, path, reason="not\0yet ").json()["reason"] == "not\ufffdyet"
    assert Hold.objects.get().answer == "not\ufffdyet"


@pytest.mark.parametrize(("given", "kept"), [("not\0yet ", "not\ufffdyet"), (" ", None)])
def test_so_is_one_of_a_form_of_the_console(given: str, kept: str | None) -> None:
    request = RequestFactory().post("/", {"reason": given})
    if kept is not None:
        assert reason_given(request) == kept
        return
    with pytest.raises(InvalidInput) as refused:
        reason_given(request)
    assert refused.value.field == "reason"


@pytest.mark.one_database
def test_a_body_that_is_too_large_is_refused_in_the_one_shape(
    kind: CountingKind, person, settings: Any
) -> None:
    opened = post(person, f"/holds/{factories.held().pk}/open").json()
    path = f"/approvals/{opened['id']}/reject"
    refused = post(person, path, reason="x" * settings.DATA_UPLOAD_MAX_MEMORY_SIZE)
    assert (refused.status_code, refused.json()["code"]) == (413, "too-large")
    assert (refused.json()["field"], Approval.objects.get().state) == ("body", "pending")
    assert post(person, path, reason="x" * 2_000).status_code == 200


@pytest.mark.one_database
@pytest.mark.parametrize("holder", ["agent", None])
def test_a_token_that_is_no_persons_neither_opens_nor_reads_nor_answers(
    kind: CountingKind, holder: str | None
) -> None:
    approval = factories.opened(requested_by=factories.Asker("identity", "one-agent"))
    other = client_of(holder)
    hold = factories.held(requested_by=factories.Asker("identity", "one-agent"))
    for answer in (
        post(other, f"/holds/{hold.pk}/open"),
        other.get(f"/api/v1/approvals/{approval.pk}"),
        post(other, f"/approvals/{approval.pk}/approve", digest=approval.digest),
        post(other, f"/approvals/{approval.pk}/reject", key="k-3", reason="no"),
    ):
        assert (answer.status_code, answer.json()["rule"]) in {
            (403, "not-a-person"),
            (403, "own-act"),
        }
    approval.refresh_from_db()
    assert approval.state == "pending"


@pytest.mark.one_database
def test_answering_needs_its_scope_and_the_project(kind: CountingKind) -> None:
    approval = factories.opened(project="apollo")
    reader = client_of("human", "approvals:read")
    assert reader.get(f"/api/v1/approvals/{approval.pk}").status_code == 403
    elsewhere = client_of(None, project="gemini")
    assert elsewhere.get(f"/api/v1/approvals/{approval.pk}").status_code in (403, 404)
    unknown = post(elsewhere, f"/approvals/{approval.pk}/approve", digest=approval.digest)
    assert unknown.status_code == 404


@pytest.mark.one_database
def test_a_get_changes_nothing(kind: CountingKind, person) -> None:
    approval = factories.opened()
    for path in ("approve", "reject", "request-changes"):
        assert person.get(f"/api/v1/approvals/{approval.pk}/{path}").status_code == 405
    approval.refresh_from_db()
    assert approval.state == "pending"


@pytest.mark.one_database
def test_the_console_names_the_person_whose_token_answered_to_whom_may_see_tokens(
    kind: CountingKind, person, admin_client: Client
) -> None:
    approval = factories.opened()
    post(person, f"/approvals/{approval.pk}/reject", reason="not yet")
    approval.refresh_from_db()
    name = Identity.objects.get(kind="human").name
    page = reverse("admin:approvals_approval_change", args=[approval.pk])
    assert f"{name} ({approval.decided_by})" in admin_client.get(page).content.decode()

    looker = User.objects.create_user("otto", password="otto-pass-1", is_staff=True)
    looker.user_permissions.set(Permission.objects.filter(codename="view_approval"))
    browser = Client()
    browser.force_login(looker)
    shown = browser.get(page).content.decode()
    assert approval.decided_by in shown and name not in shown


@pytest.mark.one_database
def test_an_agents_token_has_no_persons_name(kind: CountingKind) -> None:
    for kind_of in ("human", "agent"):
        client_of(kind_of)
    named = {
        str(token.identity and token.identity.kind): person_of(f"token:{token.prefix}")
        for token in ApiToken.objects.select_related("identity")
    }
    assert named == {"human": Identity.objects.get(kind="human").name, "agent": ""}
    assert [person_of(other) for other in ("operator:ada", "token:", "token:cs_none", "")] == [
        ""
    ] * 4
