"""System checks of approvals."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.core.checks import CheckMessage, Error, Tags, Warning, register
from django.db import connection

from approvals import registry, selectors
from approvals.models import Effect, Hold
from approvals.services import artifacts
from guards.exceptions import CountersignError

_TABLES = {Hold._meta.db_table, Effect._meta.db_table}


@register
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
