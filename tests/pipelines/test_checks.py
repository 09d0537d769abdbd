"""System checks name settings under which pipelines could not keep their word."""

from __future__ import annotations

import pytest

from pipelines import checks


def ids(found) -> list[str]:
    return [message.id for message in found]


def test_the_settings_as_they_come_are_fine():
    assert checks.executor_settings(None) == []
    assert checks.owner_key_is_one(None) == []


def test_no_concurrency_and_too_short_a_queue_are_named(settings):
    settings.PIPELINE_CONCURRENCY = 0
    settings.QUEUE_TIMEOUT = 600

    assert ids(checks.executor_settings(None)) == ["pipelines.E001", "pipelines.W001"]


def test_a_planner_that_is_none_and_limits_that_leave_nothing_are_named(settings):
    assert checks.planner_settings(None) == []
    settings.PLANNER = "claude"
    assert checks.planner_settings(None) == []
    settings.PLANNER = "Claude"
    settings.PLANNER_MAX_USD = 0.0
    settings.TOOL_CALL_APPROVAL_DAYS = 0

    assert ids(checks.planner_settings(None)) == [
        "pipelines.E004", "pipelines.E005", "pipelines.E006"
    ]  # fmt: skip


def test_walls_that_are_off_are_warned_about_and_a_third_value_is_refused(settings):
    assert checks.worker_walls(None) == []
    settings.CLAUDE_SANDBOX = "off"
    assert ids(checks.worker_walls(None)) == ["pipelines.W003"]
    settings.CLAUDE_SANDBOX = "Off"
    assert ids(checks.worker_walls(None)) == ["pipelines.E007"]


def test_doors_that_no_worker_can_have_or_that_lead_home_are_named(settings):
    assert checks.worker_doors(None) == []
    settings.CLAUDE_ALLOWED_HOSTS = ["git.example", "localhost:5432", "127.0.0.1:6379"]
    assert ids(checks.worker_doors(None)) == ["pipelines.W004"] * 2
    settings.CLAUDE_ALLOWED_HOSTS = ["*.example"]
    assert ids(checks.worker_doors(None)) == ["pipelines.E008"]
    settings.CLAUDE_ALLOWED_HOSTS, settings.MCP_URL = [], "http://10.0.0.2/mcp"
    assert ids(checks.worker_doors(None)) == ["pipelines.E008"]


@pytest.mark.parametrize(("name", "value"), [("CLAUDE_BASE_URL", "x"), ("CLAUDE_PRICES", "[1]")])
def test_a_model_that_could_not_be_asked_is_named(settings, name, value):
    assert checks.worker_model(None) == []
    setattr(settings, name, value)
    (found,) = checks.worker_model(None)
    assert (found.id, name in found.hint) == ("pipelines.E010", True)


def test_two_owners_are_named(settings):
    settings.OWNER_FINGERPRINT = "A" * 40
    settings.OWNER_HANDLE = "ada"

    assert ids(checks.owner_key_is_one(None)) == ["pipelines.W002"]


def test_a_list_of_safe_options_that_cannot_be_read_is_named(settings, tmp_path):
    assert checks.safe_options_are_readable(None) == []
    own = tmp_path / "own.json"
    own.write_text('{"sort": {"flag": []}}')
    settings.SAFE_OPTIONS_FILE = str(own)

    assert ids(checks.safe_options_are_readable(None)) == ["pipelines.E003"]


def test_more_pipelines_at_once_than_there_are_workers_is_a_choice(settings):
    settings.QUEUE_WORKERS, settings.PIPELINE_CONCURRENCY = 2, 8
    assert checks.executor_settings(None) == []


@pytest.mark.parametrize("limit", [float("nan"), float("inf"), -1.0])
@pytest.mark.parametrize("whose", ["IDENTITY", "COMMAND"])
def test_a_days_limit_for_missions_is_an_amount(settings, whose: str, limit: float):
    assert checks.mission_budgets(None) == []
    setattr(settings, f"MISSION_DAILY_USD_PER_{whose}", limit)
    assert ids(checks.mission_budgets(None)) == ["pipelines.E009"]
