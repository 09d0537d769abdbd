"""Present, exact scopes at every refresh: what a refresh answer must say before a token counts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mail.exceptions import ProfileRefused
from mail.gateways.google.base import ABSENT
from mail.gmail import scopes
from tests.mail.gmail.refusals import refused

GMAIL = "https://www.googleapis.com/auth/gmail."
ALIAS = "https://www.googleapis.com/auth/userinfo.email"
PROFILES = {"readonly": scopes.READ, "send": scopes.SEND}

both_profiles = pytest.mark.parametrize("use", sorted(PROFILES))


@both_profiles
@pytest.mark.parametrize("email", ["email", ALIAS])
def test_exactly_the_declared_scopes_are_accepted_in_any_order(use: str, email: str):
    evidence = scopes.prove(f"openid {GMAIL}{use} {email}", PROFILES[use])
    assert evidence.scopes == PROFILES[use]
    assert evidence.observed == f"openid {GMAIL}{use} {email}"


@both_profiles
@pytest.mark.parametrize(
    ("observed", "reason"),
    [
        (ABSENT, "scope_omitted"),
        (None, "scope_null"),
        (7, "scope_not_text"),
        (["openid", "email"], "scope_not_text"),
        ("", "scope_empty"),
        ("   ", "scope_empty"),
        ("openid " * 400, "scope_too_long"),
        ("openid\temail", "scope_control_character"),
        ("openid\nemail", "scope_control_character"),
        ("openid\x00", "scope_control_character"),
        ("openid\x85email", "scope_control_character"),
        (" openid email", "scope_malformed"),
        ("openid email ", "scope_malformed"),
        ("openid  email", "scope_malformed"),
        ("openid\u00a0email", "scope_malformed"),
        ('openid "email"', "scope_malformed"),
        ("openid email\\", "scope_malformed"),
        ("openid openid email", "scope_duplicate"),
        (f"openid email {ALIAS}", "scope_duplicate"),
        (f"openid {ALIAS} {ALIAS}", "scope_duplicate"),
    ],
)
def test_missing_or_malformed_evidence_has_a_reason_of_its_own(use, observed, reason):
    if isinstance(observed, str) and reason in ("scope_duplicate",):
        observed = f"{GMAIL}{use} {observed}"
    with refused(reason, "scope"):
        scopes.prove(observed, PROFILES[use])


@both_profiles
@pytest.mark.parametrize(
    "extra",
    [
        "profile",
        "https://www.googleapis.com/auth/userinfo.profile",
        "https://mail.google.com/",
        GMAIL + "modify",
        GMAIL + "compose",
        GMAIL + "metadata",
        GMAIL + "readonly.extra",
        "https://www.googleapis.com/auth/gmail",
        "gmail.readonly",
        "EMAIL",
        ALIAS + "/",
        ALIAS.replace("https", "http"),
    ],
)
def test_a_broader_or_unknown_permission_is_refused(use: str, extra: str):
    with refused("scope_extra"):
        scopes.prove(f"{GMAIL}{use} openid email {extra}", PROFILES[use])


@both_profiles
@pytest.mark.parametrize("lacking", ["openid", "email", "gmail"])
def test_a_scope_that_was_not_granted_is_refused(use: str, lacking: str):
    granted = [one for one in (f"{GMAIL}{use}", "openid", "email") if lacking not in one]
    with refused("scope_missing"):
        scopes.prove(" ".join(granted), PROFILES[use])


def test_the_other_credentials_scopes_are_refused():
    with refused("scope_extra"):
        scopes.prove(f"{GMAIL}send openid email", scopes.READ)
    with refused("scope_extra"):
        scopes.prove(f"{GMAIL}readonly openid email", scopes.SEND)


def test_the_digest_tells_apart_what_was_observed():
    plain = scopes.prove(f"{GMAIL}send openid email", scopes.SEND)
    alias = scopes.prove(f"{GMAIL}send openid {ALIAS}", scopes.SEND)
    assert plain.scopes == alias.scopes
    assert plain.digest != alias.digest


def test_a_reading_connection_keeps_its_omitted_scope():
    assert scopes.prove_legacy(ABSENT) is None
    evidence = scopes.prove_legacy(GMAIL + "readonly")
    assert evidence is not None
    assert evidence.scopes == scopes.LEGACY_READONLY


@pytest.mark.parametrize(
    ("observed", "reason"),
    [
        (None, "scope_null"),
        ("", "scope_empty"),
        (GMAIL + "modify", "scope_extra"),
        (GMAIL + "readonly openid email", "scope_extra"),
        (GMAIL + "readonly " + GMAIL + "readonly", "scope_duplicate"),
    ],
)
def test_a_reading_connection_has_one_exact_scope(observed: object, reason: str):
    with refused(reason):
        scopes.prove_legacy(observed)


@given(st.one_of(st.text(), st.integers(), st.none(), st.lists(st.text())))
def test_nothing_but_the_exact_set_ever_passes(observed: object):
    try:
        evidence = scopes.prove(observed, scopes.SEND)
    except ProfileRefused as error:
        assert error.reason.startswith("scope_")
    else:
        assert evidence.scopes == scopes.SEND


@given(st.permutations(sorted(scopes.READ)), st.integers(0, 100), st.characters())
def test_one_character_more_is_never_the_same_set(tokens: list[str], at: int, more: str):
    exact = " ".join(tokens)
    at %= len(exact) + 1
    with pytest.raises(ProfileRefused):
        scopes.prove(exact[:at] + more + exact[at:], scopes.READ)
