"""Orders where none counts: beside the signed text, two at once, between words, by machines."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from guards import openpgp
from guards.openpgp import SignatureOutcome, SignatureReport
from mail import answer_proof
from mail.answer_proof import Proof
from mail.models import NoticeItem, OwnerNotice
from mail.services import mailed_answers, notices, polling
from mail.types import ParsedMessage
from tests.keys import Key, sign_detached
from tests.mail.factories import make_signed
from tests.mail.owner import (
    OWNER,
    USER,
    House,
    digest_of,
    nothing_left,
    opened,
    read,
    refused,
    state_of,
)

pytestmark = [pytest.mark.django_db, pytest.mark.one_database]


@pytest.fixture
def house(told_house: House) -> House:
    return told_house


def test_an_order_in_the_subject_alone_does_nothing(
    house: House, shown: NoticeItem, owner_key: Key
) -> None:
    answer = house.say(owner_key, "See above.", subject=f"approve {digest_of(shown)}")
    refused(house, shown, answer, "not-in-signed-text")


def test_an_order_beside_the_signed_part_does_nothing(
    house: House, shown: NoticeItem, owner_key: Key
) -> None:
    signed = make_signed(owner_key, "Nothing to say.", sender=OWNER)
    head, _, body = signed.partition(b"\r\n\r\n")
    order = f"approve {digest_of(shown)}".encode()
    beside = body.replace(b"--bb\r\n", order + b"\r\n--bb\r\n", 1)
    house.server.deliver(USER, head + b"\r\n\r\n" + beside)
    polling.poll(account_id=house.account.pk)
    mailed_answers.settle_due()
    assert state_of(shown) == "waiting"
    assert nothing_left(house)
    wrapped = _wrapped(signed, order)
    answer = house.write(wrapped)
    assert answer is not None
    assert (answer.state, answer.reason) == ("refused", "not-signed")
    assert nothing_left(house)


def _wrapped(signed: bytes, text: bytes) -> bytes:
    """A multipart/mixed of an unsigned text and the whole signed message's body."""
    head, _, body = signed.partition(b"\r\n\r\n")
    kept = [line for line in head.split(b"\r\n") if not line.lower().startswith(
        (b"content-type", b" protocol"))]  # fmt: skip
    inner = (
        b'Content-Type: multipart/signed; micalg=pgp-sha256; protocol="application/pgp-signature";'
        b' boundary="bb"\r\n\r\n' + body
    )
    return (
        b"\r\n".join(kept)
        + b'\r\nContent-Type: multipart/mixed; boundary="out"\r\n\r\n--out\r\n'
        + b"Content-Type: text/plain\r\n\r\n" + text + b"\r\n--out\r\n" + inner
        + b"\r\n--out--\r\n"
    )  # fmt: skip


def test_an_order_in_signed_html_alone_does_nothing(
    house: House, shown: NoticeItem, owner_key: Key
) -> None:
    html = f"<html><body><p>approve {digest_of(shown)}</p></body></html>"
    part = f'Content-Type: text/html; charset="utf-8"\r\n\r\n{html}\r\n'.encode()
    answer = house.write(_signed_part(owner_key, part))
    assert answer is not None
    refused(house, shown, answer, "not-in-signed-text")


_NAMED = 'Content-Type: text/plain; charset="utf-8"\r\nContent-Disposition: inline{}\r\n\r\n'


@pytest.mark.parametrize(
    ("above", "head", "reason"),
    [
        ("", _NAMED.format('; filename="order.txt"'), "not-in-signed-text"),
        ("", 'Content-Type: text/plain; name="order.txt"\r\n\r\n', "not-in-signed-text"),
        (
            "Content-Type: text/html\r\n\r\n<p>Never do this:</p>\r\n",
            _NAMED.format(""),
            "not-in-signed-text",
        ),
        ("", _NAMED.format(""), "done"),
    ],
)
def test_an_order_in_a_signed_file_or_below_signed_html_does_nothing(
    house: House, shown: NoticeItem, owner_key: Key, above: str, head: str, reason: str
) -> None:
    parts = [part for part in (above, f"{head}approve {digest_of(shown)}\r\n") if part]
    inside = "".join(f"--in\r\n{part}" for part in parts)
    part = f'Content-Type: multipart/mixed; boundary="in"\r\n\r\n{inside}--in--\r\n'.encode()
    answer = house.write(_signed_part(owner_key, part))
    assert answer is not None
    assert answer.reason == reason
    if reason != "done":
        refused(house, shown, answer, reason)


def test_an_order_in_an_unsigned_file_says_not_even_no(house: House, shown: NoticeItem) -> None:
    mail = house.write(
        (
            f"From: {OWNER}\r\nTo: {USER}\r\nMIME-Version: 1.0\r\n"
            + _NAMED.format('; filename="order.txt"')
            + f"reject {digest_of(shown)} no\r\n"
        ).encode()
    )
    assert mail is not None
    refused(house, shown, mail, "not-in-signed-text")


