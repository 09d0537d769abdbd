"""Mail that a `send` stage has leave: one message per stage, ever, and its fate is the stage's.

The message's origin is the stage's row. Run again, the stage looks at what became of that message,
and never writes a second one. Where a person has to approve it, or the hourly cap is reached, the
stage waits and goes on when the message has left, or will not.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any
from uuid import UUID

from approvals.models import Hold
from approvals.services import holds
from guards.exceptions import CountersignError
from guards.types import Asker, Subject
from mail import selectors as mail
from mail.models import Outbound
from mail.services import outbound
from pipelines.models import Pipeline, Stage
from pipelines.services import files, replies, waking
from pipelines.types import Job, RunResult

#: The origin of a `send` stage's message; its id is the stage's row.
ORIGIN = "pipelines.send"

_Status = Outbound.Status
_LEFT = frozenset({_Status.ACCEPTED, _Status.VERIFIED})
_ON_ITS_WAY = frozenset({_Status.HELD, _Status.QUEUED, _Status.SENDING})
_ENDINGS: Mapping[str, str] = {
    _Status.UNKNOWN: "nobody can tell whether the mail left",
    _Status.REJECTED: "a person did not allow the mail",
    _Status.FAILED: "the mail did not leave",
    _Status.CANCELLED: "the mail was given up before it left",
}


def carry_out(job: Job) -> RunResult:
    """Write the stage's message, have it sent or held, and say how that stands; never raises."""
    try:
        message = mail.outbound_of(ORIGIN, str(job.stage)) or _drafted(job)
        if message.status == _Status.DRAFT:
            handle = message.account.identity.handle
            message = outbound.submit(outbound_id=message.pk, asker=Asker("identity", handle))
    except CountersignError as error:
        rule = f"{error.rule}: " if error.rule else ""
        return RunResult(ok=False, error=f"{rule}{error.detail}")
    return _result(message)


def is_settled(stage_id: int) -> bool:
    """Whether the end of a `send` stage's message is known."""
    message = mail.outbound_of(ORIGIN, str(stage_id))
    return message is not None and message.status in Outbound.SETTLED


def follow(*, message: Outbound) -> None:
    """A `send` stage's message moved: once its end is known the stage goes on, in one transaction.

    Mail of any other origin changes nothing here.
    """
    if message.origin_type == ORIGIN and message.status in Outbound.SETTLED:
        waking.go_on(stage_id=int(message.origin_id), actor="system")


def lock_holds(pipeline_id: UUID) -> None:
    """Lock what holds a pipeline's mail, before the pipeline itself; joins the caller's unit.

    A person's answer takes that order: the other way round the two would wait for each other.
    """
    stages = Stage.objects.filter(pipeline_id=pipeline_id, runner="built-in")
    origins = [str(pk) for pk in stages.values_list("pk", flat=True)]
    held = Outbound.objects.filter(
        origin_type=ORIGIN, origin_id__in=origins, status=_Status.HELD
    ).values_list("hold_id", flat=True)
    list(Hold.objects.select_for_update().filter(pk__in=list(held)).order_by("pk"))


def take_back(*, stage_id: int, reason: str) -> None:
    """A `send` stage was given up: what has not begun to leave never does. Joins the transaction.

    What is on its way stays so, and its effect tells.
    """
    message = mail.outbound_of(ORIGIN, str(stage_id))
    if message is None:
        return
    if message.status == _Status.HELD and message.hold_id is not None:
        holds.withdraw(hold_id=message.hold_id, by=Asker("system", "pipelines"), reason=reason)
        return
    outbound.move(
        message,
        _Status.CANCELLED,
        from_states=(_Status.DRAFT, _Status.QUEUED),
        reason="withdrawn",
    )


def _drafted(job: Job) -> Outbound:
    """The row's pipe, not the runner's: it says which bytes of each file were looked at."""
    pipeline = Pipeline.objects.select_related("message__account__identity").get(pk=job.pipeline)
    pipe: Mapping[str, Any] = pipeline.pipe
    return outbound.draft_new(
        account=pipeline.message.account,
        to=job.args["to"],
        subject=job.args["subject"],
        text=replies.text_of(pipe["data"]),
        origin=Subject(ORIGIN, str(job.stage)),
        files=files.enclosures(pipe, files.directory_of(pipeline.pk)),
    )


def _result(message: Outbound) -> RunResult:
    facts = {"outbound": str(message.pk), "status": str(message.status)}
    output = json.dumps(facts).encode()
    if message.status in _LEFT:
        return RunResult(ok=True, output=output)
    if message.status in _ON_ITS_WAY:
        return RunResult(ok=False, output=output, waiting=True)
    ending = _ENDINGS.get(message.status, f"the mail is {message.status}")
    because = f" ({message.reason})" if message.reason else ""
    return RunResult(ok=False, output=output, error=f"{ending}{because}")
