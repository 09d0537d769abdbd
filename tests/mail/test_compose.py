"""Replies as exact bytes: headers nobody injects into, bodies and signatures that survive."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from email import message_from_bytes, policy

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from guards import openpgp
from guards.exceptions import InvalidInput, SigningRefused
from guards.openpgp import Signature, SignatureOutcome
from mail import compose, mime
from mail.types import ComposedMail
from tests.keys import Keys, pin_for, sign_detached

DATE = datetime(2026, 11, 30, 9, 0, tzinfo=UTC)


def reply(
    text: str = "done\n", sign: Callable[[bytes], Signature] | None = None, **given: object
) -> ComposedMail:
    values: dict = {
        "from_address": "agent@example.net",
        "from_name": "Claude",
        "to": ("alice@example.org",),
        "original": ("Run it", "id@example.org", ("root@example.org",)),
        "automatic": True,
        "message_id": "reply-1@example.net",
        "date": DATE,
    }
    return compose.compose_reply(text=text, sign=sign, **(values | given))


def fake(payload: bytes) -> Signature:
    return Signature(
        b"-----BEGIN PGP SIGNATURE-----\nx\n-----END PGP SIGNATURE-----\n", "pgp-sha256"
    )


def test_a_reply_is_these_bytes() -> None:
    assert reply().raw == (
        b"From: Claude <agent@example.net>\r\n"
        b"To: alice@example.org\r\n"
        b"Subject: Re: Run it\r\n"
        b"Date: Mon, 30 Nov 2026 09:00:00 +0000\r\n"
        b"Message-ID: <reply-1@example.net>\r\n"
        b"In-Reply-To: <id@example.org>\r\n"
        b"References: <root@example.org> <id@example.org>\r\n"
        b"Auto-Submitted: auto-replied\r\n"
        b"X-Beadle-Agent: agent@example.net\r\n"
        b"MIME-Version: 1.0\r\n"
        b'Content-Type: text/plain; charset="us-ascii"\r\n'
        b"Content-Transfer-Encoding: 7bit\r\n"
        b"\r\n"
        b"done\r\n"
    )


def test_the_envelope_is_what_was_asked_for() -> None:
    made = reply(to=("a@b.example", "c@d.example"))
    assert (made.envelope_from, made.recipients) == (
        "agent@example.net",
        ("a@b.example", "c@d.example"),
    )
    assert (made.message_id, made.subject, made.text) == (
        "reply-1@example.net",
        "Re: Run it",
        "done\n",
    )


@pytest.mark.invariant(22)
@pytest.mark.fault("loops-01")
def test_our_automatic_reply_is_known_as_such_by_our_own_guard() -> None:
    assert mime.parse(reply().raw).loop == "auto-submitted"
    by_hand = mime.parse(reply(automatic=False).raw, own_addresses=frozenset({"agent@example.net"}))
    assert by_hand.loop == "own-address"


@pytest.mark.parametrize(
    ("subject", "expected"),
    [
        ("Run it", "Re: Run it"),
        ("Re: Run it", "Re: Run it"),
        ("RE : Run it", "RE : Run it"),
        ("re[2]: Run it", "re[2]: Run it"),
        ("Report", "Re: Report"),
        ("[owner/repo] x", "Re: [owner/repo] x"),
        ("Re: [owner/repo] x", "Re: [owner/repo] x"),
        ("", "Re:"),
    ],
)
@pytest.mark.fault("sister-26")
def test_re_and_the_repository_tag_stand_once(subject: str, expected: str) -> None:
    assert reply(original=(subject, None, ())).subject == expected


@pytest.mark.fault("send-11")
def test_threads_are_named_by_rfc_message_ids_only() -> None:
    made = mime.parse(reply(original=("x", "id@x", ("18c2a", "a b", "<c@d>", "e@f"))).raw)
    assert made.in_reply_to == ("id@x",)
    assert made.references == ("18c2a", "e@f", "id@x")
    alone = mime.parse(reply(original=("x", None, ("e@f",))).raw)
    assert (alone.in_reply_to, alone.references) == ((), ())


INJECTIONS = [
    "a\r\nBcc: e@x",
    "a\nBcc: e@x",
    "a\rBcc: e@x",
    "a\x00b",
    "a\x0bb",
    "a\x85b",
    "a\u2028b",
    "a\ud800b",
    "=?utf-8?q?a=0D=0ABcc:_e@x?=",
    "=?utf-8?b?YQ0KQmNjOiBlQHg=?=",
    "=?us-ascii?q?a=0A?=",
    "=?utf-8?q?a=00?=",
    "x =?iso-8859-1?q?=85?= y",
]
FIELDS: dict[str, Callable[[str], dict[str, object]]] = {
    "subject": lambda bad: {"original": (bad, None, ())},
    "from_name": lambda bad: {"from_name": bad},
    "from_address": lambda bad: {"from_address": f"{bad}@example.net"},
    "to": lambda bad: {"to": (f"{bad}@example.org",)},
    "message_id": lambda bad: {"message_id": f"{bad}@example.net"},
    "repo": lambda bad: {"repo": bad},
    "agent": lambda bad: {"agent": bad},
}


@pytest.mark.invariant(23)
@pytest.mark.fault("sister-24", "send-15")
@pytest.mark.parametrize("bad", INJECTIONS)
@pytest.mark.parametrize("field", FIELDS)
def test_a_field_that_could_end_a_header_is_refused_by_name(field: str, bad: str) -> None:
    with pytest.raises(InvalidInput) as refusal:
        reply(**FIELDS[field](bad))
    assert refusal.value.field == field
    assert field in refusal.value.detail


@pytest.mark.fault("sister-24")
@pytest.mark.parametrize("bad", INJECTIONS[:8])
def test_ids_of_the_original_that_are_none_are_left_out(bad: str) -> None:
    made = reply(original=("x", f"{bad}@y", (f"{bad}@y",)))
    assert b"Bcc" not in made.raw
    assert b"In-Reply-To" not in made.raw


@pytest.mark.invariant(23)
@settings(max_examples=150, deadline=None)
@given(st.text(max_size=60), st.text(max_size=40))
def test_whatever_is_accepted_gives_exactly_these_headers(subject: str, name: str) -> None:
    try:
        made = reply(original=(subject, None, ()), from_name=name)
    except InvalidInput:
        return
    parsed = mime.parse(made.raw)
    assert [header for header, _ in parsed.headers] == [
        "from", "to", "subject", "date", "message-id", "auto-submitted", "x-beadle-agent",
        "mime-version", "content-type", "content-transfer-encoding",
    ]  # fmt: skip
    assert parsed.sender is not None and parsed.sender.address == "agent@example.net"
    assert all(len(line) <= 998 and line.isascii() for line in made.raw.split(b"\r\n"))


@pytest.mark.parametrize("to", [(), ("nobody",), ("a@b, c@d",), ("A <a@b>",), ("jörg@b",)])
def test_recipients_are_plain_addresses(to: tuple[str, ...]) -> None:
    with pytest.raises(InvalidInput):
        reply(to=to)


NAMES = ["Claude", "Chen, Alice", 'The "Bot"', "back\\slash", "Jörg Müller", "田中", "a [bot]", ""]


@pytest.mark.parametrize("name", NAMES)
def test_names_come_back_as_they_were(name: str) -> None:
    raw = reply(from_name=name).raw
    parsed = mime.parse(raw)
    assert parsed.sender is not None and parsed.sender.name == name
    other = message_from_bytes(raw, policy=policy.default)["from"].addresses[0]
    assert (other.display_name, other.addr_spec) == (name, "agent@example.net")


SUBJECTS = ["Grüße " * 30, "✓", "long " * 60, "=? not a word ?=", "x" * 300, "a  b"]


@pytest.mark.parametrize("subject", SUBJECTS)
def test_subjects_come_back_as_they_were(subject: str) -> None:
    raw = reply(original=(subject, None, ())).raw
    assert mime.parse(raw).subject == f"Re: {subject.strip()}"


TEXTS = [
    "plain\n",
    "",
    "no line end",
    "crlf\r\nand cr\rend\n",
    "trailing space \nand tab\t\n",
    "From the start\n.dot\n--boundary\n-- \nsignature\n",
    "ünïcödé ✓ 会議\n",
    "x" * 2_000 + "\n",
    "é" * 300 + "=" * 80 + "\n",
    "\n\n\nblank lines\n\n\n",
    "control \x07 and \x1b[31m\n",
]


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("sign", [None, fake])
def test_texts_come_back_as_they_were_and_travel_in_seven_bits(
    text: str, sign: Callable[[bytes], Signature] | None
) -> None:
    made = reply(text, sign)
    expected = text.replace("\r\n", "\n").replace("\r", "\n")
    expected += "" if expected.endswith("\n") or not expected else "\n"
    assert mime.parse(made.raw).text == expected
    assert made.raw.isascii()
    assert b"\r" not in made.raw.replace(b"\r\n", b"") and b"\n" not in made.raw.replace(
        b"\r\n", b""
    )
    assert max(map(len, made.raw.split(b"\r\n"))) <= 78


@settings(max_examples=100, deadline=None)
@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0\r"), max_size=200))
def test_any_text_comes_back(text: str) -> None:
    assert mime.parse(reply(text, fake).raw).text.removesuffix("\n") == text.removesuffix("\n")


@pytest.mark.fault("sister-21", "sister-20")
def test_the_signature_covers_exactly_the_bytes_that_are_sent(keys: Keys) -> None:
    def sign(payload: bytes) -> Signature:
        return Signature(sign_detached(keys.agent, payload), "pgp-sha256")

    made = reply("ünïcödé \nFrom here\n--x\n" + "y" * 200, sign)
    facts = mime.parse(made.raw).facts
    assert facts.signed is not None and facts.signature is not None
    pin = pin_for(keys.agent, "agent@example.net")
    report = openpgp.verifier().verify(
        signed=facts.signed, signature=facts.signature, pins=(pin,), now=None
    )
    assert report.outcome is SignatureOutcome.GOOD
    assert b"Content-Transfer-Encoding: quoted-printable" in facts.signed
    assert b'protocol="application/pgp-signature"' in made.raw
    assert b"micalg=pgp-sha256" in made.raw


@pytest.mark.fault("sister-22")
def test_a_body_that_holds_the_boundary_gets_another(monkeypatch: pytest.MonkeyPatch) -> None:
    first = reply("text", fake)
    boundary = first.raw.partition(b'boundary="')[2].partition(b'"')[0].decode()
    second = reply(f"text\n--{boundary}\n--{boundary}--\n", fake)
    assert mime.parse(second.raw).text == f"text\n--{boundary}\n--{boundary}--\n"
    assert mime.parse(second.raw).facts.structure == "signed"


def test_nothing_is_composed_when_signing_is_refused() -> None:
    def refuse(_: bytes) -> Signature:
        raise SigningRefused("the key has no expiry date")

    with pytest.raises(SigningRefused):
        reply("text", refuse)


def test_the_same_input_gives_the_same_bytes() -> None:
    assert reply("x", fake) == reply("x", fake)
