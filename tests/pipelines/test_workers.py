"""Stages of the `claude` runner with the real program, in its sandbox, against our MCP server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from pipelines.models import Mission
from tests.databases import shared
from tests.pipelines.workers import Workshop, hands_in, mcp_server, reads
from tests.servers.messages_api import MessagesApi
from tests.servers.presence import require_binaries

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def workshop(
    transactional_db, messages_api: MessagesApi, settings, short_directory: Path
) -> Iterator[Workshop]:
    require_binaries("bwrap")
    with shared(short_directory), mcp_server() as url:
        yield Workshop(messages_api, short_directory, settings, url)


def test_a_worker_reads_its_contract_hands_in_its_result_and_its_mission_closes(workshop):
    result, mission = workshop.run(reads(), hands_in(output="published"))
    assert (result.ok, result.output, result.exit_code) == (True, b"published", 0), result
    assert mission.status == Mission.Status.CLOSED
    assert (mission.turns, float(mission.usd)) == (result.usage["turns"], result.usage["usd"])
    assert mission.usd > 0
