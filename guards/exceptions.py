"""Everything that guards can refuse. A docstring is the sentence that people read.

`code` is the stable word of API answers and logs. `permanent` says that asking again with the same
input gives the same answer.
"""

from __future__ import annotations


class CountersignError(Exception):
    """Something was refused."""

    code = "refused"
    permanent = True
    status = 400
    rule: str | None = None

    def __init__(
        self, detail: str = "", *, field: str | None = None, rule: str | None = None
    ) -> None:
        self.detail = detail or (type(self).__doc__ or "").strip()
        self.field = field
        if rule is not None:
            self.rule = rule
        super().__init__(self.detail)


class Refused(CountersignError):
    """This is not permitted."""

    code = "refused"
    status = 403


class ForeignHost(Refused):
    """This installation does not answer to that host name: it is not in ALLOWED_HOSTS."""

    code = "foreign-host"
    status = 421


class InvalidInput(CountersignError):
    """A value is not acceptable."""

    code = "invalid-input"
    status = 422


class NotFound(CountersignError):
    """There is no such thing here."""

    code = "not-found"
    status = 404


class NotAuthenticated(CountersignError):
    """No valid token or session came with the request."""

    code = "not-authenticated"
    status = 401


class Conflict(CountersignError):
    """The thing has moved on since it was looked at."""

    code = "conflict"
    status = 409


class KeyReused(Conflict):
    """This Idempotency-Key was used for another call: take a new one."""

    code = "key-reused"


class AlreadyDecided(Conflict):
    """This was decided before."""

    code = "already-decided"


class SecretUnavailable(CountersignError):
    """A secret reference does not resolve."""

    code = "secret-unavailable"
    permanent = False


class OpenPGPUnavailable(CountersignError):
    """GnuPG is missing, hung or failed."""

    code = "openpgp-unavailable"
    permanent = False


class SigningRefused(CountersignError):
    """The key must not sign: it has no expiry date, or it is past it (DES-020)."""

    code = "signing-refused"


class EncryptionRefused(CountersignError):
    """Nothing may be encrypted to this key, so nothing leaves; `reason` says why.

    Reasons are `guards.openpgp.EncryptionRefusal`.
    """

    code = "encryption-refused"

    def __init__(self, reason: str, detail: str = "") -> None:
        self.reason = str(reason)
        super().__init__(detail or f"nothing may be encrypted: {reason}", rule=self.reason)


class DocumentNotSigned(CountersignError):
    """A signed document does not verify; `reason` says how (DES-034).

    Reasons: `missing`, `invalid`, `wrong-key`, `expired-key`.
    """

    code = "document-not-signed"

    def __init__(self, reason: str, detail: str = "") -> None:
        self.reason = reason
        super().__init__(detail or f"the signature is {reason}", rule=reason)


class DocumentCheckFailed(CountersignError):
    """The signature of a document could not be checked (operational, not a verdict)."""

    code = "document-check-failed"
    permanent = False


class NoOwnerKey(CountersignError):
    """No owner key is configured, so no command runs."""

    code = "no-owner-key"


class OwnerKeyInvalid(CountersignError):
    """The owner key is configured, but cannot be used."""

    code = "owner-key-invalid"


class BinaryNotAllowed(CountersignError):
    """The program is outside the allow-list."""

    code = "binary-not-allowed"


class ProcessFailed(CountersignError):
    """A child process could not be run to its end."""

    code = "process-failed"
    permanent = False


class TaskRefused(CountersignError):
    """A queue row names a function that is not a registered task."""

    code = "task-refused"
