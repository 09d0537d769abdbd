"""Authentication-Results are evidence: only of our own server, by their grammar, with alignment."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mail import mime
from tests.mail.builders import plain


def notes(*values: str, authserv_id: str = "mx.example.net") -> tuple[str, ...]:
    raw = plain(*(f"Authentication-Results: {value}" for value in values))
    return mime.parse(raw, authserv_id=authserv_id).facts.notes


def test_results_of_our_own_server_are_noted_with_their_alignment() -> None:
    assert notes(
        "mx.example.net; dkim=pass header.d=example.org; spf=fail smtp.mailfrom=evil.example;"
        " dmarc=pass header.from=example.org"
    ) == (
        "dkim=pass example.org (aligned)",
        "spf=fail evil.example (not aligned)",
        "dmarc=pass example.org (aligned)",
    )


@pytest.mark.fault("transport-auth-03", "W7")
def test_a_pass_for_another_domain_is_not_aligned() -> None:
    found = notes("mx.example.net; spf=pass smtp.mailfrom=x@evil.com; dkim=pass header.d=org")
    assert found == ("spf=pass evil.com (not aligned)", "dkim=pass org (not aligned)")


@pytest.mark.fault("transport-auth-02")
@pytest.mark.parametrize(
    "value",
    [
        "; dkim=pass header.d=example.org",
        "auth=pass mx.example.net",
        "other.example; dkim=pass header.d=example.org",
        "mx.example.net.evil.example; dkim=pass header.d=example.org",
        "other.example (mx.example.net); dkim=pass header.d=example.org",
        "mx.example.net dkim=pass header.d=example.org",
        "mx.example.net 2; dkim=pass header.d=example.org",
        "mx.example.net; none",
        "",
        "(" * 3000 + "mx.example.net; dkim=pass header.d=example.org",
        "mx.example.net; dkim=pass header.d=" + "x" * 5000,
    ],
)
def test_what_is_not_of_our_own_server_or_no_header_is_ignored(value: str) -> None:
    assert notes(value) == ()


def test_without_a_configured_id_nothing_is_noted() -> None:
    assert notes("mx.example.net; dkim=pass header.d=example.org", authserv_id="") == ()


PIECES = ["mx.example.net", ";", " ", "dkim", "=", "pass", "header.d", "(", ")", '"', "none", "/",
          "1", "a@b", "reason", "policy.x", ".", "\\", "é", "spf", "smtp.mailfrom"]  # fmt: skip


@settings(max_examples=200, deadline=None)
@given(st.lists(st.sampled_from(PIECES), max_size=25).map("".join))
def test_no_such_header_disturbs_the_message(value: str) -> None:
    raw = plain(f"Authentication-Results: mx.example.net; {value}")
    assert mime.parse(raw, authserv_id="mx.example.net").quarantine is None
