"""A command answers on standard output, speaks on standard error, and exits by its table."""

from __future__ import annotations

import json
from io import StringIO
from typing import Any

import pytest
from django.core.management.base import CommandError, CommandParser

from guards.exceptions import Refused
from guards.fronts.commands import Exit, JsonCommand, prerequisite_missing, wrong_use

pytestmark = pytest.mark.one_database

STEERING = "a\x1b[2J\x9b31m\u202eb\tZoë\r"


class Verb(JsonCommand):
    """Answers, refuses or fails, as it is told."""

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("--as-told", default="fine")

    def perform(self, **options: Any) -> int:
        self.remark("looking")
        match options["as_told"]:
            case "refuse":
                raise Refused("not you", rule="operator-only", field="by")
            case "misuse":
                raise wrong_use("no such word")
            case "lack":
                raise prerequisite_missing("gpg is not installed")
            case "fail":
                self.emit({"ok": False}, "It failed.")
                return Exit.FAILED
            case "steer":
                self.emit({"text": STEERING}, STEERING)
                self.emit({"text": STEERING}, STEERING, exact=True)
                raise Refused(STEERING)
        self.emit({"ok": True, "name": "Zoë"}, "Fine.")
        return Exit.AS_ASKED


def call(*arguments: str) -> tuple[int, str, str]:
    out, err = StringIO(), StringIO()
    verb = Verb(stdout=out, stderr=err, no_color=True)
    options = vars(verb.create_parser("manage.py", "verb").parse_args(list(arguments)))
    code = 0
    try:
        verb.execute(**options | {"skip_checks": True, "stdout": out, "stderr": err})
    except SystemExit as end:
        code = int(str(end.code))
    except CommandError as error:
        code = error.returncode
        err.write(str(error))
    return code, out.getvalue(), err.getvalue()


def test_json_is_all_that_stands_on_standard_output() -> None:
    code, out, err = call("--json")
    assert code == 0
    assert json.loads(out) == {"ok": True, "name": "Zoë"}
    assert out.count("\n") == 1
    assert "looking" in err


def test_nothing_that_was_quoted_steers_a_terminal() -> None:
    written = "a\\u001b[2J\\u009b31m\\u202eb\tZoë\\u000d"
    _, out, err = call("--as-told", "steer")
    assert out == f"{written}\n{STEERING}\n"
    assert err.endswith(written)
    _, out, _ = call("--as-told", "steer", "--json")
    assert "\x9b" not in out and "\u202e" not in out
    assert [json.loads(line) for line in out.splitlines()] == [{"text": STEERING}] * 2


def test_people_get_a_sentence() -> None:
    assert call()[1] == "Fine.\n"


@pytest.mark.parametrize(
    ("told", "code", "said"),
    [
        ("refuse", 1, "not you (rule operator-only, by)"),
        ("misuse", 2, "no such word"),
        ("lack", 3, "gpg is not installed"),
    ],
)
def test_a_refusal_a_misuse_and_a_lack_have_their_exit_codes(
    told: str, code: int, said: str
) -> None:
    got, out, err = call("--json", "--as-told", told)
    assert (got, out) == (code, "")
    assert said in err


def test_an_outcome_that_is_not_as_asked_still_answers() -> None:
    code, out, _ = call("--json", "--as-told", "fail")
    assert code == 1
    assert json.loads(out) == {"ok": False}
