"""Each word by which the Gmail profile refuses has a sentence, and each is used."""

from __future__ import annotations

from pathlib import Path

from approvals.sentences import look_sentence, reason_sentence
from mail import gmail
from mail.gmail.reasons import GOOGLE, MEANINGS, Reason


def test_each_reason_has_a_sentence():
    assert set(MEANINGS) == set(Reason)
    assert all(text.endswith(".") for text in MEANINGS.values())


def test_a_person_reads_them_where_an_act_or_a_look_ended():
    for word, text in {**MEANINGS, **GOOGLE}.items():
        assert text[0].isupper() and text.endswith(".")
        assert reason_sentence(word)
        assert look_sentence(word)


def test_each_reason_is_given_somewhere():
    [folder] = gmail.__path__
    code = "".join(
        path.read_text() for path in Path(folder).glob("*.py") if path.name != "reasons.py"
    )
    assert [one.name for one in Reason if f"Reason.{one.name}" not in code] == []
