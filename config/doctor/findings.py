"""What the doctor finds."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import StrEnum


class State(StrEnum):
    """`fault`: the main job cannot be done. `warning`: it can, but somebody should look."""

    OK = "ok"
    WARNING = "warning"
    FAULT = "fault"


@dataclass(frozen=True, slots=True)
class Finding:
    """One look: what was looked at, how it is, and what to do where it is not well."""

    name: str
    state: State
    detail: str
    remedy: str = ""

    def as_json(self) -> dict[str, str]:
        """Its object in `doctor --json`."""
        return {key: str(value) for key, value in asdict(self).items()}


def ok(name: str, detail: str) -> Finding:
    """All is well."""
    return Finding(name, State.OK, detail)


def warning(name: str, detail: str, remedy: str) -> Finding:
    """The main job can be done, but."""
    return Finding(name, State.WARNING, detail, remedy)


def fault(name: str, detail: str, remedy: str) -> Finding:
    """The main job cannot be done."""
    return Finding(name, State.FAULT, detail, remedy)
