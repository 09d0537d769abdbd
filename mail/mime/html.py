"""HTML as text: what a reader would see, and nothing that is hidden from one.

Comments, scripts, styles, alternative texts and elements that attributes or styles hide are left
out. inscriptis lays the rest out; beyond a bound in size or depth, tags are only stripped, because
parsers then take more than linear time, or stop without a word.
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
_BLOCK_TAGS = "br p div li tr h1 h2 h3 h4 h5 h6 blockquote hr table ul ol pre section article"
_DROPPED = frozenset(_DROPPED_TAGS.split())
_KEPT = frozenset(_KEPT_TAGS.split())
_BLOCKS = frozenset(_BLOCK_TAGS.split())
_VOID = "area|base|br|col|embed|hr|img|input|link|meta|param|source|track|wbr"
_OPENS_OR_CLOSES = re.compile(rf"<(?:(/)[a-z]|(?!(?:{_VOID})\b)[a-z])", re.I)
_TAG = re.compile(r"<(/?)([A-Za-z][A-Za-z0-9]*)|<[!?]")
#: Characters that a tree of lxml must not hold.
_NOT_XML = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]")
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
    """The visible text of an HTML body, LF only. Linear, whatever the HTML."""
    source = _NOT_XML.sub("\ufffd", source)
    tree = _read(source)
    if tree is None:
        return _stripped(source)
    try:
        _drop_hidden(tree, defects)
    except ValueError:  # a character reference made something that lxml itself refuses
        return _stripped(source)
    return _laid_out(tree)


def sanitised(source: str) -> str:
    """HTML that may be shown in a sandboxed frame: no scripts, styles, links out, or images.

    What is too large or too deep to be cleaned in linear time becomes its text.
    """
    import nh3

    tree = _read(source)
    if tree is None or _height(tree) > limits.MAX_LAID_OUT_HTML_DEPTH:
        return f"<pre>{entities.escape(_stripped(source))}</pre>"
    return nh3.clean(
        source, tags=set(_KEPT), attributes={}, clean_content_tags=set(_DROPPED), link_rel=None
    )


def _read(source: str) -> HtmlElement | None:
    """The source as a tree, or None where it is out of bounds or nothing that lxml can take."""
    from lxml import etree
    from lxml import html as lxml_html

    if not source.strip() or len(source) > limits.MAX_LAID_OUT_HTML_CHARS:
        return None
    if _depth(source) > limits.MAX_READ_HTML_DEPTH:
        return None
    parser = lxml_html.HTMLParser(
        encoding="utf-8", remove_comments=True, remove_pis=True, huge_tree=True
    )
    try:
        return lxml_html.document_fromstring(source.encode("utf-8"), parser=parser)
    except (etree.ParserError, etree.XMLSyntaxError, ValueError):
        return None


def _depth(source: str) -> int:
    """How deep elements may nest at most, unclosed ones counted."""
    depth = deepest = 0
    for match in _OPENS_OR_CLOSES.finditer(source):
        depth += -1 if match[1] else 1
        deepest = max(deepest, depth)
    return deepest


def _height(tree: HtmlElement) -> int:
    """How deep elements of a tree really nest."""
    depths: dict[HtmlElement, int] = {}
    for element in tree.iter():
        parent = element.getparent()
        depths[element] = 0 if parent is None else depths.get(parent, 0) + 1
    return max(depths.values(), default=0)


def _laid_out(tree: HtmlElement) -> str:
    from inscriptis.css_profiles import CSS_PROFILES
    from inscriptis.html_engine import Inscriptis
    from inscriptis.model.config import ParserConfig
    from lxml import html as lxml_html

    for element in tree.iter("*"):
        element.attrib.clear()  # no paddings of a million columns
    if _height(tree) <= limits.MAX_LAID_OUT_HTML_DEPTH:
        try:
            return _tidy(Inscriptis(tree, ParserConfig(css=CSS_PROFILES["strict"])).get_text())
        except (ValueError, LookupError, TypeError, AttributeError):
            pass  # a tree that inscriptis cannot lay out
    return _stripped(lxml_html.tostring(tree, encoding="unicode"))


def _stripped(source: str) -> str:
    """The text between the tags. Each step goes forward, so it is linear on any source."""
    lowered = source.lower() if len(source.lower()) == len(source) else source
    kept: list[str] = []
    position = 0
    while (start := source.find("<", position)) >= 0:
        kept.append(source[position:start])
        tag = _TAG.match(source, start)
        if tag is None:
            kept.append("<")
            position = start + 1
            continue
        closing = "-->" if source.startswith("<!--", start) else ">"
        end = source.find(closing, start)
        if end < 0:
            return _tidy(entities.unescape("".join(kept)))
        position = end + len(closing)
        name = (tag[2] or "").lower()
        if name in _BLOCKS:
            kept.append("\n")
        if name in _DROPPED and not tag[1]:
            end = lowered.find(f"</{name}", position)
            position = len(source) if end < 0 else end
    kept.append(source[position:])
    return _tidy(entities.unescape("".join(kept)))


def _tidy(text: str) -> str:
    lines = [line.rstrip() for line in text.replace("\r", "").split("\n")]
    return _BLANK_LINES.sub("\n\n", "\n".join(lines)).strip("\n").replace("\0", "\ufffd")


def _drop_hidden(tree: HtmlElement, defects: Defects) -> None:
    """Take out what is no text, and the elements that attributes or style rules hide."""
    selectors = _hiding_selectors(tree)
    for element in list(tree.iter("*")):
        dropped = element.tag in _DROPPED
        if not dropped and not _is_hidden(element, selectors):
            continue
        if not dropped and element.text_content().strip():
            defects.add(Defect.TEXT_HIDDEN_HTML)
        if element.getparent() is not None:
            element.drop_tree()


def _is_hidden(element: HtmlElement, selectors: frozenset[str]) -> bool:
    style = (element.get("style") or "")[:2000]
    if element.get("hidden") is not None or _HIDING.search(style):
        return True
    if _TINY.search(style) and not _resizes(element):
        return True
    declared = _COLOUR.search(style)
    colour = declared[1] if declared else element.get("color")
    if colour and _plain(colour) == _behind(element):
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


def _hiding_selectors(tree: HtmlElement) -> frozenset[str]:
    """`.class`, `#id`, `tag.class` that a style sheet hides (media queries are not looked into)."""
    found: set[str] = set()
    for style in tree.iter("style"):
        sheet = _CSS_COMMENT.sub(" ", (style.text or "")[:50_000])
        for rule in _RULE.finditer(sheet):
            if _HIDING.search(rule[2]):
                names = (name.strip() for name in rule[1].split(","))
                found.update(name for name in names if _SIMPLE_SELECTOR.match(name))
    return frozenset(found)
