"""One identity, or none: the From header, and address headers of all kinds (invariant 9)."""

from __future__ import annotations

import pytest

from mail import mime
from mail.mime.addresses import parse_address
from tests.mail.builders import plain

ONE = [
    ("alice@example.org", "alice@example.org", ""),
    ("Alice <alice@EXAMPLE.org>", "alice@example.org", "Alice"),
    ("<alice@example.org>", "alice@example.org", ""),
    ('"Chen, Alice" <alice@example.org>', "alice@example.org", "Chen, Alice"),
    ("alice@example.org (Alice Chen)", "alice@example.org", "Alice Chen"),
    ("(x) alice@example.org", "alice@example.org", "x"),
    ("github-actions[bot] <n@example.com>", "n@example.com", "github-actions[bot]"),
    ("J. Random User <j@example.org>", "j@example.org", "J. Random User"),
    ('"J\\"R" <j@example.org>', "j@example.org", 'J"R'),
    ("=?utf-8?q?J=C3=B6rg?= <j@example.org>", "j@example.org", "Jörg"),
    ('"=?utf-8?b?SsO2cmc=?=" <j@example.org>', "j@example.org", "Jörg"),
    ("Alice@Example.Org,", "Alice@example.org", ""),
    ('"john doe"@example.org', '"john doe"@example.org', ""),
    ('"john"@example.org', "john@example.org", ""),
    ("Alice <alice@[192.0.2.1]>", "alice@[192.0.2.1]", "Alice"),
    ("Alice <alice@[IPv6:2001:db8::1]>", "alice@[ipv6:2001:db8::1]", "Alice"),
    ("alice+tag@b", "alice+tag@b", ""),
    ("Alice <alice@example.org> (work)", "alice@example.org", "Alice"),
    ("Alice\r\n <alice@example.org>", "alice@example.org", "Alice"),
    ("jörg@exämple.org", "jörg@exämple.org", ""),
]


@pytest.mark.invariant(9)
@pytest.mark.fault("sister-14")
@pytest.mark.parametrize(("value", "address", "name"), ONE)
def test_one_plain_address_is_the_identity(value: str, address: str, name: str) -> None:
    parsed = mime.parse(plain(f"From: {value}"))
    assert parsed.sender is not None
    assert (parsed.sender.address, parsed.sender.name) == (address, name)
    assert parsed.facts.sender == address


NONE = [
    ("", "header.bad-from"),
    ("Alice", "header.bad-from"),
    ("alice@", "header.bad-from"),
    ("@example.org", "header.bad-from"),
    ("alice@example.org, bob@example.org", "header.multiple-from"),
    ("alice@example.org; bob@example.org", "header.multiple-from"),
    ("<alice@example.org> <bob@example.org>", "header.bad-from"),
    ("<alice@example.org> bob", "header.bad-from"),
    ("alice@example.org bob@example.org", "header.bad-from"),
    ("Friends: alice@example.org;", "header.bad-from"),
    ("Friends: alice@example.org", "header.bad-from"),
    ("undisclosed-recipients:;", "header.bad-from"),
    ("mailto:alice@example.org", "header.bad-from"),
    ("<@relay.example,@other.example:alice@example.org>", "header.bad-from"),
    ("alice @ example.org", "header.bad-from"),
    ("alice@@example.org", "header.bad-from"),
    ("alice@example..org", "header.bad-from"),
    (".alice@example.org", "header.bad-from"),
    ("alice@example.org.", "header.bad-from"),
    ("=?utf-8?q?alice=40example.org?=", "header.bad-from"),
    ("<=?utf-8?q?alice?=@example.org>", "header.bad-from"),
    ("al\x00ice@example.org", "header.bad-from"),
    ("al\u200bice@example.org", "header.bad-from"),
    ("alice@example.org\r bob@example.org", "header.bad-from"),
    ("Alice\r <alice@example.org>", "header.bad-from"),
    ('"alice@example.org', "header.bad-from"),
    ("(alice@example.org", "header.bad-from"),
    ("<alice@example.org", "header.bad-from"),
    ("alice@example.org>", "header.bad-from"),
    ("((((" * 800, "header.bad-from"),
    ("a@" + "x" * 300 + ".org", "header.bad-from"),
    ("x" * 70_000 + " <alice@example.org>", "header.bad-from"),
    ("alice@example.org," + " " * 70_000 + "bob@example.org", "header.bad-from"),
]


