"""What an operator sees of missions, in the console and in the shell, and the two ways out."""

from __future__ import annotations

import json
from datetime import timedelta
from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.test import Client
from django.urls import reverse

from pipelines import selectors
from pipelines.models import Mission, Stage
from tests.guards.factories import ContactFactory, PermissionFactory
from tests.pipelines.factories import MissionDesk, claude

pytestmark = pytest.mark.django_db


@pytest.fixture
def desk() -> MissionDesk:
    return MissionDesk()


def may_be_read(desk: MissionDesk) -> None:
    contact = ContactFactory(address="alice@example.org")
    PermissionFactory(identity=desk.pipeline.identity, contact=contact, read=True)


def page(client: Client, mission: Mission) -> str:
    answer = client.get(reverse("admin:pipelines_mission_change", args=[mission.pk]))
    assert answer.status_code == 200
    return answer.content.decode()


def press(client: Client, act: str, mission: Mission, reason: str = "it hangs") -> str:
    url = reverse(f"admin:pipelines_mission_{act}", args=[mission.pk])
    return client.post(url, {"reason": reason}, follow=True).content.decode()


def shell(*words: str) -> Any:
    out = StringIO()
    call_command("mission", *words, "--json", stdout=out)
    return [json.loads(line) for line in out.getvalue().splitlines()]


@pytest.mark.one_database
def test_the_page_shows_the_contract_beside_what_was_handed_in(
    desk: MissionDesk, admin_client: Client
) -> None:
    mission = desk.worked(prose="<b>done</b>", open_questions=["Whose site is it?"])
    may_be_read(desk)
    html = page(admin_client, mission)
    assert "&lt;b&gt;done&lt;/b&gt;" in html and "Whose site is it?" in html
    assert "Publish what the contract" in html and "site/index.html" in html
    assert "In the record" in html and "The worker handed in a result: pass." in html
    listed = admin_client.get(reverse("admin:pipelines_mission_changelist")).content.decode()
    assert f"{str(mission.pk)[:8]} · publish" in listed and "0.00 of 1.50 USD" in listed


@pytest.mark.one_database
def test_mail_that_a_person_may_not_read_is_covered(
    desk: MissionDesk, admin_client: Client
) -> None:
    mission = desk.admit()
    assert "hello" not in page(admin_client, mission)
    may_be_read(desk)
    assert "hello" in page(admin_client, mission)


@pytest.mark.one_database
def test_an_operator_releases_a_mission_that_began(desk: MissionDesk, admin_client: Client) -> None:
    mission = desk.worked()
    assert "Abandon the mission" not in page(admin_client, mission)
    assert "already-dispatched" in press(admin_client, "abandon", mission)
    assert "others may change these files" in press(admin_client, "release", mission)
    mission.refresh_from_db()
    assert (mission.status, mission.released_by) == ("failed", "operator:admin")
    assert "Release the write set" not in page(admin_client, mission)


@pytest.mark.one_database
@pytest.mark.fault("sister-53")
def test_an_operator_abandons_a_mission_that_never_began(
    desk: MissionDesk, admin_client: Client
) -> None:
    mission = desk.admit()
    assert "say why" in press(admin_client, "abandon", mission, reason=" ").lower()
    press(admin_client, "abandon", mission)
    mission.refresh_from_db()
    assert (mission.status, mission.reason) == ("abandoned", "it hangs")


@pytest.mark.one_database
def test_whoever_may_only_look_presses_nothing(desk: MissionDesk, client: Client) -> None:
    from django.contrib.auth.models import Permission, User

    user = User.objects.create_user("otto", password="otto-pass-1", is_staff=True)
    user.user_permissions.set(Permission.objects.filter(codename="view_mission"))
    client.force_login(user)
    mission = desk.worked()
    assert "Release the write set" not in page(client, mission)
    url = reverse("admin:pipelines_mission_release", args=[mission.pk])
    assert client.post(url, {"reason": "x"}).status_code == 403
    mission.refresh_from_db()
    assert mission.status == "open"


@pytest.mark.one_database
@pytest.mark.fault("sister-52")
def test_a_mission_that_holds_others_up_is_called_stuck(
    desk: MissionDesk, admin_client: Client
) -> None:
    mission = desk.worked()
    assert not selectors.stuck_missions().exists()
    Stage.objects.filter(pk=desk.stage.pk).update(status="failed", lease_until=None)
    assert selectors.stuck_missions().get() == mission
    assert "It holds others up." in page(admin_client, mission)
    assert [row["id"] for row in shell("list", "--stuck")] == [str(mission.pk)]


def test_a_quiet_mission_is_stuck_only_when_it_keeps_a_write_set(
    desk: MissionDesk, monkeypatch: pytest.MonkeyPatch
) -> None:
    mission, harmless = desk.admit(), MissionDesk(claude("read", write_set=[])).admit()
    assert not selectors.stuck_missions().exists()
    monkeypatch.setattr(selectors, "IDLE", timedelta(seconds=-60))
    assert list(selectors.stuck_missions()) == [mission]
    assert harmless.status == Mission.Status.OPEN


@pytest.mark.one_database
def test_the_shell_lists_and_shows_missions(desk: MissionDesk) -> None:
    mission = desk.worked()
    may_be_read(desk)
    (listed,) = shell("list", "--status", "open")
    (shown,) = shell("show", str(mission.pk)[:8])
    assert listed["id"] == shown["id"] == str(mission.pk)
    assert shown["contract"]["inputs"]["args"] == {"target": "site"}
    assert shell("list", "--status", "closed") == []
    out = StringIO()
    call_command("mission", "show", str(mission.pk), stdout=out)
    assert "round 1: pass (0.9) It is published." in out.getvalue()


@pytest.mark.one_database
def test_the_shell_releases_and_abandons(desk: MissionDesk) -> None:
    mission = desk.admit()
    (ended,) = shell("abandon", str(mission.pk), "--reason", "not needed")
    assert (ended["status"], ended["closed_by"]) == ("abandoned", "operator:shell")
    with pytest.raises(CommandError, match="has ended"):
        shell("release", str(mission.pk), "--reason", "again")


@pytest.mark.one_database
@pytest.mark.parametrize("named", ["zzzz", "12", "0" * 33, "00000000"])
def test_the_shell_refuses_what_names_no_mission(desk: MissionDesk, named: str) -> None:
    with pytest.raises(CommandError) as refused:
        shell("show", named)
    assert refused.value.returncode == 2
