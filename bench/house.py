"""A house for a benchmark: directory, database, owner's key, commands, pipelines that are due.

Django's settings hold for a whole process, so a benchmark that looks at two databases runs itself
once for each: `open_house` comes first in such a process, before anything of Django.
"""

from __future__ import annotations

import io
import json
import os
from pathlib import Path
from typing import Any


def open_house(directory: Path, *, database: str = "", **settings: str) -> Any:
    """Settings, migrated tables, the installation's keys; the owner who signs commands."""
    os.environ |= {
        "DATA_DIR": str(directory),
        "DATABASE_URL": database or f"sqlite:///{directory / 'bench.sqlite3'}",
        "SECRET_KEY": "bench-only-" + "0" * 50,
        "DJANGO_SETTINGS_MODULE": "config.settings",
        "LOG_LEVEL": "ERROR",
        "REDIS_URL": "",
        "OWNER_HANDLE": "",
        "ALLOWED_BINARIES": "/usr/bin,/bin",
        **settings,
    }
    from tests import keys

    owner = keys.Keys().owner
    key_file = directory / "owner.pgp"
    key_file.write_bytes(owner.public)
    os.environ |= {"OWNER_FINGERPRINT": owner.fingerprint, "OWNER_KEY_FILE": str(key_file)}

    import django

    django.setup()
    from django.core.management import call_command

    call_command("migrate", verbosity=0, skip_checks=True)
    call_command("prepare", verbosity=0, stdout=io.StringIO())
    from tests.pipelines.factories import AccountFactory

    AccountFactory()
    return owner


def install(owner: Any, name: str, **fields: Any) -> None:
    """Sign and load one command; a program without arguments that needs no reply, unless told."""
    from guards import documents
    from guards.types import Asker
    from pipelines.services import commands
    from tests.keys import sign_detached

    usual = {"schema": "command/1", "name": name, "serial": 1, "runner": "cli", "reply": False}
    document = {**usual, **fields}
    path = Path(os.environ["DATA_DIR"]) / f"{name}.json"
    signature = sign_detached(owner, documents.canonical(document)).decode()
    path.write_text(json.dumps({**document, "signature": signature}))
    outcome = commands.load_file(path, by=Asker("operator", "bench"))
    assert outcome.outcome == "loaded", outcome


def due_pipeline(names: list[str], **fields: Any) -> Any:
    """A planned pipeline of these commands, and its reply."""
    from mail.models import Account, Part
    from pipelines.models import Command
    from tests.pipelines.factories import MessageFactory, PipelineFactory, StageFactory

    message = MessageFactory(account=Account.objects.first(), execution="taken")
    # What the first pass puts on record of a message of plain text.
    Part.objects.create(message=message, path="1", type="text/plain", size=9, is_text=True)
    pipeline = PipelineFactory(message=message, **fields)
    for position, name in enumerate(names, start=1):
        command = Command.objects.get(name=name)
        StageFactory(
            pipeline=pipeline,
            position=position,
            command=name,
            digest=command.digest,
            runner=command.runner,
            mode=command.document.get("mode", "process"),
        )
    StageFactory(pipeline=pipeline, position=len(names) + 1)
    return pipeline
