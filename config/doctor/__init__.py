"""The doctor: looks at what the installation needs, and says what to do about each fault.

`machine` looks at this machine, `house` at the database, keys, secrets and accounts, `workers` at
what commands of the `claude` runner need. A look returns findings and never raises.
"""

from __future__ import annotations

from collections.abc import Iterable

from config.doctor.findings import Finding, State
from config.doctor.house import LOOKS as _HOUSE
from config.doctor.machine import LOOKS as _MACHINE
from config.doctor.workers import LOOKS as _WORKERS

__all__ = ["Finding", "State", "examine"]


def examine() -> list[Finding]:
    """Everything, in the order in which one thing rests on another."""
    findings: list[Finding] = []
    for name, look in (*_MACHINE, *_HOUSE, *_WORKERS):
        try:
            found: Iterable[Finding] = list(look())
        except Exception as problem:  # noqa: BLE001 - a look that fails is itself a finding
            found = [
                Finding(
                    name,
                    State.FAULT,
                    f"could not be looked at: {type(problem).__name__}: {problem}",
                    "Repair what is named above first, then ask again.",
                )
            ]
        findings.extend(found)
    return findings
