"""HTML as text: what a reader would see, and nothing that is hidden from one.

Comments, scripts, styles, alternative texts and elements that styles hide are left out. Layout is
inscriptis' work on what nh3 has cleaned; beyond a bound, tags are only stripped.
"""

from __future__ import annotations

import html as entities
import re
from typing import TYPE_CHECKING

from mail.mime import limits
from mail.mime.defects import Defect, Defects

if TYPE_CHECKING:
    from lxml.html import HtmlElement

_DROPPED_TAGS = (
    "script style title head template noscript iframe object embed svg math select option"
    " textarea audio video canvas map"
)
_KEPT_TAGS = (
    "a abbr address article aside b blockquote br caption center cite code col colgroup dd del"
    " details dfn div dl dt em figcaption figure footer h1 h2 h3 h4 h5 h6 header hr i ins kbd li"
    " main mark nav ol p pre q s samp section small span strike strong sub summary sup table tbody"
    " td tfoot th thead tr tt u ul var wbr"
)
_DROPPED = frozenset(_DROPPED_TAGS.split())
_TAGS = frozenset(_KEPT_TAGS.split())
_BLOCKS = re.compile(r"<(?:br|/p|/div|/li|/tr|/h[1-6]|/blockquote|hr)\b[^<>]{0,200}>", re.I)
_VOID = "area|base|br|col|embed|hr|img|input|link|meta|param|source|track|wbr"
_OPENS_OR_CLOSES = re.compile(rf"<(?:(/)[a-z]|(?!(?:{_VOID})\b)[a-z])", re.I)
_BLANK_LINES = re.compile(r"\n{3,}")
_NOTHING = r"(?:0+(?:\.0+)?|\.0+)(?:px|pt|em|rem|ex|%|vh|vw)?(?![\d.])"
_HIDING = re.compile(
    r"display\s*:\s*none|visibility\s*:\s*(?:hidden|collapse)|mso-hide\s*:\s*all"
    rf"|(?:max-height|opacity)\s*:\s*{_NOTHING}"
    rf"|(?<![\w-])(?:height|width|max-width)\s*:\s*{_NOTHING}[^{{}}]{{0,500}}overflow\s*:\s*hidden"
    rf"|overflow\s*:\s*hidden[^{{}}]{{0,500}};\s*(?:height|width|max-width)\s*:\s*{_NOTHING}"
    r"|(?:text-indent|left|top)\s*:\s*-\d{3,}|clip\s*:\s*rect\(\s*0"
    r"|(?<![\w-])color\s*:\s*transparent",
    re.I,
)
_TINY = re.compile(rf"font-size\s*:\s*{_NOTHING}", re.I)
_FONT_SIZE = re.compile(r"font-size\s*:", re.I)
_COLOUR = re.compile(r"(?<![\w-])color\s*:\s*([^;!]{1,60})", re.I)
_BACKGROUND = re.compile(r"background(?:-color)?\s*:\s*([^;!]{1,60})", re.I)
_WHITE = frozenset({"white", "#fff", "#ffffff", "rgb(255,255,255)", "rgba(255,255,255,1)"})
_RULE = re.compile(r"([^{}]{1,500})\{([^{}]{0,2000})\}")
_CSS_COMMENT = re.compile(r"/\*.{0,2000}?\*/", re.DOTALL)
_SIMPLE_SELECTOR = re.compile(r"[a-z0-9]*(?:[.#][A-Za-z0-9_-]+)\Z", re.I)


def to_text(source: str, defects: Defects) -> str:
    """The visible text of an HTML body, LF only."""
    if len(source) > limits.MAX_LAID_OUT_HTML_CHARS:
        return _stripped(source)
    try:
        visible = _without_hidden(source, defects)
    except ValueError:  # nothing that lxml can take
        return _stripped(source)
    return _stripped(visible) if _nests_deeply(visible) else _laid_out(visible)


def _nests_deeply(source: str) -> bool:
    """Whether elements may nest deeper than the layout engine and its parser go."""
    depth = deepest = 0
    for match in _OPENS_OR_CLOSES.finditer(source):
        depth += -1 if match[1] else 1
        deepest = max(deepest, depth)
    return deepest > limits.MAX_HTML_DEPTH


