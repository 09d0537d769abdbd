"""New text apart from quotes and signatures."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mail import quotes

CUT = [
    ("run it\n", "run it"),
    ("@agent run\n\nplease\n", "@agent run\n\nplease"),
    ("run\n-- \nBob\nCEO", "run"),
    ("run\n--\nBob", "run"),
    ("run --all\n--- \nnot a signature", "run --all\n--- \nnot a signature"),
    ("- one\n- two", "- one\n- two"),
    ("yes\n\nOn Mon, 30 Nov 2026 at 10:00, Bob <bob@x.org> wrote:\n> old", "yes"),
    ("yes\n\nOn Mon, 30 Nov 2026 at 10:00, Bob Example\n<bob@x.org> wrote:\n\nold", "yes"),
    ("ja\n\nAm 30.11.2026 um 10:00 schrieb Bob <bob@x.org>:\n\nalt", "ja"),
    ("oui\n\nLe lun. 30 nov. 2026 à 10:00, Bob <b@x> a écrit :\n\nvieux", "oui"),
    ("On Mon, 30 Nov 2026 at 10:00, Bob <bob@x.org> wrote:\n> old\n\n> older\n\nyes", "yes"),
    ("yes\n\nBob <bob@x.org> writes:\n\n> old\nand no\n-- \nAl", "yes\n\nand no"),
    ("yes\n* Bob <bob@x.org> [2026-11-30 10:00]:\n> old", "yes"),
    ("send it to bob@x.org:\n> text", "send it to bob@x.org:"),
    ("On Monday, Bob wrote:\n> a\nb\nOn Monday, Al wrote:\n> c\nd", "b\nd"),
    ("On Monday, Bob wrote:\nold\n> older\n\nold again", None),
    ("> old\nnew\n> older\nalso new", "new\nalso new"),
    ("run\n\n-----Original Message-----\nFrom: a\n\nold", "run"),
    ("run\n\n-------- Forwarded Message --------\nSubject: x\n\nold", "run"),
    ("run\n\nBegin forwarded message:\n\nFrom: a\n\nold", "run"),
    ("run\n________________________________\nFrom: a@b\nSent: x\nTo: c\nSubject: d\n\nold", "run"),
    ("los\n\nVon: a@b\nGesendet: heute\nAn: c\nBetreff: d\n\nalt", "los"),
    ("send a mail\nTo: a@b\nSubject: hi\n\ntext", "send a mail\nTo: a@b\nSubject: hi\n\ntext"),
    ("do this:\n- a\n- b", "do this:\n- a\n- b"),
    ("> only quotes\n> here", None),
    ("-- \nBob", None),
    ("  \n\n", None),
    ("", None),
    (None, None),
]


@pytest.mark.parametrize(("text", "new"), CUT)
def test_what_is_not_new_is_cut_off(text: str | None, new: str | None) -> None:
    assert quotes.new_text(text) == new


def test_split_reply_gives_both_halves() -> None:
    text = "yes\r\n> was it?\r\nno\r\n\r\nOn Monday, Bob wrote:\r\n> old"
    assert quotes.split_reply(text) == ("yes\nno", "> was it?\nOn Monday, Bob wrote:\n> old")


@pytest.mark.invariant(4)
@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    "line", ["On " + "a " * 70, "Am " + "x schrieb " * 15, "From: " + "x " * 70, "On wrote " * 15]
)
def test_hostile_lines_cost_no_more_than_their_number(line: str) -> None:
    quotes.new_text((line + ":\n") * 2_000)


@settings(max_examples=100, deadline=None)
@given(st.text(max_size=300))
def test_new_text_is_part_of_the_text(text: str) -> None:
    new = quotes.new_text(text)
    whole = text.replace("\r\n", "\n").replace("\r", "\n")
    assert new is None or all(line in whole for line in new.split("\n"))
