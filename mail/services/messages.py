"""What becomes of a stored message afterwards: taken, refused, revealed, released."""

from __future__ import annotations

from dataclasses import replace

from django.db.models import Q
from django.utils import timezone

from guards.exceptions import NotFound, Refused
from guards.services import decisions
from guards.services.units import unit_of_work
from guards.types import SYSTEM, Action, Asker, Judgement, Verdict
from mail import admission, selectors
from mail.models import Message
from mail.services import records
from mail.signals import message_admitted
from teams.services.events import append_event


def take_for_execution(*, message_id: int) -> bool:
    """Claim a due message for one pipeline: True for the one call that took it."""
    with unit_of_work():
        return bool(
            Message.objects.filter(pk=message_id, execution=Message.Execution.DUE).update(
                execution=Message.Execution.TAKEN
            )
        )


def refuse_execution(*, message_id: int, judgement: Judgement) -> bool:
    """A second look found that a due message must not start: record why. True for the one call."""
    with unit_of_work():
        refused = Message.objects.filter(pk=message_id, execution=Message.Execution.DUE).update(
            execution=Message.Execution.REFUSED,
            action=str(judgement.action),
            verdict=str(judgement.verdict),
            rule=str(judgement.rule),
        )
        if refused:
            message = _message(message_id)
            records.record(
                message=message, judgement=judgement, identity_id=message.account.identity_id
            )
    return bool(refused)


def reveal(*, message_id: int, by: Asker) -> Message:
    """Show an operator a message that its sender may not have read here. A Decision of its own."""
    message = _message(message_id)
    judgement = _override(Action.REVEAL, by)
    with unit_of_work():
        _record(message, judgement, by)
        Message.objects.filter(pk=message.pk, revealed_at=None).update(revealed_at=timezone.now())
        message.refresh_from_db()
    return message


def release(*, message_id: int, by: Asker) -> Message:
    """Let a held message through by an operator's word.

    It becomes readable. Mail that was held only because it was there before us also starts what it
    asks for, if it would be permitted to now; a person's word never replaces trust or permission.
    """
    message = _message(message_id)
    judgement = _override(Action.RELEASE, by)
    fresh = selectors.reassess(message)
    starts = (
        admission.executes(fresh.judgement)
        and message.execution == Message.Execution.NONE
        and message.action == Action.EXECUTE
    )
    evidence = {"starts": starts, "rule_now": str(fresh.judgement.rule)}
    with unit_of_work():
        _record(message, replace(judgement, evidence=evidence), by)
        now = timezone.now()
        Message.objects.filter(pk=message.pk, released_at=None).update(released_at=now)
        Message.objects.filter(pk=message.pk, revealed_at=None).update(revealed_at=now)
        if starts:
            _admit(message, fresh.replay_key or "")
        _announce(message, by, starts)
        message.refresh_from_db()
    return message


def set_aside(*, message_id: int, whole_sender: bool = False, by: Asker) -> int:
    """An operator has seen that a message is held and leaves it so: it asks for nobody any more.

    With `whole_sender` all that is held of the same sender in the same account. Returns how many;
    trust, permission and what may be read stay exactly as they are.
    """
    if by.kind != "operator":
        raise Refused("only an operator may leave held mail as it is", rule="no-permission")
    message = _message(message_id)
    same = Q(pk=message.pk)
    if whole_sender and message.sender:
        same |= Q(account=message.account, sender=message.sender)
    with unit_of_work():
        moved = Message.objects.filter(
            same, verdict=Verdict.HOLD, revealed_at=None, set_aside_at=None
        ).update(set_aside_at=timezone.now())
        if moved:
            append_event(
                kind="mail.set-aside",
                subject=records.subject_of(message),
                actor=str(by),
                facts={"account": message.account.name, "messages": moved},
            )
    return moved


def _admit(message: Message, replay_key: str) -> None:
    moved = Message.objects.filter(pk=message.pk, execution=Message.Execution.NONE).update(
        execution=Message.Execution.DUE, replay_key=replay_key
    )
    if moved:
        message.refresh_from_db()
        message_admitted.send(sender=Message, message=message)


def _override(action: Action, by: Asker) -> Judgement:
    judgement = decisions.decide_override(action=action, by=by)
    if judgement.verdict is not Verdict.ALLOW:
        raise Refused(f"only an operator may {action} a message", rule=str(judgement.rule))
    return judgement


def _record(message: Message, judgement: Judgement, by: Asker) -> None:
    records.record(
        message=message,
        judgement=judgement,
        identity_id=message.account.identity_id,
        asker=by,
    )


def _announce(message: Message, by: Asker, starts: bool) -> None:
    append_event(
        kind="mail.released",
        subject=records.subject_of(message),
        actor=str(by or SYSTEM),
        facts={"account": message.account.name, "number": message.number, "starts": starts},
    )


def _message(message_id: int) -> Message:
    message = Message.objects.select_related("account__identity").filter(pk=message_id).first()
    if message is None:
        raise NotFound(f"there is no message {message_id}")
    return message
