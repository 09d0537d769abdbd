"""`command new|canonical|sign|verify|export`: a command from its first line to its signed file.

The owner's secret key need not be on this machine: `canonical` prints the exact bytes to sign
elsewhere, `sign --signature FILE` takes the detached signature back. A command of the console has
its draft signed, where there is one.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from django.core.management.base import CommandParser

from guards import documents, openpgp
from guards.exceptions import CountersignError, DocumentNotSigned, InvalidInput, NotFound
from guards.fronts.commands import Exit, JsonCommand, wrong_use
from guards.types import Asker
from pipelines import models, reading, specification, writing
from pipelines.services import commands, drafts, planning


@dataclass(frozen=True, slots=True)
class _Source:
    """A command as a file or as a row; `path` is None for a row."""

    name: str
    document: Mapping[str, Any]
    signature: str
    path: Path | None


class Command(JsonCommand):
    """Five verbs over one command, which is named, or given as a file."""

    help = "Begin a command, print its canonical bytes, sign it, verify it, or write its file."

    def add_arguments(self, parser: CommandParser) -> None:
        """VERB, NAME or FILE, and what signing needs."""
        super().add_arguments(parser)
        parser.add_argument("verb", choices=list(self._verbs()))
        parser.add_argument("command", metavar="NAME_OR_FILE")
        parser.add_argument(
            "--home", type=Path, help="GnuPG home that holds the owner's secret key"
        )
        parser.add_argument("--key", default="", help="fingerprint of the owner's key in that home")
        parser.add_argument("--passphrase", default="", help="secret reference of its passphrase")
        parser.add_argument("--signature", type=Path, help="detached signature made elsewhere")
        parser.add_argument("--runner", choices=["cli", "claude"], default="cli", help="of new")
        parser.add_argument(
            "--output", type=Path, metavar="FILE", help="new, export: write here, over nothing"
        )

    def perform(self, **options: Any) -> int:
        """Do what the verb says."""
        return self._verbs()[options["verb"]](options)

    def _verbs(self) -> dict[str, Callable[[Mapping[str, Any]], int]]:
        return {
            "new": self._new,
            "canonical": lambda options: self._canonical(_source(options["command"])),
            "sign": lambda options: self._sign(_source(options["command"]), options),
            "verify": lambda options: self._verify(_source(options["command"], signed=True)),
            "export": self._export,
        }

    def _new(self, options: Mapping[str, Any]) -> int:
        name = options["command"]
        if name in specification.BUILT_IN:
            raise wrong_use(f"{name!r} is built in: give the command another name")
        if not planning.is_name(name):
            raise wrong_use(f"{name!r} is no name for a command: small letters, digits, - and _")
        row = models.Command.objects.filter(name=name).first()
        text = writing.command_template(
            name, runner=options["runner"], serial=drafts.suggested_serial(row)
        )
        return self._write(name, text, options["output"])

    def _export(self, options: Mapping[str, Any]) -> int:
        row = models.Command.objects.filter(name=options["command"]).first()
        if row is None:
            raise NotFound(f"there is no command {options['command']}", field="command")
        documents.canonical(row.document)
        text = writing.signed_yaml(row.document, row.signature)
        return self._write(row.name, text, options["output"])

    def _write(self, name: str, text: str, output: Path | None) -> int:
        """To a file that is not there yet, or to standard output."""
        if output is None:
            self.emit({"name": name, "file": None, "text": text}, text.rstrip("\n"), exact=True)
            return Exit.AS_ASKED
        try:
            with output.open("x", encoding="utf-8") as file:
                file.write(text)
        except OSError as error:
            raise wrong_use(f"{output} cannot be written: {error.strerror}") from error
        self.emit({"name": name, "file": str(output), "text": text}, f"wrote {output}")
        return Exit.AS_ASKED

    def _canonical(self, source: _Source) -> int:
        content = documents.canonical(source.document)
        if self.as_json:
            digest = documents.digest(source.document)
            self.emit({"name": source.name, "digest": digest, "canonical": content.decode()})
        else:
            self.stdout.flush()
            sys.stdout.buffer.write(content)
            sys.stdout.buffer.flush()
        return Exit.AS_ASKED

    def _sign(self, source: _Source, options: Mapping[str, Any]) -> int:
        specification.read(source.document)
        signature = _signature(source, options)
        if source.path is None:
            commands.accept_signature(
                name=source.name, signature=signature, by=Asker("operator", "shell")
            )
        else:
            source.path.write_text(_signed_text(source, source.path, signature), encoding="utf-8")
        digest = documents.digest(source.document)
        self.emit({"name": source.name, "signed": True, "digest": digest}, f"signed {source.name}")
        return Exit.AS_ASKED

    def _verify(self, source: _Source) -> int:
        answer: dict[str, object] = {
            "name": source.name,
            "digest": documents.digest(source.document),
            "ok": True,
            "reason": None,
            "detail": "",
        }
        try:
            documents.verify_document(source.document, source.signature)
            commands.check_runner(specification.read(source.document))
        except CountersignError as error:
            reason = error.reason if isinstance(error, DocumentNotSigned) else error.code
            answer |= {"ok": False, "reason": reason, "detail": error.detail}
        said = "holds" if answer["ok"] else f"does not hold: {answer['detail']}"
        self.emit(answer, f"{source.name}: the signature {said}")
        return Exit.AS_ASKED if answer["ok"] else Exit.FAILED


def _signed_text(source: _Source, path: Path, signature: str) -> str:
    """The file with its signature: with its comments, where it still says the same with them."""
    json_form = path.suffix == ".json"
    text = reading.with_signature(path.read_text(encoding="utf-8"), signature, json_form=json_form)
    try:
        again = reading.split_signature(reading.read_text(text.encode(), json_form=json_form))
    except CountersignError:
        again = ({}, "")
    kept = again == (source.document, signature.strip())
    return text if kept else writing.signed_yaml(source.document, signature)


def _source(named: str, *, signed: bool = False) -> _Source:
    """What is to be signed under that name or in that file; with `signed`, what has been."""
    path = Path(named)
    if path.suffix in reading.SUFFIXES:
        return _file(path)
    row = models.Command.objects.filter(name=named).first()
    if row is None:
        raise NotFound(f"there is no command {named} (a file ends in .yaml, .yml or .json)")
    document = row.document if signed else commands.document_to_sign(row)
    return _Source(row.name, document, row.signature, None)


def _file(path: Path) -> _Source:
    try:
        document, signature = reading.split_signature(reading.read_file(path))
    except OSError as error:
        raise wrong_use(f"{path} cannot be read: {error.strerror}") from error
    return _Source(str(document.get("name", path.stem)), document, signature, path)


def _signature(source: _Source, options: Mapping[str, Any]) -> str:
    if options["signature"] is not None:
        path: Path = options["signature"]
        try:
            signature = path.read_text(encoding="ascii")
        except OSError as error:
            raise wrong_use(f"{path} cannot be read: {error.strerror}") from error
        except UnicodeDecodeError as error:
            raise InvalidInput("the signature is not ASCII-armoured", field="signature") from error
        documents.verify_document(source.document, signature)
        return signature
    if options["home"] is None or not options["key"]:
        raise wrong_use("sign needs --home and --key, or --signature with one made elsewhere")
    made = openpgp.sign(
        home=options["home"],
        fingerprint=options["key"],
        passphrase_ref=options["passphrase"],
        payload=documents.canonical(source.document),
    )
    return made.armored.decode()
