"""What the sign-off desk refuses. A docstring is the sentence that people read."""

from __future__ import annotations

from guards.exceptions import AlreadyDecided, Conflict, CountersignError, Refused


class ApprovalExpired(Conflict):
    """The approval's time is over: open the draft for review again."""

    code = "approval-expired"


class ApprovalSuperseded(Conflict):
    """Something in the subject changed since it was approved; `field` names it."""

    code = "approval-superseded"


class EffectAlreadyExists(AlreadyDecided):
    """This approval has already become its one effect."""

    code = "effect-exists"


class EffectOutstanding(Conflict):
    """Another act about the same source is still outstanding, or its outcome is unknown."""

    code = "effect-outstanding"


class ContactAlreadyMarked(AlreadyDecided):
    """This effect has had its one contact."""

    code = "contact-already-marked"


class OwnAct(Refused):
    """An agent never approves its own act."""

    code = "own-act"


class UnknownKind(CountersignError):
    """No act of this kind is registered."""

    code = "unknown-kind"


class NotAPerson(Refused):
    """A yes or a no comes from an operator's session or from a person's own token."""

    code = "not-a-person"


class ArtifactUnreadable(CountersignError):
    """Encrypted bytes cannot be read back: wrong key, or they were changed."""

    code = "artifact-unreadable"


class KeyStillNeeded(Conflict):
    """An older artifact key is still needed: it is kept."""

    code = "key-still-needed"


class DigestMismatch(Conflict):
    """What was read is not what waits here: load the page again."""

    code = "digest-mismatch"


class ContactRefused(Conflict):
    """A contact was not made: what allows it is over, was changed, or is used up."""

    code = "contact-refused"

    def __init__(self, reason: str, *, field: str = "") -> None:
        spoken = reason.replace("_", " ")
        super().__init__(f"{spoken}: nothing was contacted", field=field or None, rule=reason)
        self.reason = reason


class Blocked(Conflict):
    """The last look before the contact found something else than was approved."""

    code = "blocked"

    def __init__(self, reason: str, *, field: str = "") -> None:
        spoken = reason.replace("_", " ")
        super().__init__(f"{spoken}: nothing was sent", field=field or None, rule=reason)
        self.reason = reason
