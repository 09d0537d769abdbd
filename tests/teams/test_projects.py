"""Projects are made and changed by an operator, and each change is recorded."""

from __future__ import annotations

import pytest

from guards.exceptions import InvalidInput, NotFound, Refused
from guards.types import Asker
from teams import selectors
from teams.exceptions import ProjectExists
from teams.models import Event
from teams.services import projects

pytestmark = pytest.mark.django_db

OPERATOR = Asker("operator", "ada")


def test_a_project_is_made_and_changed_on_the_record() -> None:
    project = projects.create_project(slug="apollo", root="/srv/apollo", by=OPERATOR)
    assert project.name == "apollo"
    projects.update_project(slug="apollo", name="Apollo 11", by=OPERATOR)
    changed = selectors.project("apollo")
    assert (changed.name, changed.root) == ("Apollo 11", "/srv/apollo")
    told = Event.objects.order_by("seq").values_list("kind", "project", "project_seq", "actor")
    assert list(told) == [
        ("project.created", "apollo", 1, "operator:ada"),
        ("project.changed", "apollo", 2, "operator:ada"),
    ]


@pytest.mark.parametrize("slug", ["", "a__b", "Ä", "a b", "a/b", "x" * 65])
def test_a_slug_that_breaks_session_names_is_refused(slug: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        projects.create_project(slug=slug, by=OPERATOR)
    assert caught.value.field == "slug"


def test_a_slug_is_taken_once() -> None:
    projects.create_project(slug="apollo", by=OPERATOR)
    with pytest.raises(ProjectExists):
        projects.create_project(slug="apollo", by=OPERATOR)
    assert Event.objects.count() == 1


def test_only_an_operator_changes_projects() -> None:
    with pytest.raises(Refused):
        projects.create_project(slug="apollo", by=Asker("identity", "bot"))
    with pytest.raises(NotFound):
        projects.update_project(slug="nowhere", name="x", by=OPERATOR)
