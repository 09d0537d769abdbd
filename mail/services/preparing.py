"""Before the commit: each message of a batch is parsed and judged, outside any transaction.

One snapshot of the address book serves a whole batch. Whatever breaks the parser or the judgement
is turned into a message that claims nothing, and holds up nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime

import structlog
from django.db import DatabaseError
from django.utils import timezone

from guards import openpgp
from guards.selectors import contact_book, execute_not_before, replay_known
from mail import admission, mime
from mail.assessment import Assessment
from mail.models import Account, Message
from mail.types import FetchedMessage, ParsedMessage

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Position:
    """Where a batch stands in its folder, and how far the cursor may move once it is stored.

    `expected` is the cursor's `last_uid` as the pass knows it. Messages up to `first_pass_until`
    were there before us: they neither notify nor start anything. `completes` says that the folder
    holds nothing beyond this batch; `modseq` is what SELECT said then.
    """

    folder: str
    uidvalidity: int
    expected: int
    advance_to: int
    first_pass_until: int = 0
    completes: bool = False
    modseq: int | None = None


@dataclass(slots=True)
class Prepared:
    """One distinct message of a batch with what was found out outside the transaction."""

    sha256: str
    fetched: FetchedMessage
    parsed: ParsedMessage
    assessment: Assessment
    received_at: datetime
    first_pass: bool
    uids: list[int] = field(default_factory=list)

    @property
    def quarantine(self) -> str:
        """Why only raw bytes and outer headers count, or empty."""
        return self.parsed.quarantine or ""

    @property
    def executes(self) -> bool:
        """Whether it starts work."""
        return admission.executes(self.assessment.judgement)


def prepare(
    account: Account, position: Position, new: dict[str, list[FetchedMessage]]
) -> list[Prepared]:
    """Parse and judge each distinct message, with one snapshot of the address book."""
    surroundings = admission.Surroundings(
        account=account,
        book=contact_book(),
        own_addresses=admission.own_addresses(),
        verifier=openpgp.verifier(),
        now=timezone.now(),
        not_before=execute_not_before(),
    )
    started: set[str] = set()
    made = []
    for sha256, copies in new.items():
        one = _prepare_one(sha256, copies, surroundings, position, _replayed(started))
        if one.executes and one.assessment.replay_key:
            started.add(one.assessment.replay_key)
        made.append(one)
    return made


def _prepare_one(
    sha256: str,
    copies: Sequence[FetchedMessage],
    surroundings: admission.Surroundings,
    position: Position,
    replayed: Callable[[str], bool],
) -> Prepared:
    first = copies[0]
    received_at = min(first.internal_date or surroundings.now, surroundings.now)
    first_pass = first.uid <= position.first_pass_until

    def judged(parsed: ParsedMessage) -> Assessment:
        return admission.judge(
            parsed,
            surroundings,
            received_at=received_at,
            partial=first.truncated or parsed.quarantine is not None,
            first_pass=first_pass,
            replayed=replayed,
        )

    try:
        parsed = admission.parse(first.raw, surroundings)
        assessment = judged(parsed)
    except DatabaseError:
        raise
    except Exception as error:
        log.exception("mail.poison", account=surroundings.account.name, uid=first.uid)
        parsed = mime.unreadable(first.raw, quarantine=broken_by(error))
        assessment = judged(parsed)
    return Prepared(
        sha256, first, parsed, assessment, received_at, first_pass, [copy.uid for copy in copies]
    )


def _replayed(started: set[str]) -> Callable[[str], bool]:
    """Whether a key has started something: by the ledger, by mail that waits, or in this batch."""

    def known(key: str) -> bool:
        waiting = (Message.Execution.DUE, Message.Execution.TAKEN)
        return (
            key in started
            or bool(replay_known([key]))
            or Message.objects.filter(replay_key=key, execution__in=waiting).exists()
        )

    return known


def broken_by(error: Exception) -> str:
    """The quarantine reason of a message that no rule of the parser foresaw."""
    return f"error.{type(error).__name__}"[:64]
