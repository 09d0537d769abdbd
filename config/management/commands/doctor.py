"""`manage.py doctor`: can this installation do its main job, and if not, what to do."""

from __future__ import annotations

from typing import Any

from config import doctor
from guards.fronts.commands import Exit, JsonCommand

_MARKS = {doctor.State.OK: "✓", doctor.State.WARNING: "!", doctor.State.FAULT: "✗"}


class Command(JsonCommand):
    """Look at machine, database, queue, keys, secrets and accounts.

    Exit codes: 0 the main job can be done (warnings allowed), 1 it cannot.
    """

    help = "Say what is wrong and what to do. Example: manage.py doctor --json"
    requires_system_checks: list[str] = []

    def perform(self, **options: Any) -> int:
        """Look at everything and print it."""
        findings = doctor.examine()
        is_well = all(finding.state != doctor.State.FAULT for finding in findings)
        document = {
            "schema": "doctor/1",
            "ok": is_well,
            "findings": [finding.as_json() for finding in findings],
        }
        self.emit(document, "\n".join(map(_line, findings)))
        return Exit.AS_ASKED if is_well else Exit.FAILED


def _line(finding: doctor.Finding) -> str:
    text = f"{_MARKS[finding.state]} {finding.name:<28} {finding.detail}"
    return f"{text}\n  → {finding.remedy}" if finding.remedy else text
