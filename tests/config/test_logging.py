"""Log lines: what strangers write into them is shown, and obeyed by no terminal."""

from __future__ import annotations

import io
import json
import logging
import logging.config
from collections.abc import Iterator

import pytest

from config.logging import configure

HOSTILE = "\x1b[2J\x1b[31mPWNED\n2026-11-30T20:00:00Z [info] approved by olga\r\u202etxt\x9b1m"


def logged(form: str) -> Iterator[str]:
    """One line with a hostile text in its event, in a value, and in an exception."""
    chosen = configure(form, "INFO")
    formatter = chosen["formatters"]["structured"]
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(formatter["()"](**{k: v for k, v in formatter.items() if k != "()"}))
    logger = logging.getLogger("a-stranger")
    logger.propagate = False
    logger.addHandler(handler)
    try:
        try:
            raise ValueError(HOSTILE)
        except ValueError:
            logger.exception("the server said %s", HOSTILE)
    finally:
        logger.removeHandler(handler)
    yield from stream.getvalue().splitlines(keepends=True)


@pytest.mark.parametrize("character", ["\x1b", "\r", "\u202e", "\x9b"])
def test_no_line_for_people_holds_what_a_terminal_obeys(character: str) -> None:
    assert not any(character in line for line in logged("console"))


def test_a_text_of_a_stranger_makes_no_line_of_its_own() -> None:
    first = next(logged("console"))
    assert "PWNED" in first
    assert "approved by olga" in first


def test_a_traceback_keeps_its_lines() -> None:
    lines = list(logged("console"))
    assert any(line.startswith("Traceback") for line in lines)
    assert len(lines) > 3


def test_json_is_one_line_whatever_it_says() -> None:
    (line,) = logged("json")
    assert json.loads(line)["event"].endswith("\x9b1m")
