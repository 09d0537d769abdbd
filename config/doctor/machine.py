"""This machine: Python, GnuPG, disk, clock."""

from __future__ import annotations

import os
import platform
import shutil
from collections.abc import Callable, Iterable, Iterator
from datetime import timedelta
from pathlib import Path

from django.conf import settings
from django.utils import timezone

from config.doctor.findings import Finding, fault, ok, warning
from guards import process
from teams.models import Event

Look = tuple[str, Callable[[], Iterable[Finding]]]

_OLDEST_GNUPG = (2, 2)
_LITTLE_DISK, _NO_DISK = 1 << 30, 100 << 20


def _python() -> Iterator[Finding]:
    yield ok("python", platform.python_version())


def _gnupg() -> Iterator[Finding]:
    for name in ("gpg", "gpgv"):
        if shutil.which(name) is None:
            yield fault(name, "not found", f"Install it (Debian: apt-get install {name}).")
            continue
        done = process.run([name, "--version"], timeout=10, vouched=True)
        version = done.stdout.decode("utf-8", "replace").split("\n", 1)[0].rsplit(" ", 1)[-1]
        numbers = tuple(int(part) for part in version.split(".")[:2] if part.isdigit())
        if numbers >= _OLDEST_GNUPG:
            yield ok(name, version)
        else:
            yield fault(name, f"{version!r} is too old", "Install GnuPG 2.2 or newer.")


def _disk() -> Iterator[Finding]:
    directory = Path(settings.DATA_DIR)
    remedy = f"Make room where {directory} lies, or move DATA_DIR."
    if not os.access(directory, os.W_OK):
        yield fault("disk", f"{directory} cannot be written", "Give this user the folder.")
        return
    free = shutil.disk_usage(directory).free
    text = f"{free // (1 << 20)} MB free at {directory}"
    if free < _NO_DISK:
        yield fault("disk", text, remedy)
    elif free < _LITTLE_DISK:
        yield warning("disk", text, remedy)
    else:
        yield ok("disk", text)


def _clock() -> Iterator[Finding]:
    """The record is never ahead of a clock that is right."""
    now = timezone.now()
    newest = Event.objects.order_by("-seq").values_list("at", flat=True).first()
    if newest is not None and newest > now + timedelta(minutes=1):
        yield fault(
            "clock",
            f"it is {now.isoformat()} here, but the last event was at {newest.isoformat()}",
            "Set the clock (NTP): signature ages and leases depend on it.",
        )
    else:
        yield ok("clock", now.isoformat(timespec="seconds"))


LOOKS: tuple[Look, ...] = (
    ("python", _python),
    ("gnupg", _gnupg),
    ("disk", _disk),
    ("clock", _clock),
)
