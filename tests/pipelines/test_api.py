"""`/api/v1`: pipelines, stages, commands and rules, by scope and by the token's identity."""

from __future__ import annotations

import pytest
from django.utils import timezone
from ninja import NinjaAPI
from ninja.testing import TestClient

from guards.fronts.api import install_handlers
from guards.services import tokens
from mail.models import Message
from pipelines.covering import COVERED
from pipelines.models import Command, Pipeline
from pipelines.services import missions, rules
from tests.guards.factories import ContactFactory, IdentityFactory, PermissionFactory
from tests.pipelines.factories import (
    OPERATOR,
    AccountFactory,
    MessageFactory,
    MissionDesk,
    PipelineFactory,
    StageFactory,
    claude,
)

pytestmark = pytest.mark.django_db


@pytest.fixture(scope="module")
def client() -> TestClient:
    from pipelines.api import router

    api = NinjaAPI(urls_namespace="pipelines-under-test")
    install_handlers(api)
    api.add_router("", router)
    return TestClient(api)


def bearer(scopes=("pipelines:read",), identity=None) -> dict[str, str]:
    _, secret = tokens.mint(label="test", scopes=list(scopes), identity=identity, by=OPERATOR)
    return {"Authorization": f"Bearer {secret}"}


def pipeline_of(identity) -> object:
    account = AccountFactory(identity=identity)
    return PipelineFactory(message=MessageFactory(account=account))


def test_a_token_sees_the_pipelines_of_its_identity(client):
    mine, other = IdentityFactory(), IdentityFactory()
    pipeline, hidden = pipeline_of(mine), pipeline_of(other)
    StageFactory(pipeline=pipeline, argv=[["/bin/echo", "x"]])
    grant(pipeline, "r--")

    headers = bearer(identity=mine)
    listed = client.get("/pipelines", headers=headers).json()
    assert [row["id"] for row in listed["items"]] == [str(pipeline.pk)]
    assert (
        client.get(f"/pipelines/{pipeline.pk}", headers=headers).json()["identity"] == mine.handle
    )
    stages = client.get(f"/pipelines/{pipeline.pk}/stages", headers=headers).json()
    assert [(row["command"], row["argv"]) for row in stages] == [("reply", [["/bin/echo", "x"]])]
    for path in (f"/pipelines/{hidden.pk}", f"/pipelines/{hidden.pk}/stages"):
        assert client.get(path, headers=headers).status_code == 404
    assert len(client.get("/pipelines", headers=bearer()).json()["items"]) == 2


def test_a_long_list_is_cut_and_filtered(client):
    identity = IdentityFactory()
    for status in ("completed", "failed", "completed"):
        pipeline = pipeline_of(identity)
        type(pipeline).objects.filter(pk=pipeline.pk).update(status=status)

    first = client.get("/pipelines?limit=2", headers=bearer()).json()
    rest = client.get(f"/pipelines?cursor={first['next_cursor']}", headers=bearer()).json()
    assert len({row["id"] for row in first["items"] + rest["items"]}) == 3
    failed = client.get("/pipelines?status=failed", headers=bearer()).json()["items"]
    assert [row["status"] for row in failed] == ["failed"]
    assert client.get("/pipelines?status=odd", headers=bearer()).status_code == 422


@pytest.mark.one_database
def test_commands_are_shown_with_the_state_of_their_signature(client, owner):
    owner.install()
    from pipelines.services import commands
    from tests.pipelines.factories import cli

    commands.load_file(owner.write(cli("unsigned"), signature=""), by=OPERATOR)

    rows = client.get("/commands", headers=bearer()).json()["items"]

    assert [(row["name"], row["signature_state"]) for row in rows] == [
        ("greet", "ok"), ("unsigned", "missing")
    ]  # fmt: skip
    assert rows[0]["document"]["binary"] == "echo"


def test_rules_are_those_that_may_plan_for_the_token(client):
    mine, other = IdentityFactory(), IdentityFactory()
    for name, identity in (("all", None), ("mine", mine), ("other", other)):
        rules.save_rule(
            name=name, match="x", calls=[{"command": "greet"}], identity=identity, by=OPERATOR
        )

    rows = client.get("/rules", headers=bearer(identity=mine)).json()

    assert [(row["name"], row["identity"]) for row in rows] == [
        ("all", None),
        ("mine", mine.handle),
    ]


@pytest.mark.one_database
@pytest.mark.parametrize("path", ["/pipelines", "/commands", "/rules"])
def test_without_the_scope_nothing_is_shown(client, path):
    assert client.get(path).status_code == 401
    refused = client.get(path, headers=bearer(scopes=("messages:read",)))
    assert (refused.status_code, refused.json()["code"]) == (403, "refused")


@pytest.mark.one_database
def test_a_token_sees_the_missions_of_its_identity_whole(client):
    desk, hidden = MissionDesk(), MissionDesk(claude("other", project="api"))
    mission, other = desk.worked(), hidden.admit()
    headers = bearer(identity=desk.pipeline.identity)
    may(desk, read=True)

    listed = client.get("/missions", headers=headers).json()
    assert [row["id"] for row in listed["items"]] == [str(mission.pk)]
    assert client.get("/missions?status=closed", headers=headers).json()["items"] == []
    whole = client.get(f"/missions/{mission.pk}", headers=headers).json()
    assert whole["contract"] == mission.contract
    assert whole["results"][0]["output"] == "published"
    assert [event["kind"] for event in whole["events"]] == ["opened", "dispatched", "result"]
    assert client.get(f"/missions/{other.pk}", headers=headers).status_code == 404


