"""Names of a pipeline's files: made by us, and read back one plain segment at a time (DES-032).

A name that came with mail or from a program is text to show, never a path. What lies in the
directory has a name of ours, or one that was taken apart and looked at segment by segment.
"""

from __future__ import annotations

import mimetypes
import re
import unicodedata
from pathlib import Path

from pipelines.exceptions import FilesRefused
from pipelines.types import FileRule

#: The longest shown name, in characters; the longest path below the directory, in bytes.
MAX_NAME = 100
MAX_PATH_BYTES = 1024
#: How deep below its directory a file may lie.
MAX_DEPTH = 32

#: What a part's number before its name takes.
_NUMBER = 6
_UNSAFE = re.compile(r'[\\/:*?"<>|]')
_NOT_PLAIN = re.compile(r"[^A-Za-z0-9.+=@,_-]+")
_EXTENSION = re.compile(r"\.[A-Za-z0-9]{1,15}\Z")
_MEDIA_TYPE = re.compile(
    r"[A-Za-z0-9][A-Za-z0-9!#$&^_.+-]{0,62}/[A-Za-z0-9][A-Za-z0-9!#$&^_.+-]{0,62}"
)
#: The `field` of a refusal that is about a file of the pipe, or of a mail.
FIELD = "files"
UNKNOWN_TYPE = "application/octet-stream"


def shown(name: str, *, most: int = MAX_NAME) -> str:
    """A name as people may read it: one line without path, control or direction marks; or ""."""
    composed = unicodedata.normalize("NFC", name.encode("utf-8", "replace").decode("utf-8"))
    printable = "".join(one if _is_printable(one) else "_" for one in composed)
    cleaned = re.sub(r"\.{2,}", ".", _UNSAFE.sub("_", printable))
    return _cut(re.sub(r"[\s_]{2,}", "_", cleaned).strip(" ._-"), most)


def of_attachment(name: str, media_type: str, index: int) -> tuple[str, str]:
    """(shown name, path) of a mail's part: both begin with its number, so no two are the same.

    The path is plain ASCII and never begins with a dot or a `-`: no program takes it for an option.
    """
    readable = (
        shown(name, most=MAX_NAME - _NUMBER)
        or f"part{mimetypes.guess_extension(media_type) or '.bin'}"
    )
    return f"{index:02d}-{readable}", f"{index:02d}-{_plain(readable)}"


def media_type(given: object, path: str) -> str:
    """A media type as it was given, where it is one; else what the path's ending says."""
    if isinstance(given, str) and _MEDIA_TYPE.fullmatch(given):
        return given.lower()
    return mimetypes.guess_type(path, strict=True)[0] or UNKNOWN_TYPE


def segments(path: str) -> tuple[str, ...]:
    """A relative path's segments; FilesRefused unless each is plain and the path has one spelling.

    No `..`, no `.`, no empty segment, nothing absolute, no control character.
    """
    if not path:
        raise refusal("a file needs a path", FileRule.PATH_EMPTY)
    if path.startswith("/"):
        raise refusal(
            f"{path[:200]!r} is absolute, and not below the directory", FileRule.PATH_ABSOLUTE
        )
    if any(unicodedata.category(one) in ("Cc", "Cs") for one in path):
        raise refusal(f"{path[:200]!r} holds a control character", FileRule.PATH_CONTROL)
    if len(path.encode()) > MAX_PATH_BYTES:
        raise refusal(f"a path is longer than {MAX_PATH_BYTES} bytes", FileRule.PATH_TOO_LONG)
    found = tuple(path.split("/"))
    if len(found) > MAX_DEPTH:
        raise refusal(f"{path[:200]!r} lies deeper than {MAX_DEPTH} levels", FileRule.PATH_TOO_DEEP)
    for segment in found:
        if segment in ("", ".", ".."):
            raise refusal(f"{path[:200]!r} holds the segment {segment!r}", FileRule.PATH_NOT_PLAIN)
    return found


def relative(path: str, directory: Path) -> str:
    """A path as the pipe keeps it: below the directory, whichever way a program wrote it."""
    inside = path.removeprefix(f"{directory}/")
    segments(inside)
    return inside


def refusal(detail: str, rule: FileRule) -> FilesRefused:
    """FilesRefused with the rule it names."""
    return FilesRefused(detail, field=FIELD, rule=rule)


def _is_printable(one: str) -> bool:
    return one == " " or (one.isprintable() and unicodedata.category(one)[0] not in "CZ")


def _plain(name: str) -> str:
    """The name in ASCII, accents dropped; what has no ASCII at all keeps its ending only."""
    ascii_only = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode()
    ending = _EXTENSION.search(ascii_only)
    stem = ascii_only[: ending.start()] if ending else ascii_only
    plain = _NOT_PLAIN.sub("_", stem).strip("._-")
    return (plain or "part") + (ending[0] if ending else "")


def _cut(name: str, most: int) -> str:
    """At most so many characters, the ending kept."""
    if len(name) <= most:
        return name
    ending = _EXTENSION.search(name)
    kept = ending[0] if ending else ""
    return name[: most - len(kept)].rstrip(" ._-") + kept
