"""`inbox`: the newest messages of an identity as a table of 80 columns (DES-018), or as JSON."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby
from typing import Any

from django.core.management.base import CommandParser
from django.db.models import QuerySet
from django.utils import timezone

from guards import selectors as guards_selectors
from guards.fronts.commands import JsonCommand, wrong_use
from guards.models import Identity
from guards.types import TrustLevel
from mail import listing, selectors
from mail.models import Account, Message
from mail.selectors import Readable

_LIMIT = 50


class Command(JsonCommand):
    """Lists messages; subjects of senders without `r` are redacted."""

    help = "List the newest messages, with the trust of each."

    def add_arguments(self, parser: CommandParser) -> None:
        """Which messages, and how many."""
        super().add_arguments(parser)
        parser.add_argument("--as", dest="handle", help="handle of the identity to look as")
        parser.add_argument("--account", help="only this account")
        parser.add_argument("--unread", action="store_true", help="only unread messages")
        parser.add_argument(
            "--limit", type=int, default=_LIMIT, help=f"how many an account (default {_LIMIT})"
        )

    def perform(self, **options: Any) -> int:
        """Print one table an account, or one JSON object for all."""
        if options["limit"] < 1:
            raise wrong_use("--limit must be at least 1")
        rows = list(self._rows(_accounts(options["handle"], options["account"]), options))
        self.emit(
            {"schema": "inbox/1", "messages": [_document(row) for row in rows]},
            "\n".join(_tables(rows)) or "no messages",
        )
        return 0

    def _rows(self, accounts: QuerySet[Account], options: dict[str, Any]) -> Iterable[Readable]:
        for account in accounts:
            messages = Message.objects.filter(account=account).select_related("account")
            if options["unread"]:
                messages = messages.filter(seen=False)
            yield from selectors.readable(messages.order_by("-number")[: options["limit"]])


def _accounts(handle: str | None, name: str | None) -> QuerySet[Account]:
    """The accounts to list; a name that resolves to nothing is an error (sister-38)."""
    accounts = Account.objects.order_by("name")
    identity = _identity(handle)
    if identity is not None:
        accounts = accounts.filter(identity=identity)
    if name is not None:
        accounts = accounts.filter(name=name)
        if not accounts.exists():
            raise wrong_use(f"there is no account {name!r} here")
    return accounts


def _identity(handle: str | None) -> Identity | None:
    """The identity named, else the default one, else None for all."""
    if handle is None:
        return guards_selectors.default_identity()
    identity = guards_selectors.identity_by_handle(handle.removeprefix("@"))
    if identity is None:
        raise wrong_use(f"there is no active identity {handle!r}")
    return identity


def _subject(row: Readable) -> str:
    return row.message.subject if row.readable else listing.REDACTED


def _tables(rows: list[Readable]) -> list[str]:
    zone = timezone.get_current_timezone()
    grouped = [
        (account, [_line(row) for row in held])
        for account, held in groupby(rows, key=lambda row: row.message.account)
    ]
    printed: list[str] = []
    for account, lines in grouped:
        if len(grouped) > 1:
            printed.append(f"{account.name}:")
        printed += listing.render(lines, zone=zone)
    return printed


def _line(row: Readable) -> listing.Line:
    message = row.message
    return listing.Line(
        number=message.number,
        unread=not message.seen,
        name=message.sender_name,
        address=message.sender,
        when=message.internal_date or message.received_at,
        trust=TrustLevel(message.trust_level),
        subject=_subject(row),
    )


def _document(row: Readable) -> dict[str, object]:
    message = row.message
    when = message.internal_date or message.received_at
    return {
        "account": message.account.name,
        "id": message.number,
        "unread": not message.seen,
        "from": message.sender or None,
        "from_name": message.sender_name,
        "date": when.isoformat(),
        "trust": message.trust_level,
        "reason": message.trust_reason,
        "permission": str(row.permission),
        "rule": message.rule,
        "subject": _subject(row),
        "redacted": not row.readable,
    }
