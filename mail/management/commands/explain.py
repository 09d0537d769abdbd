"""`explain`: what the system makes of a message, without storing it."""

from __future__ import annotations

import argparse
import json
import os
import re
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from guards.exceptions import InvalidInput
from guards.fronts.commands import sentence, wrong_use

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


class Command(BaseCommand):
    """Prints one JSON object a file. Exit 0 for any bytes, 2 for usage, files and keys."""

    help = (
        "Say what the system makes of messages (files, or folders of files) without storing them."
        " With --contact or --pin only those apply, otherwise the database."
    )
    requires_system_checks: list[str] = []
    requires_migrations_checks = False

    def add_arguments(self, parser: CommandParser) -> None:
        """The options of the issue's usage line."""
        parser.set_defaults(more_paths=[])
        parser.add_argument("paths", nargs="*", metavar="PATH", help="a message, or a folder")
        parser.add_argument("--json", action="store_true", help="JSON (always so)")
        parser.add_argument("--identity", metavar="EMAIL", help="judge as this identity sees it")
        parser.add_argument("--provider", choices=["generic", "proton-bridge"], default="generic")
        parser.add_argument(
            "--loopback", action="store_true", help="it came from a literal loopback host"
        )
        for name, form in (("--contact", "ADDRESS=rwx"), ("--pin", "ADDRESS=KEYFILE")):
            parser.add_argument(
                name, action=_Several, nargs="+", default=[], metavar=form, help="repeatable"
            )
        parser.add_argument("--now", metavar="ISO", help="the moment to judge at")

    def handle(self, *args: object, **options: Any) -> None:
        """Explain every file; nothing is printed before every path is known to be readable."""
        from mail import explaining
        from mail.types import Provider

        now = _moment(options["now"])
        paths = [*options["paths"], *options["more_paths"]]
        if not paths:
            raise wrong_use("name at least one PATH: a message, or a folder of messages")
        files = list(_files(paths))
        for file in files:
            _check_readable(file)
        try:
            setting = explaining.build_setting(
                contacts=options["contact"],
                pins=options["pin"],
                identity=options["identity"],
                provider=Provider(options["provider"]),
                loopback=options["loopback"],
                now=now,
            )
        except InvalidInput as refusal:
            raise wrong_use(sentence(refusal)) from refusal
        for file in files:
            answer = explaining.explain(_read(file), file=file, setting=setting)
            self.stdout.write(json.dumps(answer, separators=(",", ":")))


def _moment(text: str | None) -> datetime:
    if text is None:
        return datetime.now(UTC)
    try:
        moment = datetime.fromisoformat(text)
        return moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)
    except (ValueError, OverflowError) as error:
        raise wrong_use(f"--now: {text!r} is not an ISO 8601 moment") from error


def _files(paths: list[str]) -> Iterator[str]:
    """The files behind the paths as given; a folder gives its files, recursively and sorted."""
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


def _check_readable(file: str) -> None:
    if not Path(file).exists() or not os.access(file, os.R_OK):
        raise wrong_use(f"{file} cannot be read: there is no such file, or no permission")


def _read(file: str) -> bytes:
    try:
        return Path(file).read_bytes()
    except (OSError, ValueError) as error:
        raise wrong_use(f"{file} cannot be read: {error}") from error
