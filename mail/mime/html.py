"""HTML as text: what a reader would see, and nothing that is hidden from one.

Comments, scripts, styles, alternative texts and elements that attributes or styles hide are left
out. inscriptis lays the rest out; beyond a bound in size or depth, tags are only stripped, because
parsers then take more than linear time, or stop without a word.
"""

from __future__ import annotations

import html as entities
import re
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
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
    r"|(?<![\w-])color\s*:\s*transparent"
    r"|transform\s*:[^;{}]{0,100}scale\(\s*0(?:\.0+)?\s*[,)]",
    re.I,
)
_TINY = re.compile(
    rf"font-size\s*:\s*(?:{_NOTHING}|(?:0*\.\d+|0*1(?:\.0+)?)(?:px|pt)(?![\w.]))", re.I
)
_FONT_SIZE = re.compile(r"font-size\s*:", re.I)
_COLOUR = re.compile(r"(?<![\w-])color\s*:\s*([^;!]{1,60})", re.I)
_BACKGROUND = re.compile(r"background(?:-color)?\s*:\s*([^;!]{1,60})", re.I)
_HEX = re.compile(r"#(?:[0-9a-f]{8}|[0-9a-f]{6}|[0-9a-f]{3,4})(?![0-9a-f])", re.I)
_RGB = re.compile(r"rgba?\(\s*(\d+)[\s,]+(\d+)[\s,]+(\d+)\s*(?:[,/]\s*([\d.]+)%?\s*)?\)", re.I)
_NAMED = {"white": (255, 255, 255), "black": (0, 0, 0)}
#: Colours that differ by no more than this, in each of red, green and blue, look the same.
_SAME_COLOUR = 8
_BRACE = re.compile(r"[{}]")
_CSS_COMMENT = re.compile(r"/\*.{0,2000}?\*/", re.DOTALL)
_CSS_ESCAPE = re.compile(r"\\(?:([0-9a-f]{1,6})\s?|(.))", re.I | re.DOTALL)
_SIMPLE_SELECTOR = re.compile(r"[a-z0-9]+\Z|[a-z0-9]*(?:[.#][A-Za-z0-9_-]+)\Z", re.I)
#: At-rules whose contents hold for who reads mail on a screen of usual size.
_APPLIES = re.compile(r"@media\s+(?:only\s+)?(?:screen|all)\s*\Z|@(?:supports|layer)\b", re.I)

_Colour = tuple[int, int, int]


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


@dataclass(frozen=True, slots=True)
class _Look:
    """What decides about an element and does not stand at it, looked up once for a whole page.

    `behind` is the colour behind its text (None where that is not understood), `resized` holds the
    elements below which text gets a size again, as in layout tables.
    """

    selectors: frozenset[str]
    behind: Mapping[HtmlElement | None, _Colour | None]
    resized: Set[HtmlElement | None]


def _drop_hidden(tree: HtmlElement, defects: Defects) -> None:
    """Take out what is no text, and the elements that attributes or style rules hide."""
    elements = list(tree.iter("*"))
    look = _Look(_hiding_selectors(tree), _backgrounds(elements), _resized(elements))
    gone: set[HtmlElement] = set()
    for element in elements:
        parent = element.getparent()
        if parent in gone:
            gone.add(element)
            continue
        dropped = element.tag in _DROPPED
        if not dropped and not _is_hidden(element, look):
            continue
        if not dropped and element.text_content().strip():
            defects.add(Defect.TEXT_HIDDEN_HTML)
        if parent is not None:
            gone.add(element)
            element.drop_tree()


def _backgrounds(elements: Sequence[HtmlElement]) -> dict[HtmlElement | None, _Colour | None]:
    """The nearest background of each; white where none is declared. Parents come first."""
    found: dict[HtmlElement | None, _Colour | None] = {}
    for element in elements:
        declared = _BACKGROUND.search(_style(element))
        text = (declared[1] if declared else element.get("bgcolor") or "").strip().lower()
        if text in ("", "none", "inherit") or _is_transparent(text):
            found[element] = found.get(element.getparent(), _NAMED["white"])
        else:
            found[element] = _colour(text)
    return found


