"""How the owner is told by mail at this moment: in which mode, to which key, by which account."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from django.conf import settings

from guards import openpgp
from guards.exceptions import CountersignError
from guards.types import Pin
from mail import admission, owner
from mail.models import Account


class Mode(StrEnum):
    """What a notice may show. OFF sends none."""

    ENCRYPTED = "encrypted"
    BARE = "bare"
    OFF = "off"


@dataclass(frozen=True, slots=True)
class Channel:
    """How the owner is told: in which mode, where, to which key, through which account.

    `why` says in a sentence what is missing, where `wanted` is more than `mode`.
    """

    mode: Mode
    wanted: bool
    address: str = ""
    pin: Pin | None = None
    account: Account | None = None
    why: str = ""


def channel() -> Channel:
    """How the owner is told at this moment. Runs GnuPG; outside any transaction.

    Without a key that can be encrypted to nothing private is sent: none at all, unless the settings
    ask for bare notices.
    """
    asked = settings.OWNER_NOTICES or ("encrypted" if settings.OWNER_EMAIL else "off")
    if asked == Mode.OFF:
        return Channel(Mode.OFF, wanted=False)
    why = _hindrance()
    account = notice_account()
    if why or account is None:
        return Channel(Mode.OFF, wanted=True, why=why or _NO_ACCOUNT)
    if asked == Mode.BARE:
        return Channel(Mode.BARE, wanted=True, address=owner.address(), account=account)
    try:
        key = owner.pin()
        openpgp.encrypter().encrypt(payload=b"", recipients=[key])
    except CountersignError as error:
        wanted = bool(settings.OWNER_NOTICES)
        return Channel(Mode.OFF, wanted=wanted, why=error.detail)
    return Channel(Mode.ENCRYPTED, wanted=True, address=owner.address(), pin=key, account=account)


_NO_ACCOUNT = (
    "no account can send notices: OWNER_NOTICE_ACCOUNT names none, or no active account has an"
    " SMTP host"
)


def _hindrance() -> str:
    """Why OWNER_EMAIL is nobody who can be told; empty where it is somebody."""
    if settings.OWNER_NOTICES not in {"", *Mode}:
        return f"OWNER_NOTICES is {settings.OWNER_NOTICES!r}: choose {', '.join(Mode)} or nothing"
    if not settings.OWNER_EMAIL:
        return "OWNER_EMAIL is not set"
    if not owner.address():
        return f"OWNER_EMAIL {settings.OWNER_EMAIL!r} is not one plain address"
    if owner.address().lower() in admission.own_addresses():
        return "OWNER_EMAIL is an address of this installation itself: notices would come back"
    return ""


def notice_account() -> Account | None:
    """The account that notices leave by: the one named, else the default identity's first one."""
    able = (
        Account.objects.select_related("identity")
        .exclude(state=Account.State.DISABLED)
        .filter(identity__is_active=True)
        .exclude(smtp_host="")
    )
    if settings.OWNER_NOTICE_ACCOUNT:
        return able.filter(name=settings.OWNER_NOTICE_ACCOUNT).first()
    return able.order_by("-identity__is_default", "pk").first()
