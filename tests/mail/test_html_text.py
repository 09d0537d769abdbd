"""Text from HTML: what a reader sees; hidden text is left out and said so (injection-02)."""

from __future__ import annotations

import pytest

from mail import mime
from mail.mime import html
from tests.mail.builders import multipart, part, plain


def parse(source: str) -> mime.ParsedMessage:
    return mime.parse(plain("Content-Type: text/html; charset=utf-8", text=source.encode()))


HIDDEN = [
    '<p style="display:none">evil</p>',
    '<p style="DISPLAY : NONE !important">evil</p>',
    '<p style="visibility:hidden">evil</p>',
    '<p style="font-size:0px">evil</p>',
    '<p style="font-size: 0">evil</p>',
    '<p style="opacity:0">evil</p>',
    '<p style="opacity:0.0;color:red">evil</p>',
    '<div style="max-height:0;overflow:hidden">evil</div>',
    '<div style="height:0px;overflow:hidden">evil</div>',
    '<div style="overflow:hidden;width:0">evil</div>',
    '<div style="position:absolute;left:-9999px">evil</div>',
    '<p style="color:#ffffff">evil</p>',
    '<p style="color:white;background:white">evil</p>',
    '<div style="background-color:#000"><p style="color:#000">evil</p></div>',
    '<font color="white">evil</font>',
    '<table bgcolor="#123456"><tr><td style="color:#123456">evil</td></tr></table>',
    '<p style="color:rgba(0, 0, 0, 0.0)">evil</p>',
    '<p style="color:#0000">evil</p>',
    '<p style="color:#fefdfe">evil</p>',
    '<p style="color:rgb(255,255,255)">evil</p>',
    '<div style="background:#000 none"><p style="background:transparent">'
    '<b style="color:#000000">evil</b></p></div>',
    '<p style="display:/* x */none">evil</p>',
    r'<p style="displa\79 :none">evil</p>',
    '<p style="font-size:1px">evil</p>',
    '<p style="transform: translate(1px) scale(0, 1)">evil</p>',
    "<style>u{display:none}</style><u>evil</u>",
    "<style>@import url(x); @media only screen { .x{display:none} }</style><p class=x>evil</p>",
    "<p hidden>evil</p>",
    "<style>.x{display:none}</style><p class='a x'>evil</p>",
    "<style>/* c */ p.x, #y { visibility : hidden }</style><p id=y>evil</p>",
]


@pytest.mark.fault("injection-02")
@pytest.mark.parametrize("source", HIDDEN)
def test_text_that_the_reader_cannot_see_is_left_out_and_flagged(source: str) -> None:
    parsed = parse(f"<html><body><p>before</p>{source}<p>after</p></body></html>")
    assert "evil" not in parsed.text
    assert parsed.text.split() == ["before", "after"]
    assert "text.hidden-html" in parsed.defects


NEVER_TEXT = [
    "<!-- evil -->",
    '<img src="x" alt="evil">',
    '<a title="evil" href="https://evil.example">link</a>',
    "<script>evil()</script>",
    "<style>evil{}</style>",
    "<title>evil</title>",
    "<noscript>evil</noscript>",
    "<template>evil</template>",
    "<!--[if mso]>evil<![endif]-->",
    '<input value="evil">',
]


@pytest.mark.fault("injection-02")
@pytest.mark.parametrize("source", NEVER_TEXT)
def test_what_is_no_text_of_the_page_is_left_out(source: str) -> None:
    assert "evil" not in parse(f"<html><body><p>before</p>{source}<p>after</p></body></html>").text


SEEN = [
    ('<p style="color:white;background:#000">seen</p>', "seen"),
    ('<div style="font-size:0"><p style="font-size:14px">seen</p></div>', "seen"),
    ('<p style="opacity:0.9;max-height:0.5em">seen</p>', "seen"),
    ('<p style="font-size:0.9em">seen</p>', "seen"),
    ("<ul><li>one<li>two</ul>", "* one\n  * two"),
    ("<b>no&nbsp;html&lt;</b>", "no html<"),
    ("a<br>b", "a\nb"),
    ("just text", "just text"),
    ("<style>@media print{.x{display:none}}</style><p class=x>seen</p>", "seen"),
    ("<style>@media screen and (max-width:9px){.x{display:none}}</style><p class=x>seen", "seen"),
    ("<style>@media print{p{color:red}}.x{display:none}</style><p class=y>seen</p>", "seen"),
    ('<p style="background:url(x);color:white">seen</p>', "seen"),
    ('<p style="color:rgba(0,0,0,0.6)">seen</p>', "seen"),
    ('<p style="font-size:1.2px">seen</p>', "seen"),
]


@pytest.mark.parametrize(("source", "text"), SEEN)
def test_text_that_is_shown_stays(source: str, text: str) -> None:
    assert parse(source).text.strip() == text


def test_plain_text_goes_before_html_even_when_it_is_empty() -> None:
    raw = multipart(
        "alternative", "b", part("text/plain", b""), part("text/html", b"<p>x</p>"),
        headers=("From: alice@example.org",),
    )  # fmt: skip
    parsed = mime.parse(raw)
    assert (parsed.text, parsed.html) == ("", "<p>x</p>")


@pytest.mark.parametrize("count", [500, 60_000])
def test_deep_html_keeps_its_text(count: int) -> None:
    assert parse("<div>" * count + "deep" + "</div>" * count).text == "deep"


@pytest.mark.invariant(4)
@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    "source",
    [
        "<div>" * 1_900 + "<b style='color:red'>x</b>" * 9_000,
        "<div style='font-size:0'>" * 1_900 + "<b style='a'>x</b>" * 9_000,
        "<div style='display:none'>" * 1_900 + "<b>x</b>" * 20_000,
        "<style>" + "@media screen{.a{}" * 2_700 + "</style>x",
    ],
)
def test_styles_of_deep_and_wide_html_cost_no_more_than_its_length(source: str) -> None:
    """The first two took seconds, half a minute, when each element looked around for itself."""
    parse(source)


def test_large_html_is_stripped_of_its_tags() -> None:
    source = "<p>line</p>" * 60_000 + "<script>evil</script><!-- evil --><b>end &amp; over</b>"
    text = parse(source).text
    assert text.startswith("line") and text.endswith("end & over")
    assert "evil" not in text


def test_sanitised_html_has_nothing_that_acts_or_loads() -> None:
    source = (
        '<p onclick="x()">a</p><img src="http://x/y"><script>1</script><a href="http://x">b</a>'
    )
    assert html.sanitised(source) == "<p>a</p><a>b</a>"
    assert html.sanitised("<div>" * 3000 + "<x>").startswith("<pre>")
