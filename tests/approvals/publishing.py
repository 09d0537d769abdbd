"""An act of the recipe in CONTRIBUTING.md: publish an identity's card in somebody's directory."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from approvals.registry import ActDefaults
from approvals.types import Act, ContactOutcome, ContactResult, Frozen, Grant
from guards.models import Identity
from guards.types import Subject


class CardKind(ActDefaults):
    """One file, written once. It is there as approved, was certainly not written, or unknown."""

    name = "tests.card"
    label = "Published card"
    outcomes = frozenset(
        {
            ContactOutcome.ACCEPTED,
            ContactOutcome.VERIFIED,
            ContactOutcome.FAILED,
            ContactOutcome.UNKNOWN,
        }
    )

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def freeze(self, subject: Subject, grant: Grant) -> Frozen:
        """The exact bytes, what the digest binds beside them, and what a person reads."""
        identity = Identity.objects.get(pk=subject.id)
        facts = {"file": f"{identity.handle}.txt", "name": identity.name}
        return Frozen(f"{identity.name}\n".encode(), facts, {"to": facts["file"], **facts})

    def recheck_in_writer(self, subject: Subject, facts: Mapping[str, object]) -> str | None:
        """Database only, as the yes is used and again before the mark: which field has drifted."""
        is_same = Identity.objects.filter(pk=subject.id, name=facts["name"]).exists()
        return None if is_same else "name"

    def contact(self, act: Act) -> ContactResult:
        """The one contact, after the mark. What may have begun is unknown; nothing is repeated."""
        try:
            with (self._directory / str(act.facts["file"])).open("xb") as file:
                file.write(act.payload)
        except (FileExistsError, FileNotFoundError):
            return ContactResult(ContactOutcome.FAILED, "not-begun")
        except OSError as error:
            return ContactResult(ContactOutcome.UNKNOWN, "broke-off", {"error": str(error)})
        return ContactResult(ContactOutcome.ACCEPTED, "written")

    def readback(self, act: Act) -> ContactResult | None:
        """An independent look in the same job; None proves nothing, and `accepted` stays."""
        found = (self._directory / str(act.facts["file"])).read_bytes()
        exact = found == act.payload
        return ContactResult(ContactOutcome.VERIFIED, "read-back") if exact else None
