"""System checks of pipelines: settings under which it could not keep its word."""

from __future__ import annotations

import math
from typing import Any

from django.conf import settings
from django.core.checks import CheckMessage, Error, Warning, register

from guards.exceptions import InvalidInput
from guards.types import HOUSE_CHECKS
from pipelines import safe_lists
from pipelines.exceptions import OptionNotAllowed
from pipelines.runners.claude import destinations, sandbox
from pipelines.runners.claude.broker import address, prices
from pipelines.services.claims import LEASE, RENEW_EVERY
from pipelines.services.planning import CLAUDE
from pipelines.specification import DEFAULT_TIMEOUT, QUEUE_MARGIN


@register(HOUSE_CHECKS)
def executor_settings(app_configs: Any, **kwargs: Any) -> list[CheckMessage]:
    """Concurrency is a positive number, and the queue leaves the longest default stage its time."""
    found: list[CheckMessage] = []
    if settings.PIPELINE_CONCURRENCY < 1:
        found.append(
            Error(
                "PIPELINE_CONCURRENCY is below 1: no pipeline would ever run.",
                hint="Set it to 1 (serial) or more.",
                id="pipelines.E001",
            )
        )
    if DEFAULT_TIMEOUT["claude"] + QUEUE_MARGIN > settings.QUEUE_TIMEOUT:
        found.append(
            Warning(
                "QUEUE_TIMEOUT is below what a claude stage takes by default (30 minutes).",
                hint=f"Set it to {DEFAULT_TIMEOUT['claude'] + QUEUE_MARGIN:.0f} or more.",
                id="pipelines.W001",
            )
        )
    if LEASE < 2 * RENEW_EVERY:
        found.append(Error("A lease must outlast two renewals.", id="pipelines.E002"))
    return found


@register(HOUSE_CHECKS)
def planner_settings(app_configs: Any, **kwargs: Any) -> list[CheckMessage]:
    """PLANNER names a planner that there is, with limits under which it can work."""
    found: list[CheckMessage] = []
    if settings.PLANNER not in ("", CLAUDE):
        found.append(
            Error(
                f"PLANNER is {settings.PLANNER!r}, and there is no such planner.",
                hint=f"Set it to {CLAUDE}, or leave it empty.",
                id="pipelines.E004",
            )
        )
    if settings.PLANNER_MAX_USD <= 0 or settings.PLANNER_MAX_TURNS < 1:
        found.append(
            Error(
                "PLANNER_MAX_USD and PLANNER_MAX_TURNS leave a planner nothing to work with.",
                hint="Set both above 0, or leave PLANNER empty.",
                id="pipelines.E005",
            )
        )
    if settings.TOOL_CALL_APPROVAL_DAYS < 1:
        found.append(
            Error(
                "TOOL_CALL_APPROVAL_DAYS is below 1: no question of a worker could be answered.",
                hint="Set it to 1 or more.",
                id="pipelines.E006",
            )
        )
    return found


@register(HOUSE_CHECKS)
def mission_budgets(app_configs: Any, **kwargs: Any) -> list[CheckMessage]:
    """What missions may cost a day is an amount: a limit that is no number would stop nothing."""
    return [
        Error(
            f"{name} is {getattr(settings, name)}, which is no amount of US dollars.",
            hint="Set it to 0 (no mission opens) or more.",
            id="pipelines.E009",
        )
        for name in ("MISSION_DAILY_USD_PER_IDENTITY", "MISSION_DAILY_USD_PER_COMMAND")
        if not 0 <= getattr(settings, name) < math.inf
    ]


@register(HOUSE_CHECKS)
def worker_walls(app_configs: Any, **kwargs: Any) -> list[CheckMessage]:
    """CLAUDE_SANDBOX has one of its two values, and `off` is never silent."""
    if settings.CLAUDE_SANDBOX == sandbox.OFF:
        return [
            Warning(
                "CLAUDE_SANDBOX is off: workers read and write all that this account can, keys "
                "and mail included.",
                hint=f"Set it to {sandbox.REQUIRED}, and install bubblewrap (docs/workers.md).",
                id="pipelines.W003",
            )
        ]
    if settings.CLAUDE_SANDBOX != sandbox.REQUIRED:
        return [
            Error(
                f"CLAUDE_SANDBOX is {settings.CLAUDE_SANDBOX!r}.",
                hint=f"Set it to {sandbox.REQUIRED} or {sandbox.OFF}.",
                id="pipelines.E007",
            )
        ]
    return []


@register(HOUSE_CHECKS)
def worker_doors(app_configs: Any, **kwargs: Any) -> list[CheckMessage]:
    """Where workers may connect to is named by exact hosts; our own loopback is pointed out."""
    try:
        destinations.allowed([settings.MCP_URL])
        declared = [destinations.declared(entry) for entry in settings.CLAUDE_ALLOWED_HOSTS]
    except InvalidInput as error:
        return [
            Error(
                f"{error.detail}, so no worker starts.",
                hint="Name hosts as HOST or HOST:PORT (docs/workers.md).",
                id="pipelines.E008",
            )
        ]
    own = [place for place in declared if destinations.is_loopback(place.host)]
    return [
        Warning(
            f"CLAUDE_ALLOWED_HOSTS lets workers reach port {place.port} of this very host.",
            hint="Leave it out unless what listens there may be used by anybody who asks.",
            id="pipelines.W004",
        )
        for place in own
    ]


@register(HOUSE_CHECKS)
def worker_model(app_configs: Any, **kwargs: Any) -> list[CheckMessage]:
    """The Messages API has an address, and prices are prices: no worker starts otherwise."""
    try:
        address.of_api()
        prices.declared()
    except InvalidInput as error:
        return [
            Error(
                f"{error.detail}, so no worker starts.",
                hint=f"Correct {error.field} (docs/workers.md).",
                id="pipelines.E010",
            )
        ]
    return []


@register(HOUSE_CHECKS)
def owner_key_is_one(app_configs: Any, **kwargs: Any) -> list[CheckMessage]:
    """OWNER_FINGERPRINT or OWNER_HANDLE, never both (DES-035)."""
    if settings.OWNER_FINGERPRINT and settings.OWNER_HANDLE:
        return [
            Warning(
                "Both OWNER_FINGERPRINT and OWNER_HANDLE are set, so no command runs.",
                hint="Keep one of them.",
                id="pipelines.W002",
            )
        ]
    return []


@register(HOUSE_CHECKS)
def safe_options_are_readable(app_configs: Any, **kwargs: Any) -> list[CheckMessage]:
    """SAFE_OPTIONS_FILE, where it is set, is one that no list is lost by."""
    try:
        safe_lists.programs()
    except OptionNotAllowed as error:
        return [
            Error(
                f"{error.detail}, so no program runs.",
                hint="docs/commands.md has its form; unset it to use the program's own lists.",
                id="pipelines.E003",
            )
        ]
    return []
