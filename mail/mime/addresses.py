"""Address headers: a strict parser of our own, the same on every Python version.

Structure is read from what stands there; encoded words are decoded afterwards and never make an
address. `a@x (comment)`, `Name <a@x>`, `"Name" <a@x>` and unquoted `name[bot] <a@x>` parse; routes,
spaces inside an address, and several angle brackets do not.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from mail.mime import limits, words
from mail.mime.defects import Defect, Defects
from mail.mime.headers import Headers
from mail.types import Address

_QUOTED = re.compile(r'"([^"\\]*(?:\\.[^"\\]*)*)"', re.DOTALL)
_ANGLE = re.compile(r'<((?:[^<>"]|"[^"\\]*(?:\\.[^"\\]*)*")*)>', re.DOTALL)
_ATOM = re.compile(r'(?:@\[[^\[\]\s]*\]|[^\s"(),:;<>])+')
_COMMENT_PIECE = re.compile(r"\\.|[()]|[^()\\]+|\\", re.DOTALL)
_UNESCAPE = re.compile(r"\\(.)", re.DOTALL)

_TEXT = r"A-Za-z0-9!#$%&'*+/=?^_`{|}~\-\u00a1-\U0010fffd"
_DOT_ATOM = re.compile(rf"[{_TEXT}]+(?:\.[{_TEXT}]+)*")
_LABEL = r"[A-Za-z0-9_\-\u00a1-\U0010fffd]+"
_DOMAIN = re.compile(rf"{_LABEL}(?:\.{_LABEL})*|\[[A-Za-z0-9.:\-]{{1,80}}\]")
_INVISIBLE = re.compile("[\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202f\u205f-\u206f\u3000\ufeff]")


@dataclass(slots=True)
class AddressList:
    """What an address header holds. `damaged` when anything in it is no address."""

    addresses: list[Address] = field(default_factory=list)
    groups: int = 0
    damaged: bool = False


@dataclass(slots=True)
class _Mailbox:
    """The tokens of one entry while it is read: words of the phrase, angle parts, comments."""

    words: list[str] = field(default_factory=list)
    bare: list[str] = field(default_factory=list)
    angles: list[str] = field(default_factory=list)
    comments: list[str] = field(default_factory=list)
    after_angle: bool = False
    glued: bool = False

    @property
    def empty(self) -> bool:
        return not (self.words or self.angles)


def parse_header(values: tuple[bytes, ...], defects: Defects) -> AddressList:
    """Every value of one header as one list; damage is flagged, the rest is kept."""
    everything = AddressList()
    for value in values:
        _parse_into(everything, words.raw_text(value, defects), defects)
    return everything


def addresses(headers: Headers, name: str, defects: Defects) -> tuple[Address, ...]:
    """The addresses of a header that names recipients; groups give their members."""
    found = parse_header(headers.all(name), defects)
    if found.damaged:
        defects.add(Defect.HEADER_BAD_ADDRESS)
    return tuple(found.addresses)


def identity(headers: Headers, defects: Defects) -> tuple[Address | None, tuple[Address, ...]]:
    """The one identity of a message, or None, and every address that From holds."""
    fields = [field for field in headers.fields if field.name == "from"]
    found = parse_header(tuple(field.value for field in fields), defects)
    everything = tuple(found.addresses)
    if not fields:
        defects.add(Defect.HEADER_MISSING_FROM)
        return None, everything
    if len(fields) > 1 or len(everything) > 1:
        defects.add(Defect.HEADER_MULTIPLE_FROM)
        return None, everything
    if not everything or found.groups or found.damaged or fields[0].damaged:
        defects.add(Defect.HEADER_BAD_FROM)
        return None, everything
    if "@" in everything[0].name:
        defects.add(Defect.HEADER_ADDRESS_IN_NAME)
    return everything[0], everything


def parse_address(text: str) -> str | None:
    """One plain address (`local@domain`), its domain in lower case, or None."""
    if len(text) > limits.MAX_ADDRESS_CHARS or _INVISIBLE.search(text) or "=?" in text:
        return None
    quoted = _QUOTED.match(text)
    if quoted:
        local, rest = _UNESCAPE.sub(r"\1", quoted[1]), text[quoted.end() :]
        if not rest.startswith("@") or not local.isprintable():
            return None
        domain = rest[1:]
        if not _DOT_ATOM.fullmatch(local):
            escaped = local.replace("\\", "\\\\").replace('"', '\\"')
            local = f'"{escaped}"'
    else:
        local, at, domain = text.partition("@")
        if not at or not _DOT_ATOM.fullmatch(local) or not local.isprintable():
            return None
    if not _DOMAIN.fullmatch(domain) or not domain.isprintable():
        return None
    address = f"{local}@{domain.lower()}"
    return address if len(address) <= limits.MAX_ADDRESS_CHARS else None


def _parse_into(found: AddressList, text: str, defects: Defects) -> None:
    mailbox = _Mailbox()
    position = 0
    in_group = False
    while position < len(text) and len(found.addresses) < limits.MAX_ADDRESSES:
        character = text[position]
        if character.isspace():
            mailbox.glued = False
            position += 1
            continue
        if character in ",;:":
            if character == ":" and not in_group:
                in_group = True
                found.groups += 1
                mailbox = _Mailbox()
            else:
                found.damaged |= character == ":" or (character == ";" and not in_group)
                in_group &= character != ";"
                _finish(found, mailbox, defects)
                mailbox = _Mailbox()
            position += 1
            continue
        end = _take(mailbox, text, position)
        if end is None:
            found.damaged = True
            break
        position = end
    else:
        found.damaged |= position < len(text) or in_group
    _finish(found, mailbox, defects)


def _take(mailbox: _Mailbox, text: str, position: int) -> int | None:
    """Read one token; its end, or None when it never ends."""
    character = text[position]
    if character == "(":
        return _comment(mailbox, text, position)
    if character == "<":
        match = _ANGLE.match(text, position)
        if match is None:
            return None
        mailbox.angles.append(match[1])
        mailbox.after_angle = True
        return match.end()
    if character in ")>":  # closes nothing: the entry is no address
        mailbox.angles += ["", ""]
        return position + 1
    match = (_QUOTED if character == '"' else _ATOM).match(text, position)
    if match is None:
        return None
    if mailbox.after_angle:  # words behind an angle bracket: no mailbox
        mailbox.angles.append("")
    quoted = character == '"'
    mailbox.words.append(_UNESCAPE.sub(r"\1", match[1]) if quoted else match[0])
    if mailbox.glued:
        mailbox.bare[-1] += match[0]
    else:
        mailbox.bare.append(match[0])
    mailbox.glued = True
    return match.end()


def _comment(mailbox: _Mailbox, text: str, position: int) -> int | None:
    """Read a comment with its nested ones, without recursion."""
    depth = 0
    for piece in _COMMENT_PIECE.finditer(text, position):
        depth += (piece[0] == "(") - (piece[0] == ")")
        if depth == 0:
            mailbox.comments.append(text[position + 1 : piece.start()])
            mailbox.glued = False
            return piece.end()
    return None


def _finish(found: AddressList, mailbox: _Mailbox, defects: Defects) -> None:
    """Add the entry that was read, if it is one."""
    if mailbox.empty:
        found.damaged |= bool(mailbox.comments)
        return
    if len(mailbox.angles) == 1:
        address = parse_address(mailbox.angles[0].strip())
        phrase = " ".join(mailbox.words)
    elif not mailbox.angles and len(mailbox.bare) == 1:
        address = parse_address(mailbox.bare[0])
        phrase = " ".join(mailbox.comments)
    else:
        address, phrase = None, ""
    if address is None:
        found.damaged = True
        return
    name = words.decode_words(phrase, defects)[: limits.MAX_NAME_CHARS]
    found.addresses.append(Address(name, address))
