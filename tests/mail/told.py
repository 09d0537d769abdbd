"""A reply that waits, and of which the owner was told: made once for the tests of a module.

All tests of a module that asks for it go on from there; none of them may be transactional.
"""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import pytest
from django.db import transaction
from django.test import override_settings
from pytest_django import DjangoDbBlocker

from approvals.services import artifacts
from mail import registry
from mail.gateways.memory import MemoryServer, MemoryTransport
from mail.models import Account, NoticeItem
from tests.keys import Key, Keys
from tests.mail.factories import AccountFactory, IdentityFactory
from tests.mail.owner import SECRET, USER, House, owned_by

#: What a server has of its own process, beside what it remembers.
_NOT_REMEMBERED = {"lock", "listeners"}


@dataclass(frozen=True)
class Told:
    """The rows of it, and what the server remembers."""

    account_id: int
    item_id: int
    memory: dict[str, Any]


@pytest.fixture(scope="module")
def told_once(
    django_db_setup: None,
    django_db_blocker: DjangoDbBlocker,
    keys: Keys,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Told]:
    """In a transaction around those of the tests, which is undone at the end of the module."""
    turn = transaction.atomic()
    turn._from_testcase = True
    with django_db_blocker.unblock():
        turn.__enter__()
        with (
            pytest.MonkeyPatch.context() as patched,
            override_settings(**owned_by(keys.reader, tmp_path_factory.mktemp("owner"))),
        ):
            patched.setenv("MAIL_SECRET", SECRET)
            told = _tell()
    yield told
    with django_db_blocker.unblock():
        transaction.set_rollback(True)
        turn.__exit__(None, None, None)


def _tell() -> Told:
    artifacts.ensure_key()
    server, real = MemoryServer(), registry.transport("imap")
    registry.register_transport("imap", MemoryTransport(server))
    try:
        server.add_user(USER, SECRET)
        identity = IdentityFactory(handle="agent", email=USER, reply_policy="auto")
        account = AccountFactory(identity=identity, sent_folder="")
        item = House(account, server).told()
    finally:
        registry.register_transport("imap", real)
    memory = {name: of for name, of in vars(server).items() if name not in _NOT_REMEMBERED}
    return Told(account.pk, item.pk, memory)


@pytest.fixture
def told_house(told_once: Told, db: None, mail_server: MemoryServer, owner_key: Key) -> House:
    """The agent's house as it is now, with a server that remembers the same."""
    vars(mail_server).update(deepcopy(told_once.memory))
    return House.reopened(Account.objects.get(pk=told_once.account_id), mail_server)


@pytest.fixture
def shown(told_once: Told, told_house: House) -> NoticeItem:
    """A reply to Alice that waits, and of which the owner was told."""
    return NoticeItem.objects.select_related("approval__hold").get(pk=told_once.item_id)
