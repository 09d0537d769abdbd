"""Projects: made and changed by an operator."""

from __future__ import annotations

from django.core.exceptions import ValidationError
from django.db import IntegrityError

from guards.exceptions import InvalidInput, Refused
from guards.services.units import unit_of_work
from guards.types import Asker, Subject
from teams import selectors
from teams.exceptions import ProjectExists
from teams.models import Project
from teams.services.events import append_event

_CHANGEABLE = ("name", "root", "git_remote")


def create_project(
    *, slug: str, name: str = "", root: str = "", git_remote: str = "", by: Asker
) -> Project:
    """Make a project. InvalidInput names the field; ProjectExists when the slug is taken."""
    _require_operator(by)
    project = Project(slug=slug, name=name.strip() or slug, root=root, git_remote=git_remote)
    _refuse_invalid(project)
    try:
        with unit_of_work():
            project.save(force_insert=True)
            _record("project.created", project, by)
    except IntegrityError as error:
        raise ProjectExists(f"there is a project {slug!r} already", field="slug") from error
    return project


def update_project(
    *,
    slug: str,
    name: str | None = None,
    root: str | None = None,
    git_remote: str | None = None,
    by: Asker,
) -> Project:
    """Change what is given; a slug stays for ever, since events and tokens name it."""
    _require_operator(by)
    with unit_of_work():
        project = selectors.project(slug)
        given = dict(zip(_CHANGEABLE, (name, root, git_remote), strict=True))
        changes = {field: value for field, value in given.items() if value is not None}
        for field, value in changes.items():
            setattr(project, field, value)
        _refuse_invalid(project)
        Project.objects.filter(pk=project.pk).update(**changes)
        _record("project.changed", project, by)
    return project


def _require_operator(by: Asker) -> None:
    if by.kind not in ("operator", "system"):
        raise Refused(f"{by} cannot change projects: an operator does", rule="operator-only")


def _refuse_invalid(project: Project) -> None:
    try:
        project.clean_fields()
    except ValidationError as error:
        field, problems = next(iter(error.message_dict.items()))
        raise InvalidInput(f"{field}: {problems[0]}", field=field) from error


def _record(kind: str, project: Project, by: Asker) -> None:
    append_event(
        kind=kind,
        subject=Subject("teams.project", project.slug),
        actor=str(by),
        project=project.slug,
        facts={"slug": project.slug, "name": project.name},
    )