def _laid_out(source: str) -> str:
    import nh3
    from inscriptis import get_text
    from inscriptis.css_profiles import CSS_PROFILES
    from inscriptis.model.config import ParserConfig

    cleaned = nh3.clean(
        source, tags=set(_TAGS), attributes={}, clean_content_tags=set(_DROPPED), link_rel=None
    )
    return _tidy(get_text(cleaned, ParserConfig(css=CSS_PROFILES["strict"].copy())))


def _stripped(source: str) -> str:
    import nh3

    lines = _BLOCKS.sub("\n", source)
    cleaned = nh3.clean(lines, tags=set(), attributes={}, clean_content_tags=set(_DROPPED))
    return _tidy(entities.unescape(cleaned))


def _tidy(text: str) -> str:
    lines = [line.rstrip() for line in text.replace("\r", "").split("\n")]
    return _BLANK_LINES.sub("\n\n", "\n".join(lines)).strip("\n").replace("\0", "\ufffd")


def _without_hidden(source: str, defects: Defects) -> str:
    """The source without the elements that attributes or style rules hide."""
    from lxml import etree
    from lxml import html as lxml_html

    if not source.strip():
        return ""
    parser = lxml_html.HTMLParser(
        encoding="utf-8", remove_comments=True, remove_pis=True, huge_tree=True
    )
    try:
        tree = lxml_html.document_fromstring(source.encode("utf-8"), parser=parser)
    except (etree.ParserError, etree.XMLSyntaxError) as error:
        raise ValueError("not a document") from error
    hidden = _hidden_selectors(tree)
    found = [
        element
        for element in tree.iter()
        if isinstance(element.tag, str) and _is_hidden(element, hidden)
    ]
    for element in found:
        if element.text_content().strip():
            defects.add(Defect.TEXT_HIDDEN_HTML)
        if element.getparent() is not None:
            element.drop_tree()
    return lxml_html.tostring(tree, encoding="unicode")


def _is_hidden(element: HtmlElement, selectors: frozenset[str]) -> bool:
    style = (element.get("style") or "")[:2000]
    if element.get("hidden") is not None or _HIDING.search(style):
        return True
    if _TINY.search(style) and not _resizes(element):
        return True
    colour = _COLOUR.search(style)
    if colour and _plain(colour[1]) == _behind(element):
        return True
    names = [f".{name}" for name in (element.get("class") or "").split()[:50]]
    names += [f"#{element.get('id')}"] if element.get("id") else []
    return any(name in selectors or f"{element.tag}{name}" in selectors for name in names)


def _resizes(element: HtmlElement) -> bool:
    """Whether something below gives its text a size again, as layout tables do."""
    below = (child.get("style") or "" for child in element.iterdescendants("*"))
    return any(_FONT_SIZE.search(style) and not _TINY.search(style) for style in below)


def _plain(colour: str) -> str:
    name = colour.lower().replace(" ", "").strip()
    return "white" if name in _WHITE else name


def _behind(element: HtmlElement) -> str:
    """The colour of the nearest background; white where none is declared."""
    node: HtmlElement | None = element
    while node is not None:
        declared = _BACKGROUND.search((node.get("style") or "")[:2000])
        if declared or node.get("bgcolor"):
            return _plain(declared[1] if declared else node.get("bgcolor") or "")
        node = node.getparent()
    return "white"


def _hidden_selectors(tree: HtmlElement) -> frozenset[str]:
    """`.class`, `#id`, `tag.class` that a style sheet hides (media queries are not looked into)."""
    found: set[str] = set()
    for style in tree.iter("style"):
        sheet = _CSS_COMMENT.sub(" ", (style.text or "")[:50_000])
        for rule in _RULE.finditer(sheet):
            if _HIDING.search(rule[2]):
                names = (name.strip() for name in rule[1].split(","))
                found.update(name for name in names if _SIMPLE_SELECTOR.match(name))
    return frozenset(found)
