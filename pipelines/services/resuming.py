"""Going on after an interruption: by an operator's word, from a stage that may be repeated.

Nothing runs twice by itself. An operator may have a pipeline go on that was interrupted, or whose
worker failed in a way that another run can avoid, when the command of the stage it stopped at is
signed now and says `repeatable`. Its answer is a message of its own, so that the requester gets the
result although the fixed text has left.
"""

from __future__ import annotations

from django.utils import timezone

from approvals.services import holds
from guards import queue
from guards.exceptions import Conflict
from guards.services.units import unit_of_work
from guards.types import Asker, Subject
from mail.models import Outbound
from mail.services import outbound
from pipelines import registry
from pipelines.exceptions import ResumeRefused
from pipelines.models import Pipeline, Stage
from pipelines.services import readying, replies, transitions
from pipelines.services.intake import REPLY
from pipelines.types import ResumeRule
from teams.services import events

_Ended = Stage.Status
#: Where a stage stands that did not come to a good end.
_UNFINISHED = frozenset({_Ended.INTERRUPTED, _Ended.CANCELLED, _Ended.FAILED, _Ended.INCOMPLETE})
#: What a message is that has not come to its end.
_UNDER_WAY = frozenset(Outbound.Status) - Outbound.SETTLED - {Outbound.Status.HELD}
#: A message that certainly did not leave.
_NEVER_LEFT = frozenset(
    {Outbound.Status.FAILED, Outbound.Status.REJECTED, Outbound.Status.CANCELLED}
)


def resume(*, pipeline: Pipeline, by: Asker) -> Pipeline:
    """Put the pipeline back into the queue from where it stopped; the pipeline as it is then.

    ResumeRefused names the rule: `not-interrupted`, `nothing-planned`, `not-retriable`,
    `not-repeatable`, `mail-under-way`, `mail-unknown`, `result-may-have-left`; CommandNotRunnable
    where the command may not run now.
    """
    stage = stopped_at(pipeline)
    if stage.command == REPLY:
        _refuse_if_result_left(pipeline)
    elif not _is_repeatable(stage):
        raise _refusal(
            f"{stage.command} does not say that it may be repeated", ResumeRule.NOT_REPEATABLE
        )
    for message in _messages(pipeline):
        _clear(message, by)
    with unit_of_work():
        _put_back(pipeline, stage, by)
    pipeline.refresh_from_db()
    return pipeline


def may_resume(pipeline: Pipeline) -> bool:
    """Whether there is something to go on from, as the rows say: a look, not the check."""
    try:
        stopped_at(pipeline)
    except ResumeRefused:
        return False
    return True


def stopped_at(pipeline: Pipeline) -> Stage:
    """The stage to go on from: the first that did not end well, else the reply.

    ResumeRefused where the pipeline cannot go on whatever its commands say.
    """
    if pipeline.status not in (Pipeline.Status.INTERRUPTED, Pipeline.Status.FAILED):
        raise _refusal(
            f"{pipeline} was not interrupted: {pipeline.status}", ResumeRule.NOT_INTERRUPTED
        )
    every = list(Stage.objects.filter(pipeline_id=pipeline.pk).order_by("position"))
    work = [stage for stage in every if stage.command != REPLY]
    if not work:
        raise _refusal(f"{pipeline} had nothing to do but to answer", ResumeRule.NOTHING_PLANNED)
    stage = next((row for row in work if row.status in _UNFINISHED), every[-1])
    if pipeline.status == Pipeline.Status.FAILED and not stage.retriable:
        raise _refusal(f"{stage.command} failed, and would fail again", ResumeRule.NOT_RETRIABLE)
    return stage


def _is_repeatable(stage: Stage) -> bool:
    """What the command says that is signed now; CommandNotRunnable where none is."""
    if stage.runner == readying.BUILT_IN:
        built_in = registry.built_in(stage.command)
        return built_in is not None and built_in.spec.repeatable
    return readying.runnable(stage).repeatable


def _refuse_if_result_left(pipeline: Pipeline) -> None:
    """All work is done: only the answer is missing, unless it left, or may have (DES-029)."""
    for message in _messages(pipeline):
        if message.status in _NEVER_LEFT or message.status == Outbound.Status.HELD:
            continue
        if not replies.is_fixed_text(message, pipeline.pk):
            raise _refusal("the result left, or may have left", ResumeRule.RESULT_MAY_HAVE_LEFT)


def _messages(pipeline: Pipeline) -> list[Outbound]:
    found = (replies.reply_of(pipeline.pk), replies.notice_of(pipeline))
    return [message for message in found if message is not None]


def _clear(message: Outbound, by: Asker) -> None:
    """No second mail about one request beside one that is not settled; a held one is taken back."""
    if message.status == Outbound.Status.HELD and message.hold_id is not None:
        holds.withdraw(hold_id=message.hold_id, by=by, reason="the pipeline goes on")
    elif outbound.move(
        message, Outbound.Status.CANCELLED, from_states=(Outbound.Status.DRAFT,), reason="withdrawn"
    ):
        return  # whoever is about to send it finds it gone
    elif message.status in _UNDER_WAY:
        raise _refusal(f"its last mail is on its way: {message.status}", ResumeRule.MAIL_UNDER_WAY)
    elif message.status == Outbound.Status.UNKNOWN and not _is_acknowledged(message):
        raise _refusal(
            "nobody knows whether its last mail left: say so first", ResumeRule.MAIL_UNKNOWN
        )


def _is_acknowledged(message: Outbound) -> bool:
    return message.effect is not None and message.effect.acknowledged_at is not None


def _put_back(pipeline: Pipeline, stage: Stage, by: Asker) -> None:
    moved = transitions.move_pipeline(
        pipeline.pk,
        Pipeline.Status.QUEUED,
        old=[Pipeline.Status.INTERRUPTED, Pipeline.Status.FAILED],
        where={"fence": pipeline.fence, "resumptions": pipeline.resumptions},
        changes={
            "resumptions": pipeline.resumptions + 1,
            "failing": False,
            "error": "",
            "notice_due": False,
            "claimed_by": "",
            "lease_until": None,
            "finished_at": None,
            "current": stage.position,
        },
        facts={"reason": f"{by} had it go on"},
        actor=str(by),
    )
    if not moved:
        raise Conflict(f"{pipeline} has moved meanwhile")
    for row in Stage.objects.filter(pipeline_id=pipeline.pk, position__gte=stage.position):
        _make_due(row, by)
    events.append_event(
        kind="pipeline.resumed",
        subject=Subject("pipelines.pipeline", str(pipeline.pk)),
        actor=str(by),
        facts={"command": stage.command, "position": stage.position, "at": str(timezone.now())},
    )
    queue.enqueue("pipelines.tasks.run_pipeline", str(pipeline.pk))


def _make_due(stage: Stage, by: Asker) -> None:
    """As it was before it ran, but for its attempts and what they have cost."""
    transitions.move_stage(
        stage,
        Stage.Status.PENDING,
        old=frozenset(Stage.Status) - Stage.HELD,
        changes={
            "fence": stage.fence + 1,
            "claimed_by": "",
            "lease_until": None,
            "started_at": None,
            "finished_at": None,
            "exit_code": None,
            "error": "",
            "retriable": False,
        },
        actor=str(by),
    )


def _refusal(detail: str, rule: ResumeRule) -> ResumeRefused:
    return ResumeRefused(detail, field="pipeline_id", rule=rule.value)
