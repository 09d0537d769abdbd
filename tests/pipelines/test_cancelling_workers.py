"""Ending a real `claude` worker leaves nothing of it; one that ran out of turns is tried again."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from guards import process
from guards.models import ApiToken
from pipelines.models import Mission, Pipeline
from pipelines.runners import base
from pipelines.services import commands, control, execution, intake, replies, rules
from tests.databases import shared
from tests.pipelines.factories import OPERATOR, body, claude
from tests.pipelines.workers import SHOW, Workshop, hands_in, mcp_server, shell
from tests.servers.messages_api import Hang, MessagesApi, Turns, endless, say
from tests.servers.presence import require_binaries

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def planned(
    transactional_db, desk, owner, messages_api: MessagesApi, settings, short_directory: Path
) -> Iterator[Pipeline]:
    """A pipeline of one stage for a real worker, in a database that its MCP server shares."""
    require_binaries("bwrap")
    fields = {"project": ..., "write_set": ..., "args": ..., "tools": ["Bash"], "repeatable": True}
    document = claude("dig", **fields, budget={"rounds": 1, "max_turns": 2})
    assert commands.load_file(owner.write(document), by=OPERATOR).outcome == "loaded"
    rules.save_rule(name="dig", match="dig", calls=[{"command": "dig"}], by=OPERATOR)
    with shared(short_directory), mcp_server() as url:
        Workshop(messages_api, short_directory, settings, url)
        pipeline = intake.take_in(message_id=desk.message("dig").pk)
        assert pipeline is not None
        yield pipeline


@pytest.mark.one_database
@pytest.mark.invariant(16)
@pytest.mark.fault("sister-34", "runner-07", "W14")
def test_a_cancelled_worker_is_gone_with_all_it_started(planned, server, messages_api):
    messages_api.scripts[""] = Turns(shell("setsid sleep 300 & setsid sleep 300 &"), Hang())
    worker = threading.Thread(target=execution.run, kwargs={"pipeline_id": planned.pk})
    worker.start()
    while len(messages_api.turns) < 2:  # its shell has run, and the model says nothing more
        assert worker.is_alive(), Pipeline.objects.get().error
        time.sleep(0.02)

    control.cancel(pipeline_id=planned.pk, by=OPERATOR)
    worker.join()

    assert process.end_marked(base.MARK, str(planned.pk)) == 0
    stages = dict(planned.stages.values_list("command", "status"))
    assert stages == {"dig": "cancelled", "reply": "succeeded"}
    mission = Mission.objects.get()
    assert (mission.status, mission.closed_at is not None) == ("failed", True)
    assert "operator:ada cancelled it" in mission.reason
    assert not ApiToken.objects.filter(revoked_at=None).exists()
    assert Pipeline.objects.get().status == "cancelled"
    assert [body(mail.payload) for mail in server.sent] == [replies.fixed_text(planned.pk)]


@pytest.mark.soak
def test_a_worker_that_ran_out_of_turns_is_tried_again_by_an_operators_word(
    planned, server, messages_api
):
    messages_api.scripts[""] = endless(SHOW)
    assert execution.run(pipeline_id=planned.pk).status == "failed"
    stage = planned.stages.get(command="dig")
    assert (stage.retriable, stage.attempt) == (True, 1), stage.error

    control.resume(pipeline_id=planned.pk, by=OPERATOR)
    messages_api.scripts[""] = Turns(hands_in(output="dug"), say("That was all."))
    assert execution.run(pipeline_id=planned.pk).status == "completed", Pipeline.objects.get().error

    missions = Mission.objects.order_by("attempt").values_list("attempt", "status")
    assert list(missions) == [(1, "failed"), (2, "closed")]
    assert planned.stages.get(command="dig").usage["turns"] >= 4
    assert [body(mail.payload) for mail in server.sent] == [
        replies.fixed_text(planned.pk), "dug\n"
    ]  # fmt: skip
