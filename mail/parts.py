"""The parts of mail that leaves: entities with their own headers, serialised once, 7-bit.

A signed part is the very bytes that are sent (RFC 3156); a file travels in base64 under a name that
is text and nothing else (RFC 2231).
"""

from __future__ import annotations

import hashlib
import re
from base64 import encodebytes
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from urllib.parse import quote

from guards.exceptions import InvalidInput
from guards.openpgp import Signature
from mail.mime import words
from mail.types import Enclosure

#: The longest name of a file, in characters.
MAX_FILE_NAME = 200

_CONTROLS = re.compile(r"[\x00-\x1f\x7f\x80-\x9f\u2028\u2029\ud800-\udfff]")
_HEADER_NAME = re.compile(r"[A-Za-z][A-Za-z0-9\-]*")
_PLAIN_VALUE = re.compile(r"[A-Za-z0-9 !#$&+,.=@^_{}~-]{1,60}")
_TOKEN = r"[A-Za-z0-9][A-Za-z0-9!#$&^_.+-]{0,62}"  # noqa: S105 (a token of RFC 2045)
_MEDIA_TYPE = re.compile(f"{_TOKEN}/{_TOKEN}")
_MAX_FIELD = 998


@dataclass(frozen=True, slots=True)
class Body:
    """A MIME entity: its own header lines, and its content with CRLF line ends."""

    headers: tuple[tuple[str, str], ...]
    content: bytes

    @property
    def serialised(self) -> bytes:
        return header_block(self.headers) + b"\r\n" + self.content


def field(text: str, name: str) -> str:
    """Text that may stand in a header; InvalidInput where it could end one, now or when decoded."""
    for reading in (text, words.raw_words(text)):
        bad = _CONTROLS.search(reading)
        if bad is not None:
            raise InvalidInput(
                f"{name} holds the character U+{ord(bad[0]):04X}, which cannot stand in a header;"
                " remove it",
                field=name,
                rule="header-injection",
            )
    if len(text) > _MAX_FIELD:
        raise InvalidInput(f"{name} is over {_MAX_FIELD} characters", field=name)
    return text


def header_block(headers: Sequence[tuple[str, str]]) -> bytes:
    return b"".join(_folded(name, value) for name, value in headers)


def _folded(name: str, value: str) -> bytes:
    """One header with its line folded at spaces below 78 characters where it can be."""
    if not _HEADER_NAME.fullmatch(name):
        raise InvalidInput(f"{name!r} is no header name", field=name)
    if "\r\n" in value:  # encoded words, folded when they were made
        return f"{name}: {value}\r\n".encode("ascii")
    lines = [f"{name}:"]
    for word in value.split(" "):
        if (
            len(lines[-1]) + 1 + len(word) > 78
            and word
            and lines[-1].strip(" ")
            not in (
                "",
                f"{name}:",
            )
        ):
            lines.append("")
        lines[-1] += f" {word}"
    return ("\r\n".join(lines) + "\r\n").encode("ascii")


def text_body(text: str) -> Body:
    """The text as a 7-bit part: as it is where that is safe, quoted-printable otherwise."""
    lines = text.replace("\r\n", "\n").replace("\r", "\n").replace("\0", "\ufffd").split("\n")
    if lines[-1] == "":
        lines.pop()
    if all(_travels_as_it_is(line) for line in lines):
        content = "".join(f"{line}\r\n" for line in lines).encode("ascii")
        return Body(_text_headers("us-ascii", "7bit"), content)
    content = b"".join(_quoted_printable(line) + b"\r\n" for line in lines)
    return Body(_text_headers("utf-8", "quoted-printable"), content)


def _text_headers(charset: str, encoding: str) -> tuple[tuple[str, str], ...]:
    return (
        ("Content-Type", f'text/plain; charset="{charset}"'),
        ("Content-Transfer-Encoding", encoding),
    )


def _travels_as_it_is(line: str) -> bool:
    """RFC 3156: nothing that a relay could alter, or that a delimiter could be mistaken for."""
    return (
        line.isascii()
        and len(line) <= 76
        and (line.isprintable() or not _CONTROLS.search(line.replace("\t", " ")))
        and not line.endswith((" ", "\t"))
        and not line.startswith(("From ", "--", "."))
    )


