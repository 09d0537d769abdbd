"""`poll_mail`: one pass over all accounts, or one, for cron and for people."""

from __future__ import annotations

import json
from argparse import ArgumentParser
from dataclasses import asdict
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from guards.exceptions import CountersignError
from guards.fronts.commands import CHECKED_AT_START
from mail.exceptions import LeaseHeld
from mail.models import Account
from mail.services import polling
from mail.types import IngestReport


class Command(BaseCommand):
    """Polls once. Exit code 1 where an account could not be read."""

    help = "Fetch new mail of every account once."
    requires_system_checks = CHECKED_AT_START

    def add_arguments(self, parser: ArgumentParser) -> None:
        """`--account NAME` polls that one only, `--json` prints one object a line."""
        parser.add_argument("--account", help="name of the one account to poll")
        parser.add_argument("--json", action="store_true", help="one JSON object per account")

    def handle(self, *args: Any, **options: Any) -> None:
        """Poll each account, say what came of it, and fail at the end if any did."""
        chosen = (
            [account_by_name(options["account"])]
            if options["account"]
            else list(Account.objects.exclude(state=Account.State.DISABLED))
        )
        results = [_poll(account) for account in chosen]
        for result in results:
            self.stdout.write(json.dumps(result) if options["json"] else _sentence(result))
        if not all(result["ok"] for result in results):
            raise SystemExit(1)


def account_by_name(name: str) -> Account:
    """The account of that name; an unknown one is an error, never all of them (sister-39)."""
    account = Account.objects.filter(name=name).first()
    if account is None:
        known = ", ".join(Account.objects.values_list("name", flat=True)) or "none"
        raise CommandError(f"there is no account {name!r}; known: {known}", returncode=2)
    return account


def _poll(account: Account) -> dict[str, Any]:
    try:
        report = polling.poll(account_id=account.pk)
    except LeaseHeld:
        return {"account": account.name, "ok": True, "held": True, **asdict(IngestReport())}
    except CountersignError as error:
        return {"account": account.name, "ok": False, "code": error.code, "error": error.detail}
    return {"account": account.name, "ok": True, "held": False, **asdict(report)}


def _sentence(result: dict[str, Any]) -> str:
    if not result["ok"]:
        return f"{result['account']}: {result['error']}"
    if result["held"]:
        return f"{result['account']}: another process reads it right now"
    counts = ("fetched", "stored", "known", "quarantined", "admitted")
    return f"{result['account']}: " + ", ".join(f"{result[name]} {name}" for name in counts)
