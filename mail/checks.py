"""System checks of mail: settings that would only fail, or open a door, at run time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.apps import AppConfig
from django.conf import settings
from django.core.checks import CheckMessage, Error, Tags, Warning, register

from mail.owner_channel import Mode

_POSITIVE = (
    "MAIL_MAX_BYTES",
    "AUTO_REPLIES_PER_SENDER_PER_DAY",
    "AUTO_REPLIES_PER_IDENTITY_PER_HOUR",
    "AUTO_REPLIES_PER_DOMAIN_PER_DAY",
    "EXECUTE_MAX_AGE_HOURS",
    "OPEN_DRAFTS_PER_AGENT",
    "OWNER_NOTICES_PER_DAY",
)


@register(Tags.compatibility)
def check_numbers(app_configs: Sequence[AppConfig] | None = None, **_: Any) -> list[CheckMessage]:
    """Limits of mail are whole numbers above zero."""
    return [
        Error(
            f"{name} is {getattr(settings, name)!r}.",
            hint="Set it to a whole number above zero.",
            id="mail.E001",
        )
        for name in _POSITIVE
        if not isinstance(getattr(settings, name), int) or getattr(settings, name) < 1
    ]


@register(Tags.compatibility)
def check_notices(app_configs: Sequence[AppConfig] | None = None, **_: Any) -> list[CheckMessage]:
    """A mode of notices that does not exist would be none."""
    if settings.OWNER_NOTICES in {"", *Mode}:
        return []
    return [
        Error(
            f"OWNER_NOTICES is {settings.OWNER_NOTICES!r}.",
            hint=f"Choose {', '.join(Mode)}, or leave it empty.",
            id="mail.E002",
        )
    ]


@register(Tags.security, deploy=True)
def check_plaintext(app_configs: Sequence[AppConfig] | None = None, **_: Any) -> list[CheckMessage]:
    """Plain text, even to this machine, is for tests."""
    if not settings.MAIL_ALLOW_PLAINTEXT_LOOPBACK:
        return []
    return [
        Warning(
            "MAIL_ALLOW_PLAINTEXT_LOOPBACK is on.",
            hint="Switch it off outside of tests: servers on this machine can do STARTTLS too.",
            id="mail.W001",
        )
    ]
