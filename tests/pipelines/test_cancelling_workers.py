"""Cancelling a real `claude` worker: nothing of it stays, its mission and its token end with it."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from guards import process
from guards.models import ApiToken
from pipelines.models import Mission, Pipeline
from pipelines.runners import base
from pipelines.services import commands, control, execution, intake, replies, rules
from tests.databases import shared
from tests.pipelines.factories import OPERATOR, body, claude
from tests.pipelines.workers import Workshop, mcp_server, shell
from tests.servers.messages_api import Hang, MessagesApi, Turns
from tests.servers.presence import require_binaries

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.mark.invariant(16)
@pytest.mark.fault("sister-34", "runner-07", "W14")
def test_a_cancelled_worker_is_gone_with_all_it_started(
    transactional_db,
    desk,
    owner,
    server,
    messages_api: MessagesApi,
    settings,
    short_directory: Path,
):
    require_binaries("bwrap")
    messages_api.scripts[""] = Turns(shell("setsid sleep 300 & setsid sleep 300 &"), Hang())
    document = claude("dig", project=..., write_set=..., args=..., tools=["Bash"])
    assert commands.load_file(owner.write(document), by=OPERATOR).outcome == "loaded"
    rules.save_rule(name="dig", match="dig", calls=[{"command": "dig"}], by=OPERATOR)
    with shared(short_directory), mcp_server() as url:
        Workshop(messages_api, short_directory, settings, url)
        pipeline = intake.take_in(message_id=desk.message("dig").pk)
        assert pipeline is not None
        worker = threading.Thread(target=execution.run, kwargs={"pipeline_id": pipeline.pk})
        worker.start()
        while len(messages_api.turns) < 2:  # its shell has run, and the model says nothing more
            assert worker.is_alive(), Pipeline.objects.get().error
            time.sleep(0.02)

        control.cancel(pipeline_id=pipeline.pk, by=OPERATOR)
        worker.join()

        assert process.end_marked(base.MARK, str(pipeline.pk)) == 0
        stages = dict(pipeline.stages.values_list("command", "status"))
        assert stages == {"dig": "cancelled", "reply": "succeeded"}
        mission = Mission.objects.get()
        assert (mission.status, mission.closed_at is not None) == ("failed", True)
        assert "operator:ada cancelled it" in mission.reason
        assert not ApiToken.objects.filter(revoked_at=None).exists()
        assert Pipeline.objects.get().status == "cancelled"
        assert [body(mail.payload) for mail in server.sent] == [replies.fixed_text(pipeline.pk)]
