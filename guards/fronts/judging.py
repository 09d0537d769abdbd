"""The options of commands that judge message files: `explain`, and `pipeline dry-run`.

Files are named as paths or folders; `--contact`, `--pin`, `--identity`, `--provider`, `--loopback`
and `--now` say what counts instead of the database and the clock.
"""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from guards.fronts.commands import wrong_use

#: What stands behind `--contact` or `--pin` and is one more of its values, not a path.
_CONTACT = re.compile(r".+=[r-][w-][x-]", re.DOTALL)
_PIN = re.compile(r"[^/=]+@[^/=]+=.+", re.DOTALL)


class _Several(argparse.Action):
    """`--contact a@x=rwx b@y=r--`: as many values as have the option's form; the rest are paths."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: str | Sequence[Any] | None,
        option_string: str | None = None,
    ) -> None:
        """Take the first value whatever it is: a wrong one is refused by name later."""
        form = _CONTACT if self.dest == "contact" else _PIN
        first, *more = list(values or ())
        own = [value for value in more if form.fullmatch(value) and not Path(value).exists()]
        paths = [value for value in more if value not in own]
        setattr(namespace, self.dest, [*getattr(namespace, self.dest), first, *own])
        namespace.more_paths = [*namespace.more_paths, *paths]


def add_arguments(
    parser: argparse.ArgumentParser, *, paths: str = "a message, or a folder"
) -> None:
    """The options, and `paths`, which `named_paths` gives back whole."""
    parser.set_defaults(more_paths=[])
    parser.add_argument("paths", nargs="*", metavar="PATH", help=paths)
    parser.add_argument(
        "--identity",
        metavar="EMAIL",
        help="judge as this identity sees it; without it the default one's rights count, if any",
    )
    parser.add_argument("--provider", choices=["generic", "proton-bridge"], default="generic")
    parser.add_argument(
        "--loopback", action="store_true", help="it came from a literal loopback host"
    )
    for name, form in (("--contact", "ADDRESS=rwx"), ("--pin", "ADDRESS=KEYFILE")):
        parser.add_argument(
            name, action=_Several, nargs="+", default=[], metavar=form, help="repeatable"
        )
    parser.add_argument("--now", metavar="ISO", help="the moment to judge at")


def named_paths(options: dict[str, Any]) -> list[str]:
    """Every path of the command line."""
    return [*options["paths"], *options["more_paths"]]


def moment(text: str | None) -> datetime:
    """What `--now` says, or now; exit 2 for what is no moment."""
    if text is None:
        return datetime.now(UTC)
    try:
        said = datetime.fromisoformat(text)
        return said.astimezone(UTC) if said.tzinfo else said.replace(tzinfo=UTC)
    except (ValueError, OverflowError) as error:
        raise wrong_use(f"--now: {text!r} is not an ISO 8601 moment") from error


def readable_files(paths: Sequence[str]) -> list[str]:
    """The files behind the paths as given; a folder gives its files, recursively and sorted.

    Exit 2 when any of them cannot be read: nothing is judged before all are known to be there.
    """
    files = list(_files(paths))
    for file in files:
        if not Path(file).exists() or not os.access(file, os.R_OK):
            raise wrong_use(f"{file} cannot be read: there is no such file, or no permission")
    return files


def read(file: str) -> bytes:
    """A file's bytes; exit 2 when they cannot be read."""
    try:
        return Path(file).read_bytes()
    except (OSError, ValueError) as error:
        raise wrong_use(f"{file} cannot be read: {error}") from error


def _files(paths: Sequence[str]) -> Iterator[str]:
    for path in paths:
        if not Path(path).is_dir():
            yield path
            continue
        found = [
            os.path.join(folder, name)  # noqa: PTH118 - the path stays as it was given
            for folder, _, names in os.walk(path, onerror=_refuse)
            for name in names
        ]
        yield from (name for name in sorted(found) if Path(name).is_file())


def _refuse(error: OSError) -> None:
    raise wrong_use(f"{error.filename} cannot be read: {error.strerror}")
