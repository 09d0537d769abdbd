"""Shapes of the API: events and projects."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from ninja import Field, Schema

from teams.models import Event, Project
from teams.sentences import sentence


class SubjectOut(Schema):
    """An opaque reference to a row of some app."""

    type: str = Field(examples=["mail.message"])
    id: str = Field(examples=["17"])


class EventOut(Schema):
    """One thing that happened."""

    seq: int = Field(examples=[41])
    at: datetime
    kind: str = Field(examples=["effect.accepted"])
    subject: SubjectOut
    actor: str = Field(examples=["operator:ada"])
    project: str
    facts: dict[str, Any]
    text: str = Field(description="the same as one sentence for people")
    hash: str = Field(description="SHA-256 that ties it to all events before")

    @classmethod
    def of(cls, event: Event) -> EventOut:
        """An event's shape."""
        return cls(
            seq=event.seq,
            at=event.at,
            kind=event.kind,
            subject=SubjectOut(type=event.subject_type, id=event.subject_id),
            actor=event.actor,
            project=event.project,
            facts=event.facts,
            text=sentence(event),
            hash=event.hash,
        )


class EventPage(Schema):
    """Events after a cursor, oldest first. `cursor` is where the next request begins."""

    items: list[EventOut]
    cursor: int = Field(examples=[41])
    head: int = Field(examples=[41])


class ProjectOut(Schema):
    """A project."""

    slug: str = Field(examples=["apollo"])
    name: str
    root: str
    git_remote: str
    created_at: datetime

    @classmethod
    def of(cls, project: Project) -> ProjectOut:
        """A project's shape."""
        return cls(
            slug=project.slug,
            name=project.name,
            root=project.root,
            git_remote=project.git_remote,
            created_at=project.created_at,
        )


class ProjectPage(Schema):
    """All projects that the token may see."""

    items: list[ProjectOut]
