"""Accounts: made and changed by the operator, and what is known about whether they work.

A change raises `revision`, so that a watcher takes it up and an approval given before it no longer
fits. A failing account is announced once, when it begins to fail and when it works again.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta

from django.core.exceptions import ValidationError
from django.db.models import F
from django.utils import timezone

from guards.exceptions import CountersignError, InvalidInput, NotFound
from guards.models import Identity
from guards.services.units import unit_of_work
from guards.types import Asker, Subject
from mail import endpoints
from mail.exceptions import AccountDisabled, ReplyRefused, TransportError
from mail.gateways.base import LOOPBACK_HOSTS, Mailbox
from mail.models import Account
from mail.registry import transport
from mail.services import account_rules, gmail_reading, sent_copies
from mail.signals import account_changed
from mail.types import Provider
from teams.services.events import append_event

#: What an operator may set; everything else is the program's own.
EDITABLE = frozenset(
    {
        "name",
        "protocol",
        "provider",
        "host",
        "port",
        "username",
        "secret_ref",
        "folder",
        "sent_folder",
        "archive_folder",
        "server_files_sent",
        "authserv_id",
        "smtp_host",
        "smtp_port",
        "smtp_username",
        "smtp_secret_ref",
        "from_address",
        "bcc_self",
        "sign_outbound",
        "preserves_mime",
        "poll_interval",
        "tls_skip_verify",
    }
)

_INTERVALS = {
    Account.Interval.M1: 1,
    Account.Interval.M5: 5,
    Account.Interval.M10: 10,
    Account.Interval.M15: 15,
    Account.Interval.M30: 30,
    Account.Interval.H1: 60,
    Account.Interval.H2: 120,
}
#: A server that heals is noticed within 90 seconds: no wait after a passing fault is longer.
BACKOFF_CAP = 60.0
#: A refused login is not hammered on: providers lock accounts for that.
BACKOFF_CAP_PERMANENT = 900.0
#: How exactly the age of the last success is kept.
_MOMENT = timedelta(seconds=5)


#: What a server may lack, and what that means.
_WISHES = {
    "IDLE": "the server announces nothing: the account is polled every interval instead",
    "UIDPLUS": "moved mail is found again by its digest only",
    "CONDSTORE": "changed flags are not followed",
}


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that a trial connection found out; `detail` says what to do where it is not ok."""

    check: str
    ok: bool
    detail: str = ""


def create_account(*, identity: Identity, by: Asker, **values: object) -> Account:
    """Add a mailbox to an identity. InvalidInput names the field that is not acceptable."""
    known = _known(values)
    if known.get("protocol") == Account.Protocol.GMAIL:
        known = {**known, **account_rules.GMAIL_SERVER}
    account = Account(identity=identity, **known)
    validate(account)
    with unit_of_work():
        account.save(force_insert=True)
        _announce(account, "account.added", by)
    return account


def update_account(*, account_id: int, by: Asker, **values: object) -> Account:
    """Change what an operator may change; the revision goes up and failures are forgotten."""
    changes = _known(values)
    with unit_of_work():
        account = _locked(account_id)
        for name, value in changes.items():
            setattr(account, name, value)
        validate(account)
        account.revision += 1
        account.failures, account.last_error, account.next_poll_at = 0, "", None
        account.save()
        _announce(account, "account.changed", by, {"fields": sorted(changes)})
    return account


def disable(*, account_id: int, by: Asker) -> Account:
    """Switch an account off: no poll, no watch, no send, until it is enabled again."""
    return _switch(account_id, Account.State.DISABLED, "account.disabled", by)


def enable(*, account_id: int, by: Asker) -> Account:
    """Switch an account on again; its next poll is due at once."""
    return _switch(account_id, Account.State.NEW, "account.enabled", by)


def note_success(*, account: Account) -> None:
    """Mail of an account that works was stored: say when, in the transaction that stored it."""
    Account.objects.filter(pk=account.pk, state=Account.State.OK, failures=0).update(
        last_success_at=timezone.now(), next_poll_at=next_poll(account)
    )