@pytest.mark.invariant(9)
@pytest.mark.fault("headers-09", "headers-11", "headers-06")
@pytest.mark.parametrize(("value", "defect"), NONE)
def test_anything_else_in_from_is_no_identity(value: str, defect: str) -> None:
    parsed = mime.parse(plain(f"From: {value}", "Subject: still here"))
    assert parsed.sender is None and parsed.facts.sender is None
    assert defect in parsed.defects
    assert parsed.subject == "still here"


def test_a_from_with_space_before_its_colon_names_nobody() -> None:
    assert mime.parse(plain("From : alice@example.org")).sender is None
    both = mime.parse(plain("From : bob@example.org", "From: alice@example.org"))
    assert both.sender is None
    assert "header.multiple-from" in both.defects


@pytest.mark.invariant(9)
@pytest.mark.fault("headers-02", "headers-03")
@pytest.mark.parametrize("second", ["From: bob@example.org", "FROM : alice@example.org", "from:"])
def test_two_from_headers_are_no_identity(second: str) -> None:
    parsed = mime.parse(plain("From: alice@example.org", "To: x@y", second))
    assert parsed.sender is None
    assert "header.multiple-from" in parsed.defects


def test_a_second_from_behind_a_line_that_is_no_header_still_counts() -> None:
    parsed = mime.parse(plain("From: alice@example.org", "garbage", "From: bob@example.org"))
    assert parsed.sender is None


@pytest.mark.invariant(9)
def test_no_from_header_is_no_identity_whatever_else_names_somebody() -> None:
    raw = b"Sender: a@x\r\nReply-To: a@x\r\nReturn-Path: <a@x>\r\nResent-From: a@x\r\n\r\nhi"
    parsed = mime.parse(raw)
    assert parsed.sender is None
    assert "header.missing-from" in parsed.defects


@pytest.mark.invariant(9, 11)
@pytest.mark.fault("headers-04")
@pytest.mark.parametrize(
    "name",
    ['"Someone <someone@good.example>"', "someone@good.example", "=?utf-8?q?so=40good.example?="],
)
def test_an_address_in_the_display_name_is_flagged_and_never_used(name: str) -> None:
    parsed = mime.parse(plain(f"From: {name} <evil@bad.example>"))
    assert parsed.sender is not None
    assert parsed.sender.address == "evil@bad.example"
    assert "header.address-in-name" in parsed.defects


RECIPIENTS = [
    ("a@b.c, ", ["a@b.c"]),
    ("foo <f@b>, ", ["f@b"]),
    ("A <a@B.c>, 'B' <b@c.d>,, c@d.e", ["a@b.c", "b@c.d", "c@d.e"]),
    ("friends: a@b, c@d;, e@f", ["a@b", "c@d", "e@f"]),
    ("undisclosed-recipients:;", []),
    ('"   ', []),
    ("(c):", []),
    ("(" * 3000, []),
    ("a@b; c@d", ["a@b", "c@d"]),
    ("nonsense, a@b", ["a@b"]),
    ("a@b), c@d", ["c@d"]),
    ('"x, y" <a@b>, z@w', ["a@b", "z@w"]),
]


@pytest.mark.fault("headers-06", "headers-07", "headers-09", "headers-10")
@pytest.mark.parametrize(("value", "expected"), RECIPIENTS)
def test_recipients_keep_every_address_that_is_one(value: str, expected: list[str]) -> None:
    parsed = mime.parse(plain(f"To: {value}", f"Cc: {value}"))
    assert [one.address for one in parsed.to] == expected
    assert [one.address for one in parsed.cc] == expected
    assert parsed.text == "hello\n"


def test_several_to_headers_are_one_list() -> None:
    assert len(mime.parse(plain("To: a@b", "To: c@d")).to) == 2


def test_an_address_is_kept_as_it_is_but_for_its_domain() -> None:
    assert parse_address("MiXed@DOMAIN.Org") == "MiXed@domain.org"
    assert parse_address('"a@b"@c.d') == '"a@b"@c.d'
    assert parse_address("a b@c.d") is None
