"""Which mail is never answered automatically, and why (loops-*, invariant 22)."""

from __future__ import annotations

import pytest

from mail import loops, mime
from mail.types import LoopReason
from tests.mail.builders import multipart, part, plain

REASONS = [
    ("Auto-Submitted: auto-replied", "auto-submitted"),
    ("Auto-Submitted: auto-generated (vacation)", "auto-submitted"),
    ("Auto-Submitted: auto-replied; owner-email=a@b", "auto-submitted"),
    ("Auto-Submitted:", "auto-submitted"),
    ("Auto-Submitted: no", None),
    ("Auto-Submitted: (a person) no", None),
    ("Auto-Submitted: (no) auto-replied", "auto-submitted"),
    ("Auto-Submitted: NO (really)", None),
    ("Precedence: bulk", "bulk"),
    ("Precedence: LIST", "bulk"),
    ("Precedence: junk", "bulk"),
    ("Precedence: first-class", None),
    ("List-Id: A list <l.example.org>", "list"),
    ("List-ID:", "list"),
    ("Return-Path: <>", "bounce"),
    ("Return-Path: < >", "bounce"),
    ("Return-Path: <alice@example.org>", None),
    ("From: MAILER-DAEMON@mx.example.org", "bounce"),
    ("From: Postmaster <postmaster@example.org>", "bounce"),
    ("From: MAILER-DAEMON (Mail Delivery System)", "bounce"),
    ("From: mailer-daemon-fan@example.org", None),
    ("From: a@b, c@d", "no-identity"),
    ("From: Me <Agent@Example.net>", "own-address"),
    ("X-Beadle-Agent: agent@example.net", "own-address"),
    ("X-Beadle-Agent: other@elsewhere.example", None),
    ("X-Auto-Response-Suppress: All", None),
    ("Subject: Out of office", None),
]


@pytest.mark.invariant(22)
@pytest.mark.fault("loops-01", "loops-06", "loops-08")
@pytest.mark.parametrize(("header", "reason"), REASONS)
def test_the_mark_of_a_program_is_the_reason(header: str, reason: str | None) -> None:
    parsed = mime.parse(plain(header), own_addresses=frozenset({"agent@example.net"}))
    assert parsed.loop == reason


@pytest.mark.invariant(22)
@pytest.mark.fault("loops-07")
def test_a_delivery_report_is_a_bounce() -> None:
    raw = multipart(
        "report", "r", part("text/plain", b"sorry"), part("message/delivery-status", b"x"),
        headers=("From: Mail System <system@mx.example.org>",),
        parameters="; report-type=delivery-status",
    )  # fmt: skip
    assert mime.parse(raw).loop is LoopReason.BOUNCE


@pytest.mark.fault("loops-07")
def test_a_delivery_report_that_was_cut_off_is_a_bounce_too() -> None:
    for boundary in ("; boundary=never-used", ""):
        raw = plain(f"Content-Type: Multipart/Report (x); report-type=delivery-status{boundary}")
        assert mime.parse(raw).loop is LoopReason.BOUNCE


@pytest.mark.fault("loops-02")
def test_our_own_message_under_another_name_is_known_by_its_id() -> None:
    parsed = mime.parse(plain("Message-ID: <ours@example.net>"))
    assert parsed.loop is None
    reason = loops.reason(parsed, is_own_message_id=lambda one: one == "ours@example.net")
    assert reason is LoopReason.OWN_ADDRESS


def test_the_first_reason_of_the_list_counts() -> None:
    raw = plain("From: a, b", "List-Id: x", "Precedence: bulk", "Auto-Submitted: auto-replied")
    assert mime.parse(raw).loop is LoopReason.AUTO_SUBMITTED
