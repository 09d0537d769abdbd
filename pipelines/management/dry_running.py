"""`pipeline dry-run FILE_OR_ID`: the options of `explain`, and the shape of the answer."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

from guards.exceptions import InvalidInput, Refused
from guards.fronts import judging
from guards.fronts.commands import JsonCommand, sentence, wrong_use
from guards.types import Rule
from mail import selectors as mail
from mail.models import Message
from mail.types import Provider
from pipelines import reasons
from pipelines.services import dry_run
from pipelines.types import DryRun

HELP = (
    "Say what would become of a message: the plan, what each command would run, and every check."
    " Runs nothing and stores nothing. With --contact or --pin only those apply."
)

#: Options that say what a stored message already knows.
_OF_FILES = ("contact", "pin", "identity", "loopback")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `explain`; a number that is no file is a stored message."""
    judging.add_arguments(parser, paths="a message file, or the number of a stored message")


def perform(command: JsonCommand, options: dict[str, Any], *, admitted: bool = False) -> None:
    """Emit one answer a message; exit 2 for what is neither a readable file nor a message.

    `admitted` asks what would be planned whatever the decision about the message is now.
    """
    now = judging.moment(options["now"])
    named = judging.named_paths(options)
    if not named:
        raise wrong_use("name a message file, or the number of a stored message")
    for run in list(_runs(named, now, options, admitted)):
        command.emit(dry_run.as_document(run), in_words(run))


def _runs(
    named: list[str], now: datetime, options: dict[str, Any], admitted: bool
) -> Iterator[DryRun]:
    paths = [path for path in named if not _is_number(path)]
    numbers = [path for path in named if _is_number(path)]
    if numbers and any(options[name] for name in _OF_FILES):
        raise wrong_use("a stored message is judged as it was received: only --now goes with it")
    files = judging.readable_files(paths)
    setting = _setting(now, options) if files else None
    for file in files:
        if setting is not None:
            judged = mail.judged_file(judging.read(file), setting=setting)
            yield dry_run.of_file(judged, admitted=admitted)
    for number in numbers:
        message = Message.objects.select_related("account__identity").filter(pk=number).first()
        if message is None:
            raise wrong_use(f"there is no file and no message {number}")
        if message.pk not in mail.shown([message]):
            raise Refused(
                f"the sender of message {number} may not be read here: reveal it on its page first",
                rule=Rule.NO_PERMISSION,
            )
        moment = now if options["now"] else None
        yield dry_run.of_message(message, now=moment, admitted=admitted)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 19 and not Path(text).exists()


def _setting(now: datetime, options: dict[str, Any]) -> Any:
    try:
        return mail.file_setting(
            contacts=options["contact"],
            pins=options["pin"],
            identity=options["identity"],
            provider=Provider(options["provider"]),
            loopback=options["loopback"],
            now=now,
        )
    except InvalidInput as refusal:
        raise wrong_use(sentence(refusal)) from refusal


def in_words(run: DryRun) -> str:
    """The same for people."""
    lines = [f"planner    {run.planner}"]
    for call in run.calls:
        lines.append(f"{call.command:<10} {call.runner}, signature {call.signature}")
        vectors = call.argv or []
        for vector in vectors if vectors and isinstance(vectors[0], list) else [vectors]:
            lines += [f"           {json.dumps(vector, ensure_ascii=False)}"] if vector else []
    if run.refused is not None:
        lines.append(f"refused    {run.refused.rule}: {run.refused.detail}")
        lines += [f"           {line}" for line in reasons.REASONS.get(run.refused.rule, ())]
    elif run.planner == "none":
        lines.append("           No rule fits its text: its sender would get the fixed text.")
    return "\n".join(lines)
