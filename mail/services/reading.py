"""Looking into stored mail on somebody's behalf, where the look itself is written down."""

from __future__ import annotations

from guards.exceptions import NotFound, Refused
from guards.services import decisions
from guards.types import Action, Asker, Judgement, Rule, Verdict
from mail import selectors
from mail.models import Message
from mail.selectors import Readable
from mail.services import records
from mail.types import ParsedPart


def download_part(*, row: Readable, path: str, by: Asker) -> ParsedPart:
    """One decoded leaf of a message, for somebody who may see it: one Decision either way.

    Refused where its sender holds no `r` and no operator released it; NotFound where the tree has
    no such leaf; RawMissing where the store lost the bytes.
    """
    judgement = _judge(row)
    if judgement.verdict is not Verdict.ALLOW:
        _record(row, judgement, by)
        raise Refused("this sender may not be read here", field="message_id", rule=judgement.rule)
    found = next((leaf for leaf in selectors.parsed(row.message).parts if leaf.path == path), None)
    if found is None:
        raise NotFound(f"message {row.message.pk} has no part {path[:100]!r}", field="path")
    _record(row, judgement, by)
    return found


def _judge(row: Readable) -> Judgement:
    message: Message = row.message
    judged = decisions.decide_read(
        action=Action.DOWNLOAD, sender=message.sender or None, permission=row.permission
    )
    if judged.verdict is not Verdict.ALLOW and row.readable:
        return Judgement(
            Action.DOWNLOAD, Verdict.ALLOW, Rule.OPERATOR_OVERRIDE, dict(judged.evidence)
        )
    return judged


def _record(row: Readable, judgement: Judgement, by: Asker) -> None:
    decisions.record_decision(
        judgement=judgement,
        asker=by,
        subject=records.subject_of(row.message),
        identity_id=row.message.account.identity_id,
        sender=row.message.sender,
        permission=row.permission,
    )
