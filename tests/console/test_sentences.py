"""Every stable word that a person meets has its sentence."""

from __future__ import annotations

import pytest

from approvals.models import Effect
from approvals.sentences import PHASES, REASONS
from guards.types import Rule, TrustLevel, TrustReason
from mail import sentences
from mail.types import LoopReason, SendReason

pytestmark = pytest.mark.one_database


def test_each_trust_reason_has_a_sentence():
    assert set(sentences.TRUST) == set(TrustReason)


def test_each_rule_has_a_sentence():
    assert set(sentences.RULES) == set(Rule)


def test_each_level_has_a_word_and_a_glyph():
    assert set(sentences.LEVELS) == set(sentences.GLYPHS) == set(TrustLevel)


def test_each_loop_reason_has_a_sentence():
    assert set(sentences.LOOPS) == set(LoopReason)


def test_each_phase_has_a_sentence():
    assert set(PHASES) == set(Effect.Phase)


def test_each_end_of_a_send_has_a_sentence():
    assert set(SendReason) <= set(REASONS)


def test_sentences_are_sentences():
    for words in (sentences.TRUST, sentences.RULES, sentences.LOOPS, PHASES, REASONS):
        for sentence in words.values():
            assert sentence[0].isupper() and sentence.endswith(".")
