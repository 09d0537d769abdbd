"""Work in a fork of the process that runs the tests: Django is loaded there already."""

from __future__ import annotations

import importlib
import json
import os
import select
import signal
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from typing import Any

from django.db.backends.base.base import BaseDatabaseWrapper

#: Kept before pytest-django forbids to connect outside the tests that ask for a database.
_CONNECT = BaseDatabaseWrapper.ensure_connection

#: What a fork shares with its parent, and so neither uses nor closes.
_of_our_parent: list[BaseDatabaseWrapper] = []


def answered_by(work: Callable[[], Any], *, seconds: float) -> Any:
    """What `work` answers in a forked process, as JSON carries it; its failure is one here."""
    reading, writing = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid == 0:
        os.close(reading)
        _answer(writing, work)
    os.close(writing)
    said = _read(reading, pid, seconds)
    os.waitpid(pid, 0)
    found = json.loads(said) if said else {"failure": "it ended without a word"}
    if "failure" in found:
        raise AssertionError(found["failure"])
    return found["answer"]


def _read(reading: int, pid: int, seconds: float) -> bytes:
    """All that it says until it ends; past its time it is killed."""
    said, until = b"", time.monotonic() + seconds
    with os.fdopen(reading, "rb", buffering=0) as file:
        while True:
            if not select.select([file], [], [], max(0.0, until - time.monotonic()))[0]:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
                raise AssertionError(f"a fork did not end within {seconds:.0f} seconds")
            piece = file.read(1 << 16)
            if not piece:
                return said
            said += piece


def run(env: Mapping[str, str], code: str, values: Mapping[str, Any]) -> Any:
    """Run code with these settings; `values` are its names, `answer` is what it gives back.

    Only for a process that ends afterwards: nothing of its own settings is left to it.
    """
    _take_settings(env)
    names = {**json.loads(json.dumps(values)), "answer": None}
    exec(compile(code, "<inside>", "exec"), names)  # noqa: S102  (a test's own)
    return names["answer"]


def _take_settings(env: Mapping[str, str]) -> None:
    from django.conf import Settings, settings
    from django.contrib.contenttypes.models import ContentType
    from django.db import connections
    from django_q.conf import Conf

    os.environ.clear()
    os.environ.update(env)
    importlib.reload(sys.modules["config.settings"])
    settings._wrapped = Settings("config.settings")
    _of_our_parent.extend(connections.all(initialized_only=True))
    for alias in [connection.alias for connection in _of_our_parent]:
        del connections[alias]
    connections._settings = None
    connections.__dict__.pop("settings", None)
    BaseDatabaseWrapper.ensure_connection = _CONNECT  # type: ignore[method-assign]
    ContentType.objects.clear_cache()
    Conf.SECRET_KEY = settings.SECRET_KEY


def _answer(writing: int, work: Callable[[], Any]) -> None:
    code = 1
    try:
        try:
            said = {"answer": work()}
        except BaseException:  # noqa: BLE001  (the parent has to know)
            said = {"failure": traceback.format_exc()}
        with os.fdopen(writing, "w") as file:
            json.dump(said, file, default=str)
        code = 0
    finally:
        os._exit(code)
