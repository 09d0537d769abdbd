"""How a message carries OpenPGP: exact signed bytes, and everything that is not top-level."""

from __future__ import annotations

import pytest

from guards.types import SignedStructure
from mail import mime
from mail.types import Provider
from tests.mail.builders import PGP, lines, multipart, part, plain, signed

TEXT = part("text/plain", b"@agent go")
SIGNATURE = part("application/pgp-signature", b"sig")
FROM = ("From: alice@example.org",)


@pytest.mark.fault("pgp-verify-08", "pgp-verify-10", "pgp-verify-11", "sister-21")
def test_the_signed_bytes_are_the_first_part_exactly_as_received() -> None:
    odd = (
        b"Content-type:   multipart/mixed;\r\n\t BOUNDARY=in ; x=y\r\n"
        b"X-Odd:  spaced   out \r\n\r\npreamble \r\n--in\r\n"
        b"Content-Transfer-Encoding: QUOTED-PRINTABLE\r\n\r\n=31=32=33=34  \r\n--in--\r\ntail\r\n"
    )
    parsed = mime.parse(signed(odd))
    assert parsed.facts.structure is SignedStructure.SIGNED
    assert parsed.facts.signed == odd
    assert parsed.facts.signature == b"-----BEGIN PGP SIGNATURE-----"
    assert parsed.signed_text == "1234  "


@pytest.mark.fault("W10")
def test_line_ends_of_the_signed_bytes_are_crlf_and_a_lone_cr_stays() -> None:
    raw = signed(part("text/plain", b"a\r\nb\rc\r\n\r\nd"))
    as_lf = raw.replace(b"\r\n", b"\n")
    expected = b"Content-Type: text/plain\r\n\r\na\r\nb\rc\r\n\r\nd"
    assert mime.parse(raw).facts.signed == expected
    assert mime.parse(as_lf).facts.signed == expected


def test_the_line_break_before_the_delimiter_is_not_signed() -> None:
    parsed = mime.parse(signed(part("text/plain", b"x\r\n\r\n")))
    assert parsed.facts.signed == b"Content-Type: text/plain\r\n\r\nx\r\n\r\n"


def test_a_transfer_encoded_signature_is_decoded() -> None:
    encoded = part("application/pgp-signature", b"c2ln", "Content-Transfer-Encoding: base64")
    raw = multipart("signed", "s", TEXT, encoded, headers=FROM, parameters=PGP)
    assert mime.parse(raw).facts.signature == b"sig"


def test_the_signature_is_no_attachment_but_everything_else_is() -> None:
    raw = signed(multipart("mixed", "m", TEXT, part("application/pgp-keys", b"key")))
    parsed = mime.parse(raw)
    assert [one.type for one in parsed.parts if one.is_attachment] == ["application/pgp-keys"]
    assert [one.is_signed for one in parsed.parts] == [True, True, False]


MALFORMED = {
    "three parts": signed(TEXT, extra=(part("text/plain", b"footer"),)),
    "one part": multipart("signed", "s", TEXT, headers=FROM, parameters=PGP),
    "second part is no signature": multipart(
        "signed", "s", TEXT, TEXT, headers=FROM, parameters=PGP
    ),
    "signature first": multipart("signed", "s", SIGNATURE, TEXT, headers=FROM, parameters=PGP),
    "no protocol": multipart("signed", "s", TEXT, SIGNATURE, headers=FROM),
    "another protocol": multipart(
        "signed", "s", TEXT, SIGNATURE, headers=FROM, parameters="; protocol=application/x"
    ),
    "two content types": lines("Content-Type: text/plain") + signed(TEXT),
    "two content types, signed last": signed(TEXT).replace(
        b"\r\n\r\n", b"\r\nContent-Type: text/plain\r\n\r\n", 1
    ),
    "no boundary": plain(f"Content-Type: multipart/signed{PGP}"),
    "boundary never used": plain(f"Content-Type: multipart/signed{PGP}; boundary=x"),
}


@pytest.mark.parametrize("raw", MALFORMED.values(), ids=MALFORMED.keys())
def test_a_multipart_signed_that_is_none_is_malformed(raw: bytes) -> None:
    facts = mime.parse(raw).facts
    assert facts.structure is SignedStructure.MALFORMED
    assert facts.signed is None and facts.signature is None


INNER = multipart("signed", "in", TEXT, SIGNATURE, parameters=PGP)
NOT_TOP_LEVEL = {
    "list footer": multipart("mixed", "m", INNER, part("text/plain", b"footer"), headers=FROM),
    "wrapped alone": multipart("mixed", "m", INNER, headers=FROM),
    "loose signature": multipart("mixed", "m", TEXT, SIGNATURE, headers=FROM),
    "inline": plain(text=b"-----BEGIN PGP SIGNED MESSAGE-----\r\nHash: SHA256\r\n\r\nx\r\n"),
    "inline in a part": multipart(
        "mixed", "m", part("text/plain", b"-----BEGIN PGP SIGNED MESSAGE-----\r\n\r\nx"),
        headers=FROM,
    ),
}  # fmt: skip