def record_success(*, account: Account) -> None:
    """A pass came to its end: failures are over, and the next poll is one interval away.

    What was said a moment ago is not said again: a watcher would hold up those who start the work.
    """
    now = timezone.now()
    if Account.objects.filter(
        pk=account.pk, state=Account.State.OK, failures=0, last_success_at__gt=now - _MOMENT
    ).exists():
        return
    with unit_of_work():
        mine = Account.objects.filter(pk=account.pk).exclude(state=Account.State.DISABLED)
        mine.update(failures=0, last_error="", last_success_at=now, next_poll_at=next_poll(account))
        _move(account, Account.State.OK, from_states=(Account.State.NEW, Account.State.FAILING))


def record_failure(*, account: Account, error: Exception) -> float:
    """A pass failed: count it, and say so once. Seconds until it is worth trying again."""
    text = str(error)[:500]
    with unit_of_work():
        mine = Account.objects.filter(pk=account.pk).exclude(state=Account.State.DISABLED)
        mine.update(failures=F("failures") + 1, last_error=text)
        account.refresh_from_db(fields=["failures"])
        delay = backoff(account.failures, permanent=getattr(error, "permanent", False))
        mine.update(next_poll_at=timezone.now() + timedelta(seconds=delay))
        code = getattr(error, "code", "error")
        _move(
            account,
            Account.State.FAILING,
            from_states=(Account.State.NEW, Account.State.OK),
            facts={"error": code},
        )
    return delay


def backoff(failures: int, *, permanent: bool = False) -> float:
    """Seconds to wait after so many failures in a row: doubling, capped, and spread by half."""
    cap = BACKOFF_CAP_PERMANENT if permanent else BACKOFF_CAP
    ceiling = min(cap, 2.0 ** min(max(failures, 1), 12))
    return ceiling * random.uniform(0.5, 1.0)  # noqa: S311 - spreads load, guards nothing


def interval(account: Account) -> timedelta | None:
    """How long between polls; None for never."""
    minutes = _INTERVALS.get(Account.Interval(account.poll_interval))
    return None if minutes is None else timedelta(minutes=minutes)


def next_poll(account: Account) -> object:
    """When a poll is due after one that ends now; None for never."""
    wait = interval(account)
    return None if wait is None else timezone.now() + wait


def test_connection(*, account_id: int) -> list[Check]:
    """Log in, open the folders, see what the server can and whether the way out takes us, for
    `doctor` and the console.

    Stores nothing, sends nothing. Ends at the first thing without which the rest means nothing.
    """
    account = _get(account_id)
    if account.protocol == Account.Protocol.GMAIL:
        return [_gmail_login(account)]
    try:
        with transport(account.protocol).open_mailbox(endpoints.incoming(account)) as mailbox:
            checks = [Check("login", True), *_look_around(account, mailbox)]
    except CountersignError as error:
        return [Check("login", False, error.detail)]
    return [*checks, _way_out(account)] if account.smtp_host else checks


def _gmail_login(account: Account) -> Check:
    """Whether the read-only connection opens this account's mailbox; it has no way out."""
    try:
        profile = gmail_reading.prove(account=account)
    except CountersignError as error:
        return Check("login", False, error.detail)
    return Check("login", True, profile.email)


def _way_out(account: Account) -> Check:
    """Whether the server that sends for this account lets us in."""
    sender = account.from_address or account.identity.email
    try:
        endpoint = endpoints.outgoing(account)
        refusal = transport(account.protocol).submission.refusal(endpoint, envelope_from=sender)
    except CountersignError as error:
        return Check("sending", False, error.detail)
    if refusal is None:
        return Check("sending", True)
    words = f"{account.smtp_host}:{account.smtp_port}: {refusal.reason.replace('-', ' ')}"
    said = " ".join(str(part) for part in (refusal.code, refusal.reply) if part)
    return Check("sending", False, f"{words}: {said}" if said else words)


def _look_around(account: Account, mailbox: Mailbox) -> list[Check]:
    checks = []
    for folder in dict.fromkeys(filter(None, (account.folder, account.sent_folder))):
        try:
            state = mailbox.select(folder)
            checks.append(Check(f"folder {folder}", True, f"{state.exists} messages"))
        except TransportError as error:
            checks.append(Check(f"folder {folder}", False, error.detail))
    checks += _sent_copies(account, mailbox)
    if account.tls_skip_verify and account.host not in LOOPBACK_HOSTS:
        advice = "certificates are not checked: anybody on the way can read along. Switch it off"
        checks.append(Check("certificates", False, advice))
    for capability, without in _WISHES.items():
        has = capability in mailbox.capabilities
        checks.append(Check(capability, has, "" if has else without))
    return checks


