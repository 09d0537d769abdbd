"""DES-018's table: asserted on the rendered width, not on substrings."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from io import StringIO
from zoneinfo import ZoneInfo

import pytest
from django.core.management import CommandError, call_command
from hypothesis import given, settings
from hypothesis import strategies as st
from wcwidth import wcswidth

from guards.services import identities
from guards.types import TrustLevel
from mail import listing
from mail.listing import Line
from mail.models import Message
from tests.mail.factories import OPERATOR, AccountFactory, make_contact

APRIL = datetime(2026, 4, 8, 12, tzinfo=UTC)


def line(
    number: int = 319,
    name: str = "Pat Singh",
    address: str = "notifications@github.com",
    subject: str = "Re: [punt-labs/beadle] fix(mcp): widths",
    trust: TrustLevel = TrustLevel.UNVERIFIED,
    unread: bool = True,
    when: datetime = APRIL,
) -> Line:
    return Line(number, unread, name, address, when, trust, subject)


def render(*lines: Line) -> list[str]:
    return listing.render(lines, zone=UTC)


def test_the_table_of_the_decision_is_printed_to_the_column() -> None:
    rows = render(
        line(319, "Copilot"),
        line(320),
        line(322, "cursor[bot]"),
        line(335, "vercel[bot]", subject="Re: [punt-labs/public-website] x"),
        line(340, "Sam Jackson", "sam@example.co.uk", "Re: [punt-labs/punt-kit] y",
             TrustLevel.TRUSTED),
        line(8, "Claude Agento", "claude@punt-labs.com", "doctor fix landed",
             TrustLevel.TRUSTED, False, datetime(2026, 4, 7, tzinfo=UTC)),
        line(7, "Alice Chen", "alice@example.com", "lunch thursday?", unread=False,
             when=datetime(2026, 4, 6, tzinfo=UTC)),
    )  # fmt: skip
    assert rows == [
        "▶    R  FROM                                   DATE    T  SUBJECT               ",
        "319  ●  Copilot <notifications@github.com>     Apr 08  ?  Re: [punt-labs/beadle…",
        "320  ●  Pat Singh <notifications@github.com>   Apr 08  ?  Re: [punt-labs/beadle…",
        "322  ●  cursor[bo… <notifications@github.com>  Apr 08  ?  Re: [punt-labs/beadle…",
        "335  ●  vercel[bo… <notifications@github.com>  Apr 08  ?  Re: [punt-labs/public…",
        "340  ●  Sam Jackson <sam@example.co.uk>        Apr 08  ✓  Re: [punt-labs/punt-k…",
        "  8     Claude Agento <claude@punt-labs.com>   Apr 07  ✓  doctor fix landed     ",
        "  7     Alice Chen <alice@example.com>         Apr 06  ?  lunch thursday?       ",
    ]


SHAPES = [
    line(name=""),
    line(name="", address=""),
    line(name="田中太郎の長い名前です", subject="会議の件について、よろしくお願いします"),
    line(name="👨‍👩‍👧 family", subject="🎉🎉🎉 party 🇩🇪🇩🇪🇩🇪🇩🇪🇩🇪🇩🇪🇩🇪🇩🇪"),
    line(subject="e\u0301" * 40),
    line(subject="❤️" * 20),
    line(subject=""),
    line(number=1),
    line(number=99_999),
    line(trust=TrustLevel.VERIFIED),
    line(trust=TrustLevel.UNTRUSTED),
    line(subject="\x1b[31mred\x1b[0m \u202egnp.exe\x07"),
    line(name="x" * 33, address="a@" + "b" * 31),
    line(name="name", address="a@" + "b" * 33),
    line(address="a@" + "b" * 40),
    line(address="a@" + "b" * 47),
]


@pytest.mark.parametrize("shape", SHAPES)
def test_every_row_is_exactly_80_columns_wide(shape: Line) -> None:
    assert [wcswidth(row) for row in render(shape)] == [80, 80]


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=50), st.text(max_size=60), st.integers(1, 10_000_000))
def test_no_text_moves_a_column(name: str, subject: str, number: int) -> None:
    rows = render(line(number=number, name=name, subject=subject))
    assert [wcswidth(row) for row in rows] == [80, 80]
    assert all(row.replace("\u200d", "").isprintable() for row in rows)


@pytest.mark.fault("sister-16")
@pytest.mark.parametrize("length", [20, 33, 34, 35, 37, 38, 45, 60, 120])
def test_an_address_is_never_cut(length: int) -> None:
    address = "a@" + "b" * (length - 2)
    row = render(line(name="Somebody", address=address))[1]
    assert address in row
    assert wcswidth(row) == max(80, length - 37 + 68)


@pytest.mark.parametrize(
    ("name", "address", "cell"),
    [
        ("", "ops@vendor.example", "ops@vendor.example"),
        ("Pat", "pat@x.org", "Pat <pat@x.org>"),
        ("Somebody", "a@" + "b" * 31, "… <a@" + "b" * 31 + ">"),
        ("S", "a@" + "b" * 31, "S <a@" + "b" * 31 + ">"),
        ("Somebody", "a@" + "b" * 32, "a@" + "b" * 32),
        ("Somebody", "", "(no identity)"),
    ],
)
def test_the_name_gives_way_to_the_address(name: str, address: str, cell: str) -> None:
    assert listing.sender_cell(name, address) == cell


def test_wider_ids_take_from_the_subject() -> None:
    rows = render(line(number=12_345, subject="x" * 40), line(number=7, subject="y" * 40))
    assert rows[1].startswith("12345  ●") and rows[2].startswith("    7  ●")
    assert rows[0].startswith("▶      R")
    assert rows[1].endswith("x" * 19 + "…")


def test_dates_are_those_of_the_operators_zone() -> None:
    late = line(when=datetime(2026, 4, 8, 23, 30, tzinfo=UTC))
    assert "Apr 09" in listing.render([late], zone=ZoneInfo("Europe/Berlin"))[1]


def store(account, number: int, sender: str, subject: str, **values: object) -> Message:
    return Message.objects.create(
        account=account, number=number, sender=sender, subject=subject, sha256=f"{number:064}",
        size=1, trust_level="unverified", trust_reason="unsigned", action="surface",
        verdict="hold", rule="no-permission", **values,
    )  # fmt: skip


def inbox(*arguments: str) -> str:
    out = StringIO()
    call_command("inbox", *arguments, stdout=out)
    return out.getvalue()


@pytest.fixture
def account(db: None):
    account = AccountFactory()
    identities.set_default(identity=account.identity, by=OPERATOR)
    make_contact(account.identity, "alice@example.org", "r--")
    store(account, 1, "alice@example.org", "shown")
    store(account, 2, "stranger@example.org", "secret plans", seen=True)
    return account


def test_a_stranger_is_listed_with_a_redacted_subject(account) -> None:
    rows = inbox().splitlines()
    assert [wcswidth(row) for row in rows] == [80, 80, 80]
    assert "stranger@example.org" in rows[1] and "[redacted — no read p…" in rows[1]
    assert "shown" in rows[2]
    assert "secret" not in inbox() + inbox("--json")


def test_json_says_the_same(account) -> None:
    document = json.loads(inbox("--json", "--unread"))
    assert document["schema"] == "inbox/1"
    (only,) = document["messages"]
    assert (only["id"], only["subject"], only["redacted"]) == (1, "shown", False)
    assert only["permission"] == "r--"


@pytest.mark.fault("sister-38", "sister-39")
@pytest.mark.parametrize("arguments", [("--as", "nobody"), ("--account", "none"), ("--limit", "0")])
def test_a_name_that_resolves_to_nothing_is_an_error(account, arguments: tuple[str, ...]) -> None:
    with pytest.raises(CommandError) as failure:
        inbox(*arguments)
    assert failure.value.returncode == 2


def test_each_account_has_its_own_numbers_and_table(account) -> None:
    other = AccountFactory(identity=account.identity, name="second")
    store(other, 1, "alice@example.org", "elsewhere")
    printed = inbox()
    assert f"{account.name}:" in printed and "second:" in printed
    assert inbox("--account", "second").count("▶") == 1