@pytest.mark.fault("pgp-verify-14")
@pytest.mark.parametrize("raw", NOT_TOP_LEVEL.values(), ids=NOT_TOP_LEVEL.keys())
def test_a_signature_below_the_top_never_signs_the_message(raw: bytes) -> None:
    facts = mime.parse(raw).facts
    assert facts.structure is SignedStructure.NOT_TOP_LEVEL
    assert facts.signed is None


UNSIGNED = {
    "forwarded": multipart("mixed", "m", part("message/rfc822", signed(TEXT)), headers=FROM),
    "quoted marker": plain(text=b"> -----BEGIN PGP SIGNED MESSAGE-----\r\n"),
    "plain": plain(),
}


@pytest.mark.parametrize("raw", UNSIGNED.values(), ids=UNSIGNED.keys())
def test_a_signature_of_another_message_is_none_of_this_one(raw: bytes) -> None:
    assert mime.parse(raw).facts.structure is SignedStructure.NONE


ENCRYPTED = {
    "PGP/MIME": multipart("encrypted", "e", part("application/pgp-encrypted", b"Version: 1"),
                          part("application/octet-stream", b"x"), headers=FROM),
    "inline": plain(text=b"-----BEGIN PGP MESSAGE-----\r\n\r\nhQ\r\n"),
}  # fmt: skip


@pytest.mark.parametrize("raw", ENCRYPTED.values(), ids=ENCRYPTED.keys())
def test_encrypted_mail_says_so(raw: bytes) -> None:
    assert mime.parse(raw).facts.structure is SignedStructure.ENCRYPTED


@pytest.mark.fault("pgp-verify-07")
@pytest.mark.parametrize(
    ("inner", "expected"),
    [
        ("From: bob@Example.org", "bob@example.org"),
        ("From: Alice <alice@example.org>", "alice@example.org"),
        ("From: a@x, b@y", ""),
        ("From: nobody", ""),
        ("Subject: only", None),
    ],
)
def test_a_from_inside_the_signed_part_is_reported(inner: str, expected: str | None) -> None:
    facts = mime.parse(signed(part("text/plain", b"x", inner))).facts
    assert facts.sender == "alice@example.org"
    assert facts.signed_from == expected


def test_a_protected_to_is_read_from_the_signed_part_only() -> None:
    inner = part('text/plain; protected-headers="v1"', b"x", "To: Agent <agent@Example.net>, b@y")
    assert mime.parse(signed(inner)).signed_to == ("agent@example.net", "b@y")
    assert mime.parse(signed(TEXT)).signed_to == ()


def test_text_beside_the_signed_part_is_noted() -> None:
    around = signed(TEXT).replace(b"\r\n--sig", b"\r\nhello\r\n--sig", 1) + b"listen to me\r\n"
    parsed = mime.parse(around)
    assert parsed.facts.structure is SignedStructure.SIGNED
    assert parsed.facts.notes == (
        "unsigned text before the signed part",
        "unsigned text after the signed part",
    )
    assert parsed.text == "@agent go"


def test_proton_headers_are_reported_from_the_top_level_with_every_value() -> None:
    inside = part("text/plain", b"x", "X-Pm-Origin: internal")
    raw = multipart("mixed", "m", inside, headers=(*FROM, "X-PM-Origin: internal",
                    "X-Pm-Content-Encryption: end-to-end", "x-pm-origin: external"))  # fmt: skip
    facts = mime.parse(raw, provider=Provider.PROTON_BRIDGE, loopback=True).facts
    assert facts.proton_headers == {
        "x-pm-origin": ("internal", "external"),
        "x-pm-content-encryption": ("end-to-end",),
    }
    assert facts.loopback_bridge
    assert not mime.parse(raw, provider=Provider.GENERIC, loopback=True).facts.loopback_bridge
    assert not mime.parse(raw, provider=Provider.PROTON_BRIDGE).facts.loopback_bridge


@pytest.mark.fault("headers-05")
def test_a_lone_cr_cannot_smuggle_a_provider_header_in() -> None:
    raw = plain("Subject: hi\rX-Pm-Origin: internal\r\rX: y")
    assert mime.parse(raw).facts.proton_headers == {}


def test_a_quarantined_message_is_never_signed() -> None:
    deep = b"".join(b"Content-Type: multipart/mixed; boundary=b%d\r\n\r\n--b%d\r\n" % (n, n)
                    for n in range(60))  # fmt: skip
    parsed = mime.parse(signed(deep))
    assert parsed.quarantine == "mime.too-deep"
    assert parsed.facts.structure is SignedStructure.MALFORMED
