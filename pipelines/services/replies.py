"""The last stage of every pipeline: the requester is answered, once (DES-029).

A success sends the pipe's result, a failure one fixed text that tells nothing. There is one
outgoing message per pipeline, and its fate settles the stage and the pipeline in its own
transaction. A pipeline that an operator had go on answers anew: what becomes of its earlier message
is history and settles nothing.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

import structlog
from django.db.models import Q
from django.utils import timezone

from guards import queue
from guards.exceptions import CountersignError
from guards.services.units import unit_of_work
from guards.types import Asker, Subject
from mail import selectors as mail
from mail.models import Outbound
from mail.services import answering, outbound
from mail.types import Enclosure
from pipelines.exceptions import ClaimLost
from pipelines.file_names import FIELD
from pipelines.models import Pipeline, Stage
from pipelines.services import claims, files, origins, transitions, unanswered
from pipelines.services.claims import Claim
from pipelines.services.intake import REPLY

log = structlog.get_logger(__name__)

#: How much of a result a reply carries, in characters.
MAX_TEXT = 100_000

#: Where a reply stage may stand when its message moves.
_OPEN_STAGES = (Stage.Status.PENDING, Stage.Status.RUNNING, Stage.Status.WAITING_APPROVAL)
_OPEN_PIPELINES = (Pipeline.Status.RUNNING, Pipeline.Status.WAITING_APPROVAL)
#: Why a reply was cancelled by a person's word; any other reason is a worker's or a drift's.
_TAKEN_BACK = frozenset({"withdrawn", "cancelled-by-person"})


def fixed_text(pipeline_id: UUID) -> str:
    """All that a requester learns of a failure (DES-028)."""
    return f"This request could not be completed. Reference: pipeline-{pipeline_id}\n"


def text_of(value: Any) -> str:
    """A result as mail: text as it is, else readable JSON; cut, and saying so, when too long."""
    text = value if isinstance(value, str) else json.dumps(value, indent=2, ensure_ascii=False)
    if len(text) > MAX_TEXT:
        text = f"{text[:MAX_TEXT]}\n[cut here: {len(text)} characters in all]"
    return text if text.endswith("\n") else f"{text}\n"


def answer(claim: Claim, pipeline: Pipeline, pipe: Mapping[str, Any], *, wanted: bool) -> None:
    """Run the reply stage under this claim. `wanted` is false where success needs no answer."""
    if not wanted and not pipeline.failing:
        unanswered.end(claim)
        return
    stage = Stage.objects.get(pipeline_id=pipeline.pk, command=REPLY)
    _record_start(claim, stage)
    origin = origins.of_answer(pipeline.pk, pipeline.resumptions)
    try:
        if pipeline.failing or not _send_result(claim, pipeline, pipe, origin):
            _send(pipeline, fixed_text(pipeline.pk), origin, claim)
    except ClaimLost:
        raise
    except CountersignError as error:
        _record_refusal(pipeline, stage, error)


def send_notice(pipeline: Pipeline) -> None:
    """Tell the requester of an interrupted or cancelled pipeline, once, with the fixed text.

    Never beside a reply that may have left: a draft takes the fixed text, a reply that was given up
    before its contact gets a successor, anything else is left alone.
    """
    pipeline.refresh_from_db(fields=["notice_due", "resumptions", "status"])
    if not pipeline.notice_due:
        return
    origin = _origin_of_notice(pipeline)
    if origin is not None:
        try:
            _send(pipeline, fixed_text(pipeline.pk), origin)
        except ClaimLost:
            return  # an operator has it go on: it answers anew
        except CountersignError as error:
            if not error.permanent:
                log.warning("notice not sent yet", pipeline=str(pipeline.pk), detail=error.detail)
                return
            log.error("notice refused", pipeline=str(pipeline.pk), detail=error.detail)
    told = Pipeline.objects.filter(pk=pipeline.pk, resumptions=pipeline.resumptions)
    told.update(notice_due=False)


def reply_of(pipeline_id: UUID) -> Outbound | None:
    """The outgoing message that answers, or would have answered, for this run of the pipeline."""
    counts = Pipeline.objects.filter(pk=pipeline_id).values_list("resumptions", flat=True)
    origin = origins.of_answer(pipeline_id, counts.first() or 0)
    return mail.outbound_of(origin.type, origin.id)


def notice_of(pipeline: Pipeline) -> Outbound | None:
    """The message that took the place of an answer which was given up before its contact."""
    origin = origins.of_successor(pipeline)
    return mail.outbound_of(origin.type, origin.id)


def messages_of(pipeline: Pipeline) -> list[Outbound]:
    """Every message that this pipeline has sent or would have, in any run, oldest first."""
    stages = [str(pk) for pk in pipeline.stages.values_list("pk", flat=True)]
    beside = (origins.PIPELINE, answering.ACKNOWLEDGEMENT)
    found = Outbound.objects.filter(
        Q(origin_type__in=beside, origin_id=str(pipeline.pk))
        | Q(origin_type__in=(origins.STAGE, "pipelines.send"), origin_id__in=stages)
        | Q(origin_type=origins.RESUMED, origin_id__startswith=f"{pipeline.pk}.")
    )
    return list(found.order_by("created_at"))


def is_fixed_text(message: Outbound, pipeline_id: UUID) -> bool:
    """Whether the message told nothing but that the request was not completed."""
    return message.text.strip() == fixed_text(pipeline_id).strip()


def settle(*, message: Outbound) -> None:
    """Follow an outgoing message that moved; joins the transaction of its move.

    accepted, verified: completed (failed where a stage had failed). failed: failed. unknown:
    interrupted, and no other mail follows. rejected, or taken back by a person: cancelled. Given up
    before its contact for any other reason, approved or not: interrupted, and the requester is
    told.
    """
    pipeline = origins.pipeline_of(message)
    if pipeline is None:
        return
    stage = Stage.objects.get(pipeline_id=pipeline.pk, command=REPLY)
    status = Outbound.Status(message.status)
    if status is Outbound.Status.HELD:
        _wait(pipeline, stage)
    elif status is Outbound.Status.QUEUED:
        let_go(pipeline)
    elif status in (Outbound.Status.ACCEPTED, Outbound.Status.VERIFIED):
        failing = pipeline.failing
        ended = Pipeline.Status.FAILED if failing else Pipeline.Status.COMPLETED
        why = "nothing could be planned" if pipeline.refused_rule else "a stage failed"
        _end(pipeline, stage, Stage.Status.SUCCEEDED, ended, why if failing else "")
    elif status is Outbound.Status.FAILED:
        _end(
            pipeline, stage, Stage.Status.FAILED, Pipeline.Status.FAILED, "the reply did not leave"
        )
    elif status is Outbound.Status.UNKNOWN:
        _interrupt(pipeline, stage, "nobody can tell whether the reply left", notice=False)
    elif status in (Outbound.Status.REJECTED, Outbound.Status.CANCELLED):
        _given_up(pipeline, stage, message)


def _given_up(pipeline: Pipeline, stage: Stage, message: Outbound) -> None:
    if message.status == Outbound.Status.REJECTED:
        reason = "a person rejected the reply"
    elif message.reason in _TAKEN_BACK:
        reason = "withdrawn"
    else:
        lost = f"the reply was given up before its contact: {message.reason}"
        _interrupt(pipeline, stage, lost, notice=True)
        return
    _end(pipeline, stage, Stage.Status.CANCELLED, Pipeline.Status.CANCELLED, reason)


def _send_result(
    claim: Claim, pipeline: Pipeline, pipe: Mapping[str, Any], origin: Subject
) -> bool:
    """Answer with the pipe and its files; False, and why on record, where a file cannot go along.

    What leaves of a file is what was looked at when its stage ended, or nothing.
    """
    try:
        enclosed = files.enclosures(pipe, files.directory_of(pipeline.pk))
        _send(pipeline, text_of(pipe["data"]), origin, claim, enclosed)
    except CountersignError as error:
        if error.field != FIELD:
            raise
        _record_unsendable(claim, pipeline, error)
        return False
    return True


def _record_unsendable(claim: Claim, pipeline: Pipeline, error: CountersignError) -> None:
    rule = f"{error.rule}: " if error.rule else ""
    reason = f"{REPLY}: {rule}{error.detail}"
    with unit_of_work():
        held = Pipeline.objects.filter(
            pk=pipeline.pk, status=Pipeline.Status.RUNNING, **claim.mine
        ).update(failing=True, error=reason)
        transitions.must(bool(held), f"pipeline {pipeline.pk}")
    pipeline.failing, pipeline.error = True, reason


def _send(
    pipeline: Pipeline,
    text: str,
    origin: Subject,
    claim: Claim | None = None,
    enclosed: Sequence[Enclosure] = (),
) -> None:
    """Draft and submit; an answer only while its worker still holds the pipeline, a notice only
    while it is due.
    """
    draft = outbound.draft_reply(
        message_id=pipeline.message_id,
        text=text,
        origin=origin,
        executes=_ran_anything(pipeline),
        files=enclosed,
    )
    still = claims.is_held(claim) if claim else _is_notice_due(pipeline)
    transitions.must(still, f"pipeline {pipeline.pk}")
    outbound.submit(outbound_id=draft.pk, asker=Asker("identity", pipeline.identity.handle))


def _is_notice_due(pipeline: Pipeline) -> bool:
    due = Pipeline.objects.filter(pk=pipeline.pk, notice_due=True)
    return due.filter(resumptions=pipeline.resumptions).exists()


def _origin_of_notice(pipeline: Pipeline) -> Subject | None:
    first = reply_of(pipeline.pk)
    if first is None or first.status == Outbound.Status.DRAFT:
        return origins.of_answer(pipeline.pk, pipeline.resumptions)
    if first.status == Outbound.Status.CANCELLED:
        return origins.of_successor(pipeline)
    return None


def _ran_anything(pipeline: Pipeline) -> bool:
    """Whether a work stage was started: only then is the answer exempt from the daily cap."""
    work = Stage.objects.filter(pipeline_id=pipeline.pk).exclude(command=REPLY)
    return work.filter(started_at__isnull=False).exists()


def _record_start(claim: Claim, stage: Stage) -> None:
    until = claims.lease_end()
    with unit_of_work():
        held = Pipeline.objects.filter(
            pk=claim.pipeline_id, status=Pipeline.Status.RUNNING, **claim.mine
        ).update(current=stage.position, lease_until=until)
        transitions.must(bool(held), f"pipeline {claim.pipeline_id}")
        moved = transitions.move_stage(
            stage,
            Stage.Status.RUNNING,
            old=[Stage.Status.PENDING],
            changes={
                **claim.mine,
                "attempt": stage.attempt + 1,
                "lease_until": until,
                "started_at": timezone.now(),
            },
        )
        transitions.must(moved, f"the reply of pipeline {claim.pipeline_id}")


def _record_refusal(pipeline: Pipeline, stage: Stage, error: CountersignError) -> None:
    """The reply could not even be written or handed over: mail says why, and nothing has left."""
    reason = f"the reply was refused: {error.detail}"
    with unit_of_work():
        Pipeline.objects.select_for_update().get(pk=pipeline.pk)
        _end(pipeline, stage, Stage.Status.FAILED, Pipeline.Status.FAILED, reason)


def _wait(pipeline: Pipeline, stage: Stage) -> None:
    transitions.move_stage(
        stage,
        Stage.Status.WAITING_APPROVAL,
        old=[Stage.Status.PENDING, Stage.Status.RUNNING],
        changes={"lease_until": None},
    )
    transitions.move_pipeline(
        pipeline.pk,
        Pipeline.Status.WAITING_APPROVAL,
        old=[Pipeline.Status.RUNNING],
        changes={"lease_until": None},
        facts={"reason": "its reply"},
    )


def let_go(pipeline: Pipeline) -> None:
    """Only its reply is on its way, for as long as that takes: it holds no worker and no place."""
    Pipeline.objects.filter(
        pk=pipeline.pk, status=Pipeline.Status.RUNNING, fence=pipeline.fence
    ).update(claimed_by="", lease_until=None)


def _end(
    pipeline: Pipeline,
    stage: Stage,
    stage_status: Stage.Status,
    pipeline_status: Pipeline.Status,
    reason: str,
) -> None:
    now = timezone.now()
    transitions.move_stage(
        stage,
        stage_status,
        old=_OPEN_STAGES,
        changes={
            "finished_at": now,
            "lease_until": None,
            "error": reason if stage_status != Stage.Status.SUCCEEDED else "",
        },
        facts={"reason": reason[:300]},
    )
    changes: dict[str, Any] = {"finished_at": now, "lease_until": None}
    if reason and not pipeline.error:
        changes["error"] = reason
    transitions.move_pipeline(
        pipeline.pk,
        pipeline_status,
        old=_OPEN_PIPELINES,
        changes=changes,
        facts={"reason": reason[:300]},
    )


def _interrupt(pipeline: Pipeline, stage: Stage, reason: str, *, notice: bool) -> None:
    now = timezone.now()
    transitions.move_stage(
        stage,
        Stage.Status.INTERRUPTED,
        old=_OPEN_STAGES,
        changes={"finished_at": now, "lease_until": None, "error": reason},
        facts={"reason": reason},
    )
    transitions.move_pipeline(
        pipeline.pk,
        Pipeline.Status.INTERRUPTED,
        old=_OPEN_PIPELINES,
        changes={
            "finished_at": now,
            "lease_until": None,
            "error": pipeline.error or reason,
            "notice_due": notice,
        },
        facts={"reason": reason},
    )
    if notice:
        queue.enqueue("pipelines.tasks.sweep")