def _sent_copies(account: Account, mailbox: Mailbox) -> list[Check]:
    """Whether what lies in Sent fits what the account says about its server."""
    if not account.sent_folder:
        missing = "name the Sent folder: without it nothing that was sent can be verified"
        return [Check("Sent copies", False, missing)] if account.server_files_sent else []
    try:
        return [Check("Sent copies", *sent_copies.judged(account, mailbox))]
    except CountersignError as error:
        return [Check("Sent copies", False, error.detail)]


def usable(account_id: int) -> Account:
    """The account with its identity; AccountDisabled or NotFound where it cannot be used."""
    account = _get(account_id)
    if account.state == Account.State.DISABLED:
        raise AccountDisabled(f"account {account.name} is switched off")
    return account


def refuse_inactive(account: Account) -> None:
    """Nothing is made ready to leave from an account that is off, or whose identity is retired."""
    if account.state == Account.State.DISABLED:
        raise AccountDisabled(f"account {account.name} is switched off")
    if not account.identity.is_active:
        raise ReplyRefused("the identity of this account is not active", rule="identity-inactive")


def _known(values: Mapping[str, object]) -> dict[str, object]:
    unknown = sorted(set(values) - EDITABLE)
    if unknown:
        raise InvalidInput(f"an account has no field {unknown[0]!r}", field=unknown[0])
    return dict(values)


def validate(account: Account) -> None:
    """Everything that would fail later, or silently mean something else, is refused now."""
    for name in ("port", "smtp_port"):
        value = getattr(account, name)
        if not isinstance(value, int) or isinstance(value, bool) or not 0 < value < 65536:
            raise InvalidInput(f"{name} must be a whole number from 1 to 65535", field=name)
    account_rules.refuse_unfit_references(account)
    account_rules.refuse_unfit_protocol(account)
    if account.sign_outbound and not account.preserves_mime:
        raise InvalidInput(
            "signing is on, but this transport does not preserve MIME: signatures would break. "
            "Switch signing off, or use a transport that sends messages as they are",
            field="sign_outbound",
        )
    if account.provider == Provider.PROTON_BRIDGE and account.host not in LOOPBACK_HOSTS:
        raise InvalidInput(
            "a proton-bridge runs on this machine: host must be 127.0.0.1, ::1 or localhost",
            field="host",
        )
    try:
        account.full_clean()
    except ValidationError as error:
        field, messages = next(iter(error.message_dict.items()))
        raise InvalidInput(f"{field}: {' '.join(messages)}", field=field) from error


def _get(account_id: int) -> Account:
    account = Account.objects.select_related("identity").filter(pk=account_id).first()
    if account is None:
        raise NotFound(f"there is no account {account_id}")
    return account


def _locked(account_id: int) -> Account:
    account = Account.objects.select_for_update().filter(pk=account_id).first()
    if account is None:
        raise NotFound(f"there is no account {account_id}")
    return account


def _switch(account_id: int, state: Account.State, kind: str, by: Asker) -> Account:
    with unit_of_work():
        account = _locked(account_id)
        old = account.state
        is_off = old == Account.State.DISABLED
        if is_off == (state == Account.State.DISABLED):
            return account
        account.state, account.failures, account.last_error = state, 0, ""
        account.next_poll_at = None
        account.revision += 1
        account.save()
        account_changed.send(sender=Account, account=account, old=old)
        _announce(account, kind, by)
    return account


def _move(
    account: Account,
    state: Account.State,
    *,
    from_states: tuple[Account.State, ...],
    facts: Mapping[str, object] | None = None,
) -> None:
    """One change of state, one event; an account that is already there, or off, says nothing."""
    for old in from_states:
        if Account.objects.filter(pk=account.pk, state=old).update(state=state):
            account.state = state
            account_changed.send(sender=Account, account=account, old=old)
            if state == Account.State.FAILING:
                _announce(account, "account.failing", Asker("system"), facts)
            elif old == Account.State.FAILING:
                _announce(account, "account.recovered", Asker("system"))


def _announce(
    account: Account, kind: str, by: Asker, facts: Mapping[str, object] | None = None
) -> None:
    append_event(
        kind=kind,
        subject=Subject("mail.account", str(account.pk)),
        actor=str(by),
        facts={"account": account.name, **(facts or {})},
    )
