"""Reactions: an admitted message is taken in, a reply's fate settles its pipeline, and so on."""

from __future__ import annotations

from functools import partial
from typing import Any
from uuid import UUID

from django.db import transaction
from django.dispatch import receiver

from approvals.models import Approval, Hold
from approvals.signals import approval_changed, hold_closed
from guards import queue
from mail.models import Message, Outbound
from mail.signals import message_admitted, outbound_changed
from pipelines import deferral
from pipelines.services import acknowledging, clearing, missions, replies, sending, tool_calls
from pipelines.signals import mission_ended, pipeline_ended, stage_given_up


@receiver(message_admitted, dispatch_uid="pipelines.take_in")
def take_in(sender: Any, message: Message, **kwargs: Any) -> None:
    """Execution became due: look at it as soon as this transaction has committed."""
    queue.enqueue("pipelines.tasks.take_in", message.pk)


@receiver(outbound_changed, dispatch_uid="pipelines.settle_reply")
def settle_reply(sender: Any, outbound: Outbound, **kwargs: Any) -> None:
    """An outgoing message moved: its pipeline moves with it, in the same transaction."""
    replies.settle(message=outbound)
    acknowledging.settle(message=outbound)
    sending.follow(message=outbound)


@receiver(stage_given_up, dispatch_uid="pipelines.end_mission")
def end_mission(sender: Any, stage_id: int, reason: str, **kwargs: Any) -> None:
    """A stage was cancelled or interrupted: its open mission ends, in the same transaction."""
    missions.end_for_stage(stage_id=stage_id, status="given up", reason=reason)


@receiver(stage_given_up, dispatch_uid="pipelines.take_mail_back")
def take_mail_back(sender: Any, stage_id: int, reason: str, **kwargs: Any) -> None:
    """A stage was cancelled or interrupted: mail of it that waits never leaves."""
    sending.take_back(stage_id=stage_id, reason=reason)


@receiver(pipeline_ended, dispatch_uid="pipelines.let_directory_go")
def let_directory_go(sender: Any, pipeline_id: UUID, status: str, **kwargs: Any) -> None:
    """A pipeline has ended: once that is committed its directory goes, where it may."""
    gone = partial(clearing.let_go, pipeline_id=pipeline_id, status=status)
    transaction.on_commit(gone, robust=True)


@receiver(mission_ended, dispatch_uid="pipelines.withdraw_questions")
def withdraw_questions(sender: Any, mission_id: UUID, status: str, **kwargs: Any) -> None:
    """A mission has ended: nobody need answer what its worker asked."""
    tool_calls.withdraw(mission_id=mission_id, reason=f"its mission is {status}")


@receiver(hold_closed, dispatch_uid="pipelines.follow_hold")
def follow_hold(sender: Any, hold: Hold, **kwargs: Any) -> None:
    """A person answered whether a worker may use a tool, or the question was taken back."""
    if hold.kind == deferral.KIND:
        tool_calls.follow_hold(hold=hold)


@receiver(approval_changed, dispatch_uid="pipelines.follow_approval")
def follow_approval(sender: Any, approval: Approval, old: str, **kwargs: Any) -> None:
    """A yes to a tool call lapsed unused."""
    if approval.kind == deferral.KIND:
        tool_calls.follow_approval(approval=approval, old=old)