def _resized(elements: Sequence[HtmlElement]) -> set[HtmlElement | None]:
    """The elements below which a style gives text a size that can be read. Parents come first."""
    found: set[HtmlElement | None] = set()
    for element in reversed(elements):
        style = _style(element)
        if element in found or (_FONT_SIZE.search(style) and not _TINY.search(style)):
            found.add(element.getparent())
    return found


def _is_hidden(element: HtmlElement, look: _Look) -> bool:
    style = _style(element)
    if element.get("hidden") is not None or _HIDING.search(style):
        return True
    if _TINY.search(style) and element not in look.resized:
        return True
    if _is_invisible(element, style, look.behind[element]):
        return True
    names = [f".{name}" for name in (element.get("class") or "").split()[:50]]
    names += [f"#{element.get('id')}"] if element.get("id") else []
    return element.tag in look.selectors or any(
        name in look.selectors or f"{element.tag}{name}" in look.selectors for name in names
    )


def _style(element: HtmlElement) -> str:
    """An element's own style, bounded, as a browser reads it."""
    return _plain_css((element.get("style") or "")[:2000])


def _plain_css(text: str) -> str:
    """CSS without comments and with its escapes resolved."""
    text = _CSS_COMMENT.sub("", text)
    return _CSS_ESCAPE.sub(_unescaped, text) if "\\" in text else text


def _unescaped(escape: re.Match[str]) -> str:
    if escape[1] is None:
        return escape[2]
    number = int(escape[1], 16)
    return chr(number) if 0 < number < 0xD800 else "\ufffd"


def _is_invisible(element: HtmlElement, style: str, behind: _Colour | None) -> bool:
    """Whether text is declared to have no colour, or the colour of what is behind it."""
    declared = _COLOUR.search(style)
    text = declared[1] if declared else element.get("color")
    if not text:
        return False
    if _is_transparent(text):
        return True
    colour = _colour(text)
    if colour is None or behind is None:
        return False
    return all(abs(one - other) <= _SAME_COLOUR for one, other in zip(colour, behind, strict=True))


def _colour(text: str) -> _Colour | None:
    """The first colour in a declaration as red, green, blue; None for what is not understood."""
    if match := _HEX.search(text):
        digits = match[0][1:]
        pairs = [digit * 2 for digit in digits] if len(digits) < 6 else re.findall("..", digits)
        red, green, blue = (int(pair, 16) for pair in pairs[:3])
        return red, green, blue
    if match := _RGB.search(text):
        return int(match[1]), int(match[2]), int(match[3])
    return _NAMED.get(text.strip().lower())


def _is_transparent(text: str) -> bool:
    if text.strip().lower() == "transparent":
        return True
    if (match := _HEX.search(text)) and len(match[0]) in (5, 9):
        return int(match[0][4 if len(match[0]) == 5 else 7 :], 16) == 0
    match = _RGB.search(text)
    return bool(match and match[4] and not match[4].strip("0."))


def _hiding_selectors(tree: HtmlElement) -> frozenset[str]:
    """`tag`, `.class`, `#id`, `tag.class` that a style sheet hides from usual readers."""
    found: set[str] = set()
    for style in tree.iter("style"):
        for selector, declarations in _rules(_plain_css((style.text or "")[:50_000])):
            if _HIDING.search(declarations[:2000]):
                names = (name.strip() for name in selector.split(","))
                found.update(name for name in names if _SIMPLE_SELECTOR.match(name))
    return frozenset(found)


def _rules(sheet: str) -> Iterator[tuple[str, str]]:
    """(selectors, declarations) of the rules that hold for reading on a screen of usual size."""
    outer: list[str] = []
    position = 0
    for brace in _BRACE.finditer(sheet):
        between = sheet[position : brace.start()]
        position = brace.end()
        if brace[0] == "{":
            outer.append(between.rpartition(";")[2].strip())
        elif outer:
            selector = outer.pop()
            if not selector.startswith("@") and all(_APPLIES.match(one) for one in outer[:20]):
                yield selector, between
