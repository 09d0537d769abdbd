"""Token-bound identity: one account behind both credentials, and its very mailbox."""

from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from mail.gateways.google.base import Profile, UserInfo
from mail.gmail import identity
from tests.mail.gmail.refusals import refused


def claims(**changes: object) -> UserInfo:
    values = {"subject": "10769150350006150715113", "email": "ada@example.org"}
    return UserInfo(**{**values, "email_verified": True, **changes})  # type: ignore[arg-type]


def test_it_reads_the_subject_and_the_verified_address():
    proven = identity.read_userinfo(claims())
    assert (proven.subject, proven.address) == ("10769150350006150715113", "ada@example.org")
    assert proven.issuer == "https://accounts.google.com"


def test_the_pinned_issuer_may_be_named_and_no_other():
    assert identity.read_userinfo(claims(issuer="https://accounts.google.com"))
    for foreign in ("https://accounts.google.org", "accounts.google.com", "", None, 1):
        with refused("issuer_foreign", "iss"):
            identity.read_userinfo(claims(issuer=foreign))


@pytest.mark.parametrize("subject", ["", "x" * 256, "1 2", "ä", "1\n"])
def test_it_refuses_a_subject_that_is_none(subject: str):
    with refused("userinfo_malformed", "sub"):
        identity.read_userinfo(claims(subject=subject))


@pytest.mark.parametrize(
    "address",
    ["", "ada", "@x.org", "a@b@c.org", "ada@example.org ", "Ada <ada@example.org>", "ä@x.org"],
)
def test_it_refuses_an_address_that_is_none(address: str):
    with refused("userinfo_malformed", "email"):
        identity.read_userinfo(claims(email=address))


@pytest.mark.parametrize("verified", [False, None, "true", 1])
def test_only_true_is_verified(verified: object):
    with refused("email_not_verified", "email_verified"):
        identity.read_userinfo(claims(email_verified=verified))


def test_both_credentials_belong_to_one_account():
    read = identity.read_userinfo(claims())
    identity.require_same(read, identity.read_userinfo(claims()))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"subject": "10769150350006150715114"}, "subjects_differ"),
        ({"subject": "10769150350006150715113X"}, "subjects_differ"),
        ({"email": "Ada@example.org"}, "addresses_differ"),
        ({"email": "a.da@example.org"}, "addresses_differ"),
        ({"email": "ada+x@example.org"}, "addresses_differ"),
    ],
)
def test_swapped_credentials_are_refused(change: dict, reason: str):
    read, send = (identity.read_userinfo(claims(**one)) for one in ({}, change))
    with refused(reason):
        identity.require_same(read, send)
    with refused(reason):
        identity.require_same(send, read)


def test_a_subject_is_compared_with_its_case():
    with refused("subjects_differ"):
        identity.require_same(
            identity.read_userinfo(claims(subject="Abc")),
            identity.read_userinfo(claims(subject="abc")),
        )


@pytest.mark.parametrize(
    "mailbox",
    ["Ada@example.org", "ada@Example.org", "a.da@example.org", "ada+x@example.org", "eve@x.org"],
)
def test_the_mailbox_is_the_verified_address_byte_for_byte(mailbox: str):
    proven = identity.read_userinfo(claims())
    identity.require_mailbox(Profile("ada@example.org", 7), proven)
    with refused("mailbox_differs", "mailbox"):
        identity.require_mailbox(Profile(mailbox, 7), proven)


def test_the_account_is_the_one_that_was_reviewed():
    proven = identity.read_userinfo(claims())
    identity.require_reviewed(proven, subject=proven.subject, address=proven.address)
    with refused("account_changed", "sub"):
        identity.require_reviewed(proven, subject="1", address=proven.address)
    with refused("account_changed", "email"):
        identity.require_reviewed(proven, subject=proven.subject, address="ADA@example.org")


printable = st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=255)


@given(printable, printable)
def test_two_subjects_are_never_one(one: str, other: str):
    assume(one != other)
    with refused("subjects_differ"):
        identity.require_same(
            identity.read_userinfo(claims(subject=one)),
            identity.read_userinfo(claims(subject=other)),
        )
