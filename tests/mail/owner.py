"""What tests of notices and of answers by mail share: a draft that waits, and the notice opened."""

from __future__ import annotations

import re
import uuid
from datetime import timedelta
from email import message_from_bytes, policy
from email.message import EmailMessage
from pathlib import Path
from typing import cast

from approvals.clock import database_now
from approvals.models import Approval, Effect, Hold
from approvals.services import effects
from guards import triggers
from guards.models import Decision, Identity
from guards.types import SYSTEM, Subject
from mail.gateways.memory import MemoryServer
from mail.models import Account, MailedAnswer, Message, NoticeItem, Outbound, OwnerNotice
from mail.services import mailed_answers, notices, outbound, polling
from teams.models import Event
from tests.keys import Key, decrypt, public_key
from tests.mail.factories import make_mail, make_signed

SECRET = "mailbox-secret"
USER = "agent@agents.test"
OWNER = "reader@example.org"
ALICE = "alice@example.org"


def owned_by(key: Key, directory: Path) -> dict[str, str]:
    """The settings of an installation whose owner has this key."""
    path = directory / "owner.asc"
    path.write_bytes(public_key(key, armor=True))
    return {
        "OWNER_FINGERPRINT": key.fingerprint,
        "OWNER_KEY_FILE": str(path),
        "OWNER_EMAIL": key.email,
        "BASE_URL": "https://countersign.example",
    }


def read(content: bytes) -> EmailMessage:
    return message_from_bytes(content, policy=policy.default)


def opened(key: Key, raw: bytes) -> EmailMessage:
    """What the holder of `key` reads in an encrypted mail."""
    _, message = read(raw).iter_parts()
    return read(decrypt(key, cast(bytes, message.get_payload(decode=True))))


class House:
    """An agent whose replies wait for a person, its mailbox, and its owner."""

    def __init__(self, account: Account, server: MemoryServer) -> None:
        self.account, self.server = account, server
        Identity.objects.filter(pk=account.identity_id).update(reply_policy="approve")
        account.refresh_from_db()
        polling.poll(account_id=account.pk)

    @classmethod
    def reopened(cls, account: Account, server: MemoryServer) -> House:
        """The house of an account and a server that are further on than at their beginning."""
        house = cls.__new__(cls)
        house.account, house.server = account, server
        return house

    def held(self, text: str = "The answer.\n", **fields: str) -> Outbound:
        """A reply that waits."""
        self.server.deliver(USER, make_mail(**fields))
        polling.poll(account_id=self.account.pk)
        draft = outbound.draft_reply(
            message_id=Message.objects.latest("pk").pk,
            text=text,
            origin=Subject("pipelines.pipeline", str(uuid.uuid4())),
            executes=True,
        )
        return outbound.submit(outbound_id=draft.pk, asker=SYSTEM)

    def told(self, **fields: str) -> NoticeItem:
        """A reply that waits, and of which the owner was told."""
        self.held(**fields)
        notice = notices.notify()
        assert notice is not None
        return cast(NoticeItem, notice.items.select_related("approval__hold").get())

    def write(self, raw: bytes) -> MailedAnswer | None:
        """A mail arrives and is judged; its answer, where it is one."""
        self.server.deliver(USER, raw)
        polling.poll(account_id=self.account.pk)
        mailed_answers.settle_due()
        return MailedAnswer.objects.filter(message=Message.objects.latest("pk")).first()

    def say(self, key: Key, text: str, **options: object) -> MailedAnswer:
        """The holder of `key` signs and sends this text, as the owner says he does."""
        sender = str(options.pop("sender", OWNER))
        made = self.write(make_signed(key, text, sender=sender, **options))  # type: ignore[arg-type]
        assert made is not None
        return made

    def say_unsigned(self, text: str, **fields: str) -> MailedAnswer:
        """A mail that only says it is from the owner."""
        made = self.write(make_mail(**{"sender": OWNER, "text": text, **fields}))
        assert made is not None
        return made

    def sent_to(self, address: str) -> list[bytes]:
        """What left for that address, in order."""
        return [mail.payload for mail in self.server.sent if mail.recipients == (address,)]


def links(text: str) -> list[str]:
    """Every link in a notice."""
    return re.findall(r"https?://\S+", text)


def digest_of(shown: NoticeItem) -> str:
    assert shown.approval is not None
    return shown.approval.digest


def state_of(shown: NoticeItem) -> str:
    return str(Hold.objects.get(pk=shown.hold_id).state)


def dispatch() -> None:
    """What the queue would do."""
    for effect in Effect.objects.filter(phase=Effect.Phase.INTENT):
        effects.dispatch(effect_id=effect.pk)


def nothing_left(house: House) -> bool:
    """Whether Alice has had nothing, after everything that was allowed was dispatched."""
    dispatch()
    return house.sent_to(ALICE) == []


def age_notices(**by: float) -> None:
    """As if every notice so far had been written that much earlier."""
    triggers.lift("mail")
    for notice in OwnerNotice.objects.all():
        earlier = notice.created_at - timedelta(**by)
        OwnerNotice.objects.filter(pk=notice.pk).update(created_at=earlier)
    triggers.install("mail")


def expire(shown: NoticeItem) -> None:
    """As if the day of a snapshot were over."""
    triggers.lift("approvals")
    Approval.objects.filter(pk=shown.approval_id).update(expires_at=database_now())
    triggers.install("approvals")


def refused(house: House, shown: NoticeItem, answer: MailedAnswer, reason: str) -> None:
    """An answer that did nothing, with one event and one Decision that say why."""
    assert (answer.state, answer.reason) == ("refused", reason)
    assert Approval.objects.get(pk=shown.approval_id).decided_via == ""
    assert state_of(shown) == "waiting"
    assert nothing_left(house)
    assert Event.objects.filter(kind="answer.refused").count() == 1
    assert Decision.objects.filter(action="answer", verdict="deny").count() == 1
