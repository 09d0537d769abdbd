"""Encrypted mail as exact bytes: what stands outside, what only the recipient reads."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime
from email import message_from_bytes, policy
from email.message import EmailMessage
from typing import Any, cast

import pytest

from guards import openpgp
from guards.exceptions import EncryptionRefused, InvalidInput
from guards.openpgp import Signature, SignatureOutcome
from guards.types import Pin, SignedStructure
from mail import compose, mime
from mail.types import ComposedMail, Enclosure
from tests.keys import Keys, decrypt, pin_for, sign_detached

DATE = datetime(2026, 11, 30, 9, 0, tzinfo=UTC)
SECRET = "The offer: 40,000 €, to be signed on Friday."
SUBJECT = "Offer to Märkische Werke"


def new(**given: object) -> ComposedMail:
    values: dict[str, Any] = {
        "from_address": "agent@example.net",
        "from_name": "Cläude",
        "to": ("reader@example.org",),
        "subject": SUBJECT,
        "text": SECRET,
        "automatic": True,
        "message_id": "notice-1@example.net",
        "date": DATE,
        "sign": None,
        "encrypt": lambda payload: b"-----BEGIN PGP MESSAGE-----\n\nx\n-----END PGP MESSAGE-----\n",
    }
    return compose.compose_new(**(values | given))


def to(*pins: Pin) -> Callable[[bytes], bytes]:
    return lambda payload: openpgp.encrypter().encrypt(payload=payload, recipients=pins)


def read(content: bytes) -> EmailMessage:
    return message_from_bytes(content, policy=policy.default)


def opened(keys: Keys, mail: ComposedMail) -> bytes:
    """What Reader's gpg makes of the message that arrived."""
    _, message = read(mail.raw).iter_parts()
    return decrypt(keys.reader, cast(bytes, message.get_payload(decode=True)))


def test_an_encrypted_message_is_these_bytes() -> None:
    boundary = re.search(rb'boundary="(=_[0-9a-f]{40})"', new().raw)
    assert boundary
    edge = b"--" + boundary[1]
    assert new().raw == (
        b"From: =?utf-8?q?Cl=C3=A4ude?= <agent@example.net>\r\n"
        b"To: reader@example.org\r\n"
        b"Subject: [...]\r\n"
        b"Date: Mon, 30 Nov 2026 09:00:00 +0000\r\n"
        b"Message-ID: <notice-1@example.net>\r\n"
        b"Auto-Submitted: auto-generated\r\n"
        b"X-Beadle-Agent: agent@example.net\r\n"
        b"MIME-Version: 1.0\r\n"
        b'Content-Type: multipart/encrypted; protocol="application/pgp-encrypted";\r\n'
        b' boundary="' + boundary[1] + b'"\r\n'
        b"\r\n" + edge + b"\r\n"
        b"Content-Type: application/pgp-encrypted\r\n"
        b"\r\n"
        b"Version: 1\r\n"
        b"\r\n" + edge + b"\r\n"
        b'Content-Type: application/octet-stream; name="encrypted.asc"\r\n'
        b"Content-Description: OpenPGP encrypted message\r\n"
        b'Content-Disposition: inline; filename="encrypted.asc"\r\n'
        b"\r\n"
        b"-----BEGIN PGP MESSAGE-----\r\n\r\nx\r\n-----END PGP MESSAGE-----\r\n"
        b"\r\n" + edge + b"--\r\n"
    )


def test_what_is_encrypted_is_these_bytes() -> None:
    seen: list[bytes] = []

    def encrypt(payload: bytes) -> bytes:
        seen.append(payload)
        return b"x"

    new(encrypt=encrypt)
    assert seen == [
        b"From: =?utf-8?q?Cl=C3=A4ude?= <agent@example.net>\r\n"
        b"To: reader@example.org\r\n"
        b"Subject: =?utf-8?q?Offer_to_M=C3=A4rkische_Werke?=\r\n"
        b"Date: Mon, 30 Nov 2026 09:00:00 +0000\r\n"
        b"Message-ID: <notice-1@example.net>\r\n"
        b"Auto-Submitted: auto-generated\r\n"
        b"X-Beadle-Agent: agent@example.net\r\n"
        b"HP-Outer: From: =?utf-8?q?Cl=C3=A4ude?= <agent@example.net>\r\n"
        b"HP-Outer: To: reader@example.org\r\n"
        b"HP-Outer: Subject: [...]\r\n"
        b"HP-Outer: Date: Mon, 30 Nov 2026 09:00:00 +0000\r\n"
        b"HP-Outer: Message-ID: <notice-1@example.net>\r\n"
        b"HP-Outer: Auto-Submitted: auto-generated\r\n"
        b"HP-Outer: X-Beadle-Agent: agent@example.net\r\n"
        b'Content-Type: text/plain; charset="utf-8"; protected-headers="v1"; hp="cipher"\r\n'
        b"Content-Transfer-Encoding: quoted-printable\r\n"
        b"\r\n"
        b"The offer: 40,000 =E2=82=AC, to be signed on Friday.\r\n"
    ]