def _quoted_printable(line: str) -> bytes:
    """One line by RFC 2045, with soft breaks; whatever might be altered on the way is encoded."""
    encoded = [_character(byte) for byte in line.encode("utf-8", "replace")]
    if encoded and line[-1] in " \t":
        encoded[-1] = f"={ord(line[-1]):02X}"
    if line.startswith(("From ", "-", ".")):
        encoded[0] = f"={ord(line[0]):02X}"
    pieces = [""]
    for position, one in enumerate(encoded):
        room = 76 if position == len(encoded) - 1 else 75
        if len(pieces[-1]) + len(one) > room:
            pieces.append("")
        pieces[-1] += one
    return "=\r\n".join(pieces).encode("ascii")


def _character(byte: int) -> str:
    plain = 32 <= byte <= 126 and byte != 61
    return chr(byte) if plain or byte == 9 else f"={byte:02X}"


def mixed(parts: Sequence[Body]) -> Body:
    """multipart/mixed: the text, then the files."""
    return multipart("mixed", parts)


def multipart(subtype: str, parts: Sequence[Body], parameters: Sequence[str] = ()) -> Body:
    """The parts one after another, as they are; `parameters` stand before the boundary."""
    contents = [part.serialised for part in parts]
    boundary = _boundary(*contents)
    dashes = b"--" + boundary.encode("ascii")
    inside = b"".join(dashes + b"\r\n" + content + b"\r\n" for content in contents)
    value = "; ".join((f"multipart/{subtype}", *parameters, f'boundary="{boundary}"'))
    return Body((("Content-Type", value),), inside + dashes + b"--\r\n")


def file_part(file: Enclosure) -> Body:
    """One file in base64, under a name that is text and nothing else (RFC 2231)."""
    name = _file_name(file.name)
    headers = (
        ("Content-Type", _file_type(file.type)),
        ("Content-Transfer-Encoding", "base64"),
        ("Content-Disposition", f"attachment;\r\n {_parameter('filename', name)}"),
    )
    return Body(headers, encodebytes(file.content).replace(b"\n", b"\r\n"))


def _file_name(name: str) -> str:
    """InvalidInput for a name that is empty, too long, a path, or could end its header."""
    if not name.strip() or len(name) > MAX_FILE_NAME:
        raise InvalidInput(
            f"a file's name has 1 to {MAX_FILE_NAME} characters, not {len(name)}", field="files"
        )
    if name != name.strip():
        raise InvalidInput(f"{name!r} begins or ends with a space", field="files")
    if "/" in name or "\\" in name:
        raise InvalidInput(f"{name!r} is a path, not a name of a file", field="files")
    return field(name, "files")


def _file_type(media_type: str) -> str:
    """A media type that base64 may carry: no message and no multipart (RFC 2046)."""
    if not _MEDIA_TYPE.fullmatch(media_type):
        raise InvalidInput(f"{media_type!r} is no media type", field="files")
    composite = media_type.lower().startswith(("message/", "multipart/"))
    return "application/octet-stream" if composite else media_type


def _parameter(name: str, value: str) -> str:
    """A parameter as it is where that is plain, else by RFC 2231, in pieces that fit on a line."""
    if _PLAIN_VALUE.fullmatch(value):
        return f'{name}="{value}"'
    pieces, current = [], ""
    for one in value:
        encoded = quote(one, safe="")
        if len(current) + len(encoded) > 54:
            pieces.append(current)
            current = ""
        current += encoded
    pieces.append(current)
    if len(pieces) == 1:
        return f"{name}*=utf-8''{pieces[0]}"
    pieces[0] = f"utf-8''{pieces[0]}"
    return ";\r\n ".join(f"{name}*{number}*={piece}" for number, piece in enumerate(pieces))


def signed(body: Body, sign: Callable[[bytes], Signature]) -> Body:
    """multipart/signed around exactly the bytes that were signed."""
    payload = body.serialised
    signature = sign(payload)
    armored = signature.armored.replace(b"\r\n", b"\n").replace(b"\n", b"\r\n")
    part = Body(
        (
            ("Content-Type", 'application/pgp-signature; name="signature.asc"'),
            ("Content-Description", "OpenPGP digital signature"),
            ("Content-Disposition", 'attachment; filename="signature.asc"'),
        ),
        armored if armored.endswith(b"\r\n") else armored + b"\r\n",
    )
    parameters = (f"micalg={signature.micalg}", 'protocol="application/pgp-signature"')
    return multipart("signed", [body, part], parameters)


def _boundary(*contents: bytes) -> str:
    """A delimiter that occurs in none of the contents; the same for the same contents."""
    number = 0
    while True:
        seed = hashlib.sha256(b"%d" % number + b"".join(contents)).hexdigest()
        boundary = f"=_{seed[:40]}"
        if not any(boundary.encode("ascii") in content for content in contents):
            return boundary
        number += 1
