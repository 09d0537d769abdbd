"""Write sets: the relative paths that a command may change, compared by whole path segments.

One spelling per path (`a//b`, `a/./b` and `a/` are refused, not repaired). A set of a command
without a project lies in its pipeline's own directory, so it can never meet another pipeline's.
"""

from __future__ import annotations

from collections.abc import Iterable

from guards.exceptions import InvalidInput


def check_path(path: str) -> None:
    """InvalidInput unless the path is relative, plain and written in its one spelling."""
    if path.startswith("/"):
        raise InvalidInput(f"{path!r} is absolute; a write set is relative to the project")
    if "\\" in path or any(ord(char) < 32 for char in path):
        raise InvalidInput(f"{path!r} holds a character that no write set may hold")
    for segment in path.split("/"):
        if segment in ("", ".", ".."):
            raise InvalidInput(f"{path!r} holds the segment {segment!r}; write the plain path")


def covers(directory: str, path: str) -> bool:
    """Whether the path is the entry itself or lies below it; a child does not cover its parent."""
    return path == directory or path.startswith(f"{directory}/")


def overlap(left: Iterable[str], right: Iterable[str]) -> bool:
    """Whether two sets share a place: either covers a path of the other."""
    rights = tuple(right)
    return any(covers(a, b) or covers(b, a) for a in left for b in rights)


def scoped(project: str, paths: Iterable[str]) -> list[str]:
    """A command's set as pipelines compare it: below its project; nothing without a project."""
    return sorted({f"{project}:{path}" for path in paths}) if project else []
