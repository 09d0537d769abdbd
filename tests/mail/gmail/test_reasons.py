"""Each word by which the Gmail profile refuses has a sentence, and each is used."""

from __future__ import annotations

from pathlib import Path

from mail import gmail
from mail.gmail.reasons import MEANINGS, Reason


def test_each_reason_has_a_sentence():
    assert set(MEANINGS) == set(Reason)
    assert all(text.endswith(".") for text in MEANINGS.values())


def test_each_reason_is_given_somewhere():
    [folder] = gmail.__path__
    code = "".join(
        path.read_text() for path in Path(folder).glob("*.py") if path.name != "reasons.py"
    )
    assert [one.name for one in Reason if f"Reason.{one.name}" not in code] == []
