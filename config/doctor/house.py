"""The house: database and triggers, queue and processes, keys, secrets, accounts."""

from __future__ import annotations

from collections.abc import Iterator

from django.conf import settings
from django.core import checks
from django.db import connection

from config import health
from config.doctor.findings import Finding, fault, ok, warning
from config.doctor.machine import Look
from guards import documents, secrets, selectors
from guards.exceptions import CountersignError, NoOwnerKey
from guards.models import Identity
from mail import selectors as mail
from mail.models import Account
from mail.services import accounts

#: What an account must be able to do; the rest of a trial connection is only a warning.
_ACCOUNT_NEEDS = ("login", "folder", "sending")


def _ready() -> Iterator[Finding]:
    """The same questions that `/readyz` asks."""
    for check in health.run_checks():
        if check.ok:
            yield ok(check.name, check.detail)
        else:
            yield fault(check.name, check.detail, check.detail.rsplit(": ", 1)[-1])


def _pragmas() -> Iterator[Finding]:
    if connection.vendor != "sqlite":
        return
    values = {}
    with connection.cursor() as cursor:
        for name in ("journal_mode", "synchronous", "busy_timeout"):
            cursor.execute(f"PRAGMA {name}")
            values[name] = str(cursor.fetchone()[0])
    text = ", ".join(f"{name}={value}" for name, value in values.items())
    if values["journal_mode"] == "wal" and values["synchronous"] == "2":
        yield ok("pragmas", text)
    else:
        yield fault("pragmas", text, "Use the DATABASES settings that are shipped.")


def _triggers() -> Iterator[Finding]:
    missing = selectors.missing_triggers()
    if missing:
        yield fault("triggers", f"missing: {', '.join(missing)}", "Run `manage.py migrate`.")
    else:
        yield ok("triggers", "append-only tables and frozen columns are held by the database")


def _settings() -> Iterator[Finding]:
    problems = [m for m in checks.run_checks() if m.is_serious()]
    for problem in problems:
        yield fault("settings", f"{problem.id}: {problem.msg}", str(problem.hint or ""))
    if not problems:
        yield ok("settings", "no system check complains")


def _owner() -> Iterator[Finding]:
    remedy = "Set OWNER_FINGERPRINT and OWNER_KEY_FILE; until then no command runs."
    try:
        key = documents.owner_key()
    except NoOwnerKey as problem:
        yield warning("owner key", problem.detail, remedy)
    except CountersignError as problem:
        yield fault("owner key", problem.detail, remedy)
    else:
        yield ok("owner key", f"{key.fingerprint}, until {key.expires_at:%Y-%m-%d}")


def _owner_notices() -> Iterator[Finding]:
    """Whether the owner is told by mail what waits, and whether he could answer by mail."""
    name = "owner notices"
    told = mail.owner_channel()
    way = f"to {told.address} through {told.account}" if told.account else ""
    if told.mode == "encrypted":
        yield ok(name, f"{way}, encrypted to {told.pin.fingerprint if told.pin else ''}")
    elif told.mode == "bare":
        remedy = "OWNER_NOTICES=encrypted shows what waits, and can be answered by signed mail."
        yield warning(name, f"{way}, without any content and not encrypted", remedy)
    elif told.wanted:
        yield fault(name, f"none are sent: {told.why}", _NOTICES_REMEDY)
    elif told.why:
        yield warning(name, f"none are sent: {told.why}", _NOTICES_REMEDY)
    else:
        yield ok(name, "off: what waits stands in the console only")


_NOTICES_REMEDY = (
    "Set OWNER_EMAIL, OWNER_FINGERPRINT and OWNER_KEY_FILE with a key that can be encrypted to, "
    "and an SMTP host for the account; or OWNER_NOTICES=off."
)


def _secrets() -> Iterator[Finding]:
    references = {
        "artifact key": settings.ARTIFACT_KEY_REF,
        "installation key": settings.INSTALLATION_KEY_REF,
    }
    for account in Account.objects.exclude(state=Account.State.DISABLED):
        references[f"password of {account.name}"] = account.secret_ref
        if account.smtp_secret_ref:
            references[f"SMTP password of {account.name}"] = account.smtp_secret_ref
    for identity in Identity.objects.filter(is_active=True).exclude(passphrase_ref=""):
        references[f"passphrase of {identity.handle}"] = identity.passphrase_ref
    for what, reference in references.items():
        try:
            secrets.resolve(reference)
        except CountersignError as problem:
            remedy = f"Make {reference} resolve, or name another."
            own = what in ("artifact key", "installation key")
            yield fault(
                what, problem.detail, f"Run `manage.py prepare`. {remedy}" if own else remedy
            )
        else:
            yield ok(what, "resolves")


def _accounts() -> Iterator[Finding]:
    watched = Account.objects.exclude(state=Account.State.DISABLED)
    if not watched.exists():
        yield warning("accounts", "there is none", "Add one in the console, under Accounts.")
    for account in watched:
        for check in accounts.test_connection(account_id=account.pk):
            name = f"account {account.name}: {check.check}"
            if check.ok:
                yield ok(name, check.detail)
            elif check.check.startswith(_ACCOUNT_NEEDS):
                yield fault(
                    name, check.detail, "Start that server, or correct the account in the console."
                )
            else:
                yield warning(name, check.detail, "The account works; this part of it does not.")


LOOKS: tuple[Look, ...] = (
    ("readiness", _ready),
    ("pragmas", _pragmas),
    ("triggers", _triggers),
    ("settings", _settings),
    ("owner key", _owner),
    ("owner notices", _owner_notices),
    ("secrets", _secrets),
    ("accounts", _accounts),
)
