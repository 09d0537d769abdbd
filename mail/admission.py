"""What a stored message is worth: one viewpoint and one assessment, the same for ingest and later.

Pure but for the verifier and the address book that the caller took. A message of which only a part
is known (truncated, quarantined) starts nothing, whatever its sender may.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from django.conf import settings

from guards.models import Identity
from guards.openpgp import Verifier
from guards.selectors import ContactBook
from guards.types import Action, Judgement, Rule, Verdict
from mail import mime, owner
from mail.assessment import Assessment, Viewpoint, as_answer, assess
from mail.gateways.base import LOOPBACK_HOSTS
from mail.models import Account, Outbound, OwnerNotice
from mail.types import ParsedMessage, Provider


@dataclass(frozen=True, slots=True)
class Surroundings:
    """Everything that an assessment rests on beside the message: taken once for a whole batch."""

    account: Account
    book: ContactBook
    own_addresses: frozenset[str]
    verifier: Verifier
    now: datetime
    not_before: datetime | None = None

    @property
    def viewpoint(self) -> Viewpoint:
        """As the account's identity sees it."""
        identity = self.account.identity
        return Viewpoint(
            identity_id=identity.pk,
            email=identity.email,
            handle=identity.handle,
            binding=identity.recipient_binding == Identity.Binding.REQUIRED,
            own_addresses=self.own_addresses,
        )


def own_addresses() -> frozenset[str]:
    """Every address that is ours: of active and retired identities, and of accounts."""
    found = set(Identity.objects.values_list("email", flat=True))
    for from_address, username in Account.objects.values_list("from_address", "username"):
        found.update(name for name in (from_address, username) if "@" in name)
    return frozenset(address.lower() for address in found)


def parse(raw: bytes, surroundings: Surroundings) -> ParsedMessage:
    """Parse as this account's mail."""
    return parse_for(raw, surroundings.account, surroundings.own_addresses)


def parse_for(raw: bytes, account: Account, own: frozenset[str]) -> ParsedMessage:
    """The same, where nothing is to be judged: `own` are this installation's addresses."""
    return mime.parse(
        raw,
        provider=Provider(account.provider),
        loopback=account.host in LOOPBACK_HOSTS,
        own_addresses=own,
        authserv_id=account.authserv_id,
    )


def judge(
    parsed: ParsedMessage,
    surroundings: Surroundings,
    *,
    received_at: datetime,
    partial: bool,
    first_pass: bool = False,
    replayed: Callable[[str], bool] | None = None,
) -> Assessment:
    """Assess with the surroundings' pins and permissions.

    A partial message never executes, and a retired identity is asked for nothing.
    """
    book, identity_id = surroundings.book, surroundings.account.identity_id
    made = assess(
        parsed,
        viewpoint=surroundings.viewpoint,
        pins=book.pins,
        rwx=lambda address: book.rwx(identity_id, address),
        now=surroundings.now,
        received_at=received_at,
        verifier=surroundings.verifier,
        max_age=timedelta(hours=settings.EXECUTE_MAX_AGE_HOURS),
        not_before=surroundings.not_before,
        first_pass=first_pass,
        replayed=replayed,
        is_own_message_id=_is_ours,
    )
    if not made.is_answer and _answers_notice(parsed):
        made = as_answer(made)
    if not surroundings.account.identity.is_active:
        return replace(made, judgement=_not_retired(made.judgement))
    return replace(made, judgement=_whole_only(made.judgement)) if partial else made


#: What becomes of a message that broke the storing of it: nobody's word counts.
HELD_AS_POISON = Judgement(Action.SURFACE, Verdict.HOLD, Rule.NO_IDENTITY, {"poison": True})


def executes(judgement: Judgement) -> bool:
    """Whether this judgement starts work."""
    return judgement.action is Action.EXECUTE and judgement.verdict is Verdict.ALLOW


def _is_ours(message_id: str) -> bool:
    """Whether a message carries an id that we gave: our own mail come back under any name."""
    return Outbound.objects.filter(message_id=message_id).exists()


def _answers_notice(parsed: ParsedMessage) -> bool:
    """Whether the owner replies to one of our notices, whatever he says in it."""
    if not parsed.in_reply_to or not owner.is_owner(parsed.facts.sender):
        return False
    return OwnerNotice.objects.filter(outbound__message_id__in=parsed.in_reply_to).exists()


def _not_retired(judgement: Judgement) -> Judgement:
    if judgement.action is not Action.EXECUTE:
        return judgement
    evidence = {**judgement.evidence, "identity": "inactive"}
    return replace(
        judgement,
        action=Action.SURFACE,
        verdict=Verdict.HOLD,
        rule=Rule.NO_PERMISSION,
        evidence=evidence,
    )


def _whole_only(judgement: Judgement) -> Judgement:
    if not executes(judgement):
        return judgement
    return replace(
        judgement,
        verdict=Verdict.HOLD,
        rule=Rule.NO_TEXT,
        evidence={**judgement.evidence, "partial": True},
    )