def test_the_recipient_reads_subject_and_text_with_gpg(keys: Keys) -> None:
    inside = read(opened(keys, new(encrypt=to(pin_for(keys.reader)))))
    assert inside["Subject"] == SUBJECT
    assert inside.get_content().strip() == SECRET
    assert inside["Content-Type"].params["hp"] == "cipher"


def test_nothing_of_it_stands_outside(keys: Keys) -> None:
    files = [Enclosure("Angebot.pdf", "application/pdf", b"%PDF private")]
    raw = new(encrypt=to(pin_for(keys.reader)), files=files).raw
    for secret in (b"Offer", b"40,000", b"Angebot", b"rkische", b"%PDF", b"JVBERi"):
        assert secret not in raw
    outside = mime.parse(raw)
    assert (outside.subject, outside.text) == ("[...]", "")
    assert outside.facts.structure is SignedStructure.ENCRYPTED


def test_files_travel_inside(keys: Keys) -> None:
    files = [Enclosure("Angebot.pdf", "application/pdf", b"%PDF private")]
    inside = read(opened(keys, new(encrypt=to(pin_for(keys.reader)), files=files)))
    (file,) = inside.iter_attachments()
    assert (file.get_filename(), file.get_content()) == ("Angebot.pdf", b"%PDF private")


def test_a_signature_lies_inside_and_verifies(keys: Keys) -> None:
    def sign(payload: bytes) -> Signature:
        return Signature(sign_detached(keys.agent, payload), "pgp-sha256")

    mail = new(encrypt=to(pin_for(keys.reader)), sign=sign)
    assert b"PGP SIGNATURE" not in mail.raw
    facts = mime.parse(opened(keys, mail)).facts
    assert facts.structure is SignedStructure.SIGNED
    assert facts.signed is not None
    assert facts.signature is not None
    report = openpgp.verifier().verify(
        signed=facts.signed, signature=facts.signature, pins=[pin_for(keys.agent)], now=None
    )
    assert report.outcome is SignatureOutcome.GOOD
    assert b"Subject: =?utf-8?q?Offer" in facts.signed


def test_a_reply_is_encrypted_in_its_thread(keys: Keys) -> None:
    mail = compose.compose_reply(
        from_address="agent@example.net",
        from_name="",
        to=("reader@example.org",),
        original=("Private matter", "id@example.org", ()),
        text="Yes.",
        automatic=False,
        message_id="r@example.net",
        date=DATE,
        sign=None,
        encrypt=to(pin_for(keys.reader)),
    )
    outside = mime.parse(mail.raw)
    assert (outside.subject, outside.in_reply_to) == ("[...]", ("id@example.org",))
    assert read(opened(keys, mail))["Subject"] == "Re: Private matter"


def test_a_key_that_cannot_receive_leaves_no_message_in_clear(keys: Keys) -> None:
    with pytest.raises(EncryptionRefused):
        new(encrypt=to(pin_for(keys.alice)))
    with pytest.raises(EncryptionRefused):
        new(encrypt=to())


@pytest.mark.invariant(23)
def test_a_subject_that_would_end_its_header_is_refused_inside_too() -> None:
    for subject in ("a\r\nBcc: e@x", "a\nb", "=?utf-8?q?a=0D=0ABcc:_e@x?="):
        with pytest.raises(InvalidInput, match="subject"):
            new(subject=subject)


def test_the_same_message_has_the_same_structure() -> None:
    assert new().raw == new().raw
