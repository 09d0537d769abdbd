"""What nobody would see is written out where a person decides on a text."""

from __future__ import annotations

import pytest
from django.template import Context, Template

from guards.unseen import visible


def shown(text: str) -> str:
    return Template("{% load console %}{{ text|seen }}").render(Context({"text": text}))


@pytest.mark.parametrize("code", [0x202E, 0x200B, 0x2066, 0xFEFF, 0x3164, 0xFE0F, 0x7F, 0x2028])
def test_a_character_that_nobody_sees_is_written_out_and_marked(code: int) -> None:
    page = shown(f"Withdraw me {chr(code)} evil")
    assert chr(code) not in page
    assert f'<mark class="cs-unseen">\\u{{{code:x}}}</mark>' in page


def test_what_people_read_stays_as_it_is() -> None:
    text = "Grüße, 東京, שלום\n\tan indented line, 100 % – fine"
    assert shown(text) == text


def test_text_cannot_be_markup() -> None:
    assert shown("<b>\u202e</b>") == ('&lt;b&gt;<mark class="cs-unseen">\\u{202e}</mark>&lt;/b&gt;')


def test_in_one_line_a_break_is_written_out_too() -> None:
    assert visible("a\nb\tc") == "a\\u{a}b    c"
