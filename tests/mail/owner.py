"""What tests of notices and of answers by mail share: a draft that waits, and the notice opened."""

from __future__ import annotations

import re
import uuid
from email import message_from_bytes, policy
from email.message import EmailMessage
from typing import cast

from guards.models import Identity
from guards.types import SYSTEM, Subject
from mail.gateways.memory import MemoryServer
from mail.models import Account, MailedAnswer, Message, NoticeItem, Outbound, OwnerNotice
from mail.services import mailed_answers, notices, outbound, polling
from tests.keys import Key, decrypt
from tests.mail.factories import make_mail, make_signed

USER = "agent@agents.test"


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
        sender = str(options.pop("sender", "reader@example.org"))
        made = self.write(make_signed(key, text, sender=sender, **options))  # type: ignore[arg-type]
        assert made is not None
        return made

    def say_unsigned(self, text: str, **fields: str) -> MailedAnswer:
        """A mail that only says it is from the owner."""
        made = self.write(make_mail(**{"sender": "reader@example.org", "text": text, **fields}))
        assert made is not None
        return made

    def sent_to(self, address: str) -> list[bytes]:
        """What left for that address, in order."""
        return [mail.payload for mail in self.server.sent if mail.recipients == (address,)]


def links(text: str) -> list[str]:
    """Every link in a notice."""
    return re.findall(r"https?://\S+", text)


def the_notice() -> OwnerNotice:
    return OwnerNotice.objects.get()
