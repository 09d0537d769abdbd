"""The API reads events by cursor; a project's token learns nothing of another project."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client

from guards.services import tokens
from guards.types import Asker
from teams.services import projects
from tests.teams.conftest import Fill

pytestmark = pytest.mark.django_db

OPERATOR = Asker("operator", "ada")


def asking(*scopes: str, project: str = "") -> Client:
    _, secret = tokens.mint(
        label="reader", scopes=scopes or ["events:read"], project=project, by=OPERATOR
    )
    return Client(headers={"authorization": f"Bearer {secret}"})


def get(client: Client, path: str, status: int = 200) -> Any:
    answer = client.get(f"/api/v1{path}")
    assert answer.status_code == status, answer.content
    return answer.json()


def test_events_come_in_pages_by_cursor(fill: Fill) -> None:
    client = asking()
    fill(5)
    first = get(client, "/events?limit=4")
    assert [item["seq"] for item in first["items"]] == [1, 2, 3, 4]
    assert (first["cursor"], first["head"]) == (4, 6)
    second = get(client, f"/events?limit=4&cursor={first['cursor']}")
    assert [item["seq"] for item in second["items"]] == [5, 6]
    assert second["cursor"] == 6
    assert get(client, "/events?cursor=6")["items"] == []


@pytest.mark.one_database
def test_an_event_carries_its_sentence_and_hash(fill: Fill) -> None:
    client = asking()
    fill(1)
    item = get(client, "/events?cursor=1")["items"][0]
    assert item["text"] == "ada changed the project p0."
    assert item["subject"] == {"type": "teams.project", "id": "p0"}
    assert len(item["hash"]) == 64


def test_kinds_narrow_the_list_and_the_cursor_still_moves_on(fill: Fill) -> None:
    client = asking()
    fill(2)
    fill(1, kind="project.created")
    page = get(client, "/events?kind=project.created&kind=token.minted")
    assert [item["seq"] for item in page["items"]] == [1, 4]
    assert page["cursor"] == 4


@pytest.mark.one_database
def test_a_cursor_beyond_the_head_is_a_conflict(fill: Fill) -> None:
    client = asking()
    assert get(client, "/events?cursor=99", 409)["code"] == "cursor-beyond-head"
    assert get(client, "/events?cursor=-1", 422)["field"]
    assert get(client, "/events?limit=0", 422)["field"] == "limit"


@pytest.mark.one_database
def test_a_projects_token_learns_nothing_of_another(fill: Fill) -> None:
    projects.create_project(slug="apollo", by=OPERATOR)
    projects.create_project(slug="gemini", by=OPERATOR)
    fill(1, project="gemini")
    fill(1)
    client = asking(project="apollo")
    for path in ("/events", "/events?project=gemini", "/projects/apollo/events"):
        assert {item["project"] for item in get(client, path)["items"]} == {"apollo"}
    assert [item["slug"] for item in get(client, "/projects")["items"]] == ["apollo"]
    unknown = get(client, "/projects/nowhere/events", 404)
    other = get(client, "/projects/gemini/events", 404)
    assert other["code"] == unknown["code"]
    assert get(asking(), "/projects/gemini/events")["items"][0]["kind"] == "project.created"


@pytest.mark.one_database
def test_reading_needs_the_scope() -> None:
    assert Client().get("/api/v1/events").status_code == 401
    assert get(asking("approvals:read"), "/events", 403)["rule"]
