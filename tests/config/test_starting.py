"""What a start of a program loads and looks at. Pages, the API and its tools start with `web`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from django.contrib import admin
from django.core.checks import run_checks
from django.core.management import load_command_class
from django.core.management.base import SystemCheckError

from tests.servers import Installation

#: What takes longest to load, and only pages, the API, MCP or a terminal need.
HEAVY = ("ninja", "pydantic", "unfold.admin", "guards.admin", "guards.tools", "psycopg", "rich")

_LOADED = """
import gc
before = [name for name in heavy if name in sys.modules]
is_on = gc.isenabled()
from django_q.brokers import get_broker
queue = [get_broker().ping(), "redis" in sys.modules]
import config.asgi
answer = [before, [name for name in heavy if name in sys.modules], is_on, queue]
"""


def test_a_program_loads_no_pages_and_without_redis_no_client_for_it_and_web_loads_pages(
    short_directory: Path,
) -> None:
    before, after, is_on, queue = Installation(short_directory).python(_LOADED, heavy=HEAVY)
    assert before == []
    assert queue == [True, False], "its broker answers, and is no client of Redis"
    assert set(after) >= {"ninja", "pydantic", "unfold.admin", "guards.admin", "guards.tools"}
    assert is_on


@pytest.mark.django_db
@pytest.mark.one_database
@pytest.mark.parametrize(
    "program", ["config.worker", "config.web", "config.mcp", "mail.watch_mail", "teams.verify_log"]
)
def test_a_setting_that_breaks_a_promise_stops_each_program_as_it_starts(
    program: str, settings: Any
) -> None:
    command = load_command_class(*program.split("."))
    command.check(**command.get_check_kwargs({}))
    settings.APPROVAL_SECONDS = 3000
    with pytest.raises(SystemCheckError, match="APPROVAL_SECONDS"):
        command.check(**command.get_check_kwargs({}))


@pytest.mark.parametrize("url", ["", "mysql://ada:hidden@host/name", "ftp://ada:hidden@host/name"])
def test_a_database_that_it_does_not_run_on_is_named_and_no_password_told(
    short_directory: Path, url: str
) -> None:
    installation = Installation(short_directory)
    installation.env["DATABASE_URL"] = url
    done = installation.manage("check", check=False)
    assert done.returncode != 0
    said = done.stdout + done.stderr
    assert "DATABASE_URL names no database that Countersign runs on: leave it out" in said
    assert "hidden" not in said


def test_the_check_of_pages_looks_at_every_page() -> None:
    from mail.admin.messages import MessageAdmin
    from mail.models import Message

    page = admin.site.get_model_admin(Message)
    assert isinstance(page, MessageAdmin)
    assert run_checks(tags=["admin"]) == []
    page.list_display = ("no_such_column",)
    try:
        assert "admin.E108" in [found.id for found in run_checks(tags=["admin"])]
    finally:
        del page.list_display
