"""A parser is specified by mail that really arrives: each file's values stand beside it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mail import explaining, mime

MESSAGES = Path(__file__).parent / "messages"
NAMES = sorted(file.stem for file in MESSAGES.glob("*.eml"))


def observed(raw: bytes) -> dict[str, object]:
    parsed = mime.parse(raw)
    values = explaining.message_document(parsed)
    values["attachments"] = [
        [one["name"], one["type"], one["size"]]
        for one in values["attachments"]  # type: ignore[attr-defined]
    ]
    values["pgp"] = str(parsed.facts.structure)
    values["loop"] = str(parsed.loop) if parsed.loop else None
    values["signed_text"] = parsed.signed_text
    return values


@pytest.mark.fault(
    "headers-02", "headers-03", "headers-04", "headers-05", "headers-06", "headers-07",
    "headers-10", "headers-20", "charset-05", "attachments-01", "attachments-11",
    "attachments-13", "pgp-verify-14", "pgp-verify-16", "injection-02", "loops-06", "loops-07",
    "loops-08", "sister-14", "sister-18", "sister-22", "sister-25", "W10",
)  # fmt: skip
@pytest.mark.parametrize("name", NAMES)
def test_it_reads_the_message_as_its_values_say(name: str) -> None:
    expected = json.loads((MESSAGES / f"{name}.json").read_text())
    assert observed((MESSAGES / f"{name}.eml").read_bytes()) == expected


@pytest.mark.parametrize(
    "name", [one for one in NAMES if "cr-only" not in one and "bare" not in one]
)
def test_line_ends_change_nothing_but_sizes(name: str) -> None:
    raw = (MESSAGES / f"{name}.eml").read_bytes().replace(b"\r\n", b"\n")
    with_lf, with_crlf = observed(raw), observed(raw.replace(b"\n", b"\r\n"))
    for values in (with_lf, with_crlf):
        values["attachments"] = [one[:2] for one in values["attachments"]]  # type: ignore
    assert with_lf == with_crlf
