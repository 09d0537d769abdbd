"""The matcher does what Go's `path.Match` does, on every pattern, in bounded time."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from guards import patterns
from guards.exceptions import InvalidInput

LETTERS = "ab@./ß"


@pytest.mark.parametrize(
    ("pattern", "address", "fits"),
    [
        ("*@mail.example.org", "no-reply-4711@mail.example.org", True),
        ("*@MAIL.example.org", "No-Reply@mail.EXAMPLE.org", True),
        ("*@mail.example.org", "x@mail.example.org.evil.net", False),
        ("*@mail.example.org", "x@evil.net", False),
        ("*@*.example.org", "x@a.b.example.org", True),
        ("*@*.example.org", "x@example.org", False),
        ("build-?@ci.example.org", "build-7@ci.example.org", True),
        ("build-?@ci.example.org", "build-77@ci.example.org", False),
        ("build-[0-9]@ci.example.org", "build-7@ci.example.org", True),
        ("build-[^0-9]@ci.example.org", "build-7@ci.example.org", False),
        ("[abc]*@x.org", "charlie@x.org", True),
        (r"a\*@x.org", "a*@x.org", True),
        (r"a\*@x.org", "ab@x.org", False),
        (r"[\]]@x.org", "]@x.org", True),
        ("*@x.org", "a/b@x.org", False),
        ("?@x.org", "/@x.org", False),
        ("[a-z/]@x.org", "/@x.org", True),
        ("*", "", True),
        ("", "", True),
        ("", "a", False),
        ("**@x.org", "a@x.org", True),
        ("*[^a]*", "@/", True),
        ("*@straße.de", "a@STRASSE.de", False),
        ("*@straße.de", "a@Straße.DE", True),
    ],
)
def test_it_matches_the_whole_address(pattern: str, address: str, fits: bool) -> None:
    assert patterns.matches(pattern, address) is fits


@pytest.mark.parametrize(
    "pattern",
    [
        "[",
        "[]",
        "[]a]",
        "[a",
        "[a-",
        "[a-]",
        "[-a]",
        "[^",
        "[^]",
        "[^-a]",
        "a[",
        "\\",
        "a\\",
        "[\\",
    ],
)
def test_it_refuses_a_malformed_pattern_when_it_is_entered(pattern: str) -> None:
    with pytest.raises(InvalidInput, match="invalid pattern syntax"):
        patterns.validate(pattern)


def test_an_address_without_meta_characters_is_no_pattern() -> None:
    assert not patterns.is_pattern("a.b+c@example.org")
    assert all(patterns.is_pattern(text) for text in ("*@x", "a?@x", "[a]@x"))


# One token of a pattern, and which characters it takes: None is a star.
TOKENS = st.one_of(
    st.just(("*", None)),
    st.just(("?", frozenset(LETTERS) - {"/"})),
    st.sampled_from([(letter, frozenset(letter)) for letter in LETTERS]),
    st.sampled_from([(f"\\{letter}", frozenset(letter)) for letter in LETTERS]),
    st.just(("[ab]", frozenset("ab"))),
    st.just(("[a-b]", frozenset("ab"))),
    st.just(("[^a]", frozenset(LETTERS) - {"a"})),
)


def fits(tokens: list[tuple[str, frozenset[str] | None]], text: str) -> bool:
    """The reference: exponential, and plainly right."""
    if not tokens:
        return text == ""
    taken = tokens[0][1]
    if taken is None:
        stop = text.find("/")
        longest = len(text) if stop < 0 else stop
        return any(fits(tokens[1:], text[cut:]) for cut in range(longest + 1))
    return text[:1] in taken and text != "" and fits(tokens[1:], text[1:])


@settings(max_examples=200, deadline=None)
@given(st.lists(TOKENS, max_size=6), st.text(LETTERS, max_size=7))
def test_it_agrees_with_a_simple_reference(
    tokens: list[tuple[str, frozenset[str] | None]], text: str
) -> None:
    pattern = "".join(written for written, _ in tokens)
    assert patterns.matches(pattern, text) is fits(tokens, text)


@settings(max_examples=200, deadline=None)
@given(st.text("ab*?[]^-\\@", max_size=12), st.text("ab@", max_size=8))
def test_any_text_either_compiles_or_is_refused(pattern: str, text: str) -> None:
    try:
        patterns.validate(pattern)
    except InvalidInput:
        with pytest.raises(InvalidInput):
            patterns.matches(pattern, text)
        return
    assert patterns.matches(pattern, text) in (True, False)


def test_a_pattern_with_many_stars_is_still_answered_at_once() -> None:
    pattern = "*a" * 120 + "b"
    assert not patterns.matches(pattern, "a" * 250)
