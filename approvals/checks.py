"""System checks of approvals."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from django.conf import settings
from django.core.checks import CheckMessage, Error, Tags, Warning, register
from django.db import connection

from approvals import registry, selectors
from approvals.models import Approval, Effect, Hold
from approvals.services import artifacts
from approvals.types import Contact, Purpose
from guards.exceptions import CountersignError
from guards.types import HOUSE_CHECKS

#: Seconds from *open for review* to the last yes (ADR-016).
LONGEST_APPROVAL = 300
#: Contacts of one grant (ADR-016).
MOST_CONTACTS = {
    Purpose.CONNECT: 5,
    Purpose.PREVIEW: 5,
    Purpose.EXECUTE: 9,
    Purpose.RECOVER: 9,
}

_TABLES = {Hold._meta.db_table, Effect._meta.db_table}


@register(HOUSE_CHECKS)
def kinds_are_registered(**_: Any) -> list[CheckMessage]:
    """Without a kind of act nothing can leave, and everything held would wait for ever."""
    if registry.kinds():
        return []
    return [
        Error(
            "no kind of act is registered",
            hint="An app registers its kinds in ready(): approvals.registry.register_kind(…).",
            id="approvals.E001",
        )
    ]


@register(Tags.database)
def open_acts_have_their_kind(**_: Any) -> list[CheckMessage]:
    """What waits or is on its way names a kind that somebody still registers."""
    if not set(connection.introspection.table_names()) >= _TABLES:
        return []  # before the first migration nothing waits
    missing = [name for name in selectors.kinds_in_use() if name not in registry.kinds()]
    return [
        Error(
            f"acts of the kind {name!r} wait, and no app registers it",
            hint="Install the app that made them, or withdraw them.",
            id="approvals.E002",
        )
        for name in missing
    ]


@register(HOUSE_CHECKS)
def approvals_are_short(**_: Any) -> list[CheckMessage]:
    """What a person read is true for five minutes at most (ADR-016)."""
    if 0 < settings.APPROVAL_SECONDS <= LONGEST_APPROVAL:
        return []
    return [
        Error(
            f"APPROVAL_SECONDS is {settings.APPROVAL_SECONDS}: an approval lasts 1 to "
            f"{LONGEST_APPROVAL} seconds",
            hint="Leave it out for the full five minutes. Permissions have times of their own.",
            id="approvals.E003",
        )
    ]


@register(HOUSE_CHECKS)
def sessions_end(**_: Any) -> list[CheckMessage]:
    """A session without an end would carry authority for ever."""
    return [
        Error(f"{name} is {getattr(settings, name)}: it is at least 1", id="approvals.E004")
        for name in ("ROOT_HOURS", "ROOT_IDLE_MINUTES")
        if getattr(settings, name) < 1
    ]


@register(HOUSE_CHECKS)
def kinds_with_grants_are_finite(**_: Any) -> list[CheckMessage]:
    """A kind that contacts a provider has one POST, within an approved act, and few contacts."""
    return [
        Error(f"the kind {name!r} {fault}", id="approvals.E005")
        for name, kind in registry.acts().items()
        for fault in _faults_of(kind)
    ]


def _faults_of(kind: registry.ActKind) -> Iterator[str]:
    for purpose, caps in kind.caps.items():
        if sum(caps.values()) > MOST_CONTACTS[purpose]:
            yield f"asks for {sum(caps.values())} contacts to {purpose}"
        if caps.get(Contact.POST, 0) > (purpose is Purpose.EXECUTE):
            yield f"would post {caps[Contact.POST]} times to {purpose}"
    if kind.caps.get(Purpose.EXECUTE) and (kind.by_policy or kind.via != {Approval.Via.CONSOLE}):
        yield "needs a session, and so an answer in the console only"


@register(Tags.security, deploy=True)
def artifact_key_resolves(**_: Any) -> list[CheckMessage]:
    """Drafts and exact bytes are kept encrypted: without the key nothing can leave."""
    try:
        artifacts.require_key()
    except CountersignError as error:
        return [
            Warning(
                f"the artifact key does not resolve: {error.detail}",
                hint=f"ARTIFACT_KEY_REF is {settings.ARTIFACT_KEY_REF}: `make setup` writes one.",
                id="approvals.W001",
            )
        ]
    return []