def test_an_order_in_unsigned_html_alone_says_not_even_no(house: House, shown: NoticeItem) -> None:
    raw = (
        f"From: {OWNER}\r\nTo: {USER}\r\nSubject: x\r\nMessage-ID: <{uuid.uuid4()}@x>\r\n"
        f"Content-Type: text/html\r\n\r\n<p>reject {digest_of(shown)} x</p>\r\n"
    ).encode()
    answer = house.write(raw)
    assert answer is not None
    refused(house, shown, answer, "not-in-signed-text")


def _signed_part(key: Key, part: bytes) -> bytes:
    head = (
        f"From: {OWNER}\r\nTo: {USER}\r\nSubject: x\r\nMessage-ID: <{uuid.uuid4()}@x>\r\n"
        "MIME-Version: 1.0\r\nContent-Type: multipart/signed; micalg=pgp-sha256;\r\n"
        ' protocol="application/pgp-signature"; boundary="bb"\r\n\r\n'
    ).encode()
    signature = sign_detached(key, part).replace(b"\n", b"\r\n")
    return (
        head + b"--bb\r\n" + part + b"\r\n--bb\r\nContent-Type: application/pgp-signature\r\n\r\n"
        + signature + b"\r\n--bb--\r\n"
    )  # fmt: skip


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("approve {digest}\nreject {digest} no", "several-orders"),
        ("approve {digest}\napprove {other}", "several-orders"),
        ("Please do not\napprove {digest}\nyet", "unclear-order"),
        ("approve {digest}\nbut change the date", "unclear-order"),
        ("approve {digest}.", "unclear-order"),
    ],
)
def test_what_is_not_one_order_is_refused_with_an_answer_and_never_guessed(
    house: House, shown: NoticeItem, owner_key: Key, text: str, reason: str
) -> None:
    said = text.format(digest=digest_of(shown), other="cd" * 32)
    refused(house, shown, house.say(owner_key, said), reason)
    assert opened(owner_key, house.sent_to(OWNER)[1])["Subject"] == "Your answer did nothing"


def test_a_reply_to_the_notice_without_an_order_is_refused_with_an_answer(
    house: House, shown: NoticeItem, owner_key: Key
) -> None:
    reply_to = str(read(house.sent_to(OWNER)[0])["Message-ID"])
    raw = make_signed(owner_key, "Looks good, send it.", sender=OWNER).replace(
        b"MIME-Version", f"In-Reply-To: {reply_to}\r\nMIME-Version".encode()
    )
    answer = house.write(raw)
    assert answer is not None
    refused(house, shown, answer, "no-order")


@pytest.mark.invariant(22)
def test_automatic_mail_says_nothing_not_even_no(house: House, shown: NoticeItem) -> None:
    answer = house.say_unsigned(f"reject {digest_of(shown)} away", Auto_Submitted="auto-replied")
    refused(house, shown, answer, "automatic")
    assert len(house.sent_to(OWNER)) == 1


@pytest.mark.invariant(22)
def test_refusals_are_told_of_so_often_and_no_more(
    house: House, shown: NoticeItem, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notices, "MOST_REFUSALS", 2)
    for number in range(4):
        house.say_unsigned(f"approve {digest_of(shown)}", subject=f"try {number}")
    assert OwnerNotice.objects.filter(kind="refusal").count() == 2


def test_a_stranger_who_guesses_digests_makes_us_write_to_nobody(
    house: House, shown: NoticeItem
) -> None:
    house.say_unsigned(f"approve {'ef' * 32}")
    assert len(house.sent_to(OWNER)) == 1


def test_without_an_owner_key_a_yes_counts_for_nothing(
    house: House, shown: NoticeItem, owner_key: Key, settings: Any
) -> None:
    settings.OWNER_FINGERPRINT = ""
    answer = house.say(owner_key, f"approve {digest_of(shown)}")
    refused(house, shown, answer, "no-owner")


def test_an_answer_waits_while_the_signature_cannot_be_checked(
    house: House, shown: NoticeItem, owner_key: Key, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Gone:
        def verify(self, **_: object) -> SignatureReport:
            return SignatureReport(SignatureOutcome.VERIFIER_UNAVAILABLE)

    with monkeypatch.context() as patched:
        patched.setattr(openpgp, "verifier", Gone)
        answer = house.say(owner_key, f"approve {digest_of(shown)}")
        assert answer.state == "due"
    assert mailed_answers.settle_due() == 1
    answer.refresh_from_db()
    assert answer.reason == "done"


def test_an_answer_that_breaks_its_judge_stays_due_and_holds_up_no_other(
    house: House, shown: NoticeItem, owner_key: Key, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("nobody foresaw this")

    with monkeypatch.context() as patched:
        patched.setattr(answer_proof, "prove", broken)
        first = house.say(owner_key, f"later {digest_of(shown)}")
    prove = answer_proof.prove

    def broken_once(parsed: ParsedMessage, **given: Any) -> Proof:
        if "later" in (parsed.signed_text or ""):
            raise RuntimeError("nobody foresaw this")
        return prove(parsed, **given)

    monkeypatch.setattr(answer_proof, "prove", broken_once)
    second = house.say(owner_key, f"reject {digest_of(shown)} not now")
    first.refresh_from_db()
    assert (first.state, second.state) == ("due", "done")
    monkeypatch.undo()
    assert mailed_answers.settle_due() == 1