def may(desk: MissionDesk, *, read: bool) -> None:
    grant(desk.pipeline, "r-x" if read else "--x")


def grant(pipeline: Pipeline, rwx: str) -> None:
    """What the sender of its mail holds from now on."""
    contact = ContactFactory(address=pipeline.message.sender)
    read, write, execute = (letter != "-" for letter in rwx)
    PermissionFactory(
        identity=pipeline.identity, contact=contact, read=read, write=write, execute=execute
    )


@pytest.mark.one_database
@pytest.mark.parametrize("read", [True, False])
def test_what_came_of_mail_that_may_not_be_read_is_covered_in_its_mission(client, read: bool):
    desk = MissionDesk()
    mission = desk.worked()
    may(desk, read=read)
    address, headers = f"/missions/{mission.pk}", bearer(identity=desk.pipeline.identity)
    whole = client.get(address, headers=headers).json()
    inputs, (result,) = whole["contract"]["inputs"], whole["results"]
    shown = [inputs["args"]["target"], inputs["pipeline_output"], result["prose"], result["output"]]
    assert [text == COVERED for text in shown] == [not read] * 4
    assert whole["contract_sha256"] == mission.contract_sha256
    assert whole["contract"]["task"] == mission.contract["task"]
    assert (result["verdict"], result["round"]) == ("pass", 1)


def asked_and_answered() -> Pipeline:
    """A pipeline whose arguments, outputs and errors all hold words of its mail."""
    pipeline = PipelineFactory(
        status="failed", plan=[{"command": "greet", "args": {"name": "Zoe"}}], error="greet: Zoe?"
    )
    StageFactory(
        pipeline=pipeline,
        position=1,
        command="greet",
        args={"name": "Zoe"},
        argv=[["/bin/echo", "Zoe"]],
        output="Hello Zoe",
        output_size=9,
        stderr="no Zoe",
        error="Zoe?",
        exit_code=1,
    )
    return pipeline


@pytest.mark.one_database
@pytest.mark.parametrize("rwx", ["rwx", "-wx", "---"])
def test_arguments_and_outputs_of_mail_that_may_not_be_read_are_covered(client, rwx: str):
    pipeline = asked_and_answered()
    grant(pipeline, rwx)
    headers = bearer(identity=pipeline.identity)
    one = client.get(f"/pipelines/{pipeline.pk}", headers=headers).json()
    (listed,) = client.get("/pipelines", headers=headers).json()["items"]
    (stage,) = client.get(f"/pipelines/{pipeline.pk}/stages", headers=headers).json()
    assert one == listed
    assert ("Zoe" in str(one), "Zoe" in str(stage)) == (rwx[0] == "r",) * 2
    if rwx[0] == "r":
        assert (stage["argv"], stage["output"]) == ([["/bin/echo", "Zoe"]], "Hello Zoe")
        return
    assert one["plan"] == [{"command": "greet", "args": {"name": COVERED}}]
    assert (stage["args"], stage["argv"]) == ({"name": COVERED}, [[COVERED]])
    assert [stage[name] for name in ("output", "stderr", "error")] == [COVERED] * 3
    assert (stage["exit_code"], stage["output_size"], stage["status"]) == (1, 9, "pending")


@pytest.mark.one_database
def test_what_a_person_has_revealed_stays_covered_for_tokens(client):
    pipeline = asked_and_answered()
    Message.objects.filter(pk=pipeline.message_id).update(revealed_at=timezone.now())
    (stage,) = client.get(f"/pipelines/{pipeline.pk}/stages", headers=bearer()).json()
    assert stage["output"] == COVERED


def test_a_list_of_covered_and_readable_ones_asks_once_for_all(
    client, django_assert_max_num_queries
):
    covered, readable = asked_and_answered(), asked_and_answered()
    grant(readable, "r-x")
    headers = bearer()
    with django_assert_max_num_queries(8):
        items = client.get("/pipelines", headers=headers).json()["items"]
    assert {row["id"]: "Zoe" in str(row) for row in items} == {
        str(covered.pk): False,
        str(readable.pk): True,
    }


def test_a_name_that_no_database_takes_is_refused(client):
    for name in ("%00", "x" * 65, ""):
        refused = client.get(f"/missions?command={name}", headers=bearer())
        assert (refused.status_code, refused.json()["field"]) == (422, "command")


@pytest.mark.one_database
def test_a_row_that_holds_no_document_hides_no_other_command(client):
    Command.objects.create(name="broken", document=[], digest="", serial=0)
    Command.objects.create(name="whole", document={"name": "whole"}, digest="", serial=0)
    rows = client.get("/commands", headers=bearer()).json()["items"]
    assert [row["document"] for row in rows] == [{}, {"name": "whole"}]


@pytest.mark.one_database
def test_a_missions_own_token_lists_no_missions(client):
    desk = MissionDesk()
    _, secret = missions.dispatch(mission=desk.admit())
    refused = client.get("/missions", headers={"Authorization": f"Bearer {secret}"})
    assert refused.status_code == 403
    assert refused.json()["rule"] == "scope-missing"
