"""Plain values that cross guards' border. No Django here.

Every name of a level, reason, action, verdict or rule is a stable string: it is stored, shown, and
documented, and it stands in exactly one list, which is in this module.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

#: The tag of system checks that look at how this house is set up: every program runs them first.
HOUSE_CHECKS = "house"


class TrustLevel(StrEnum):
    """How sure we are that a message is from whom it says (DES-001)."""

    TRUSTED = "trusted"
    VERIFIED = "verified"
    UNVERIFIED = "unverified"
    UNTRUSTED = "untrusted"


#: The levels on which a message may start work (DES-012).
LEVELS_THAT_EXECUTE = frozenset({TrustLevel.TRUSTED, TrustLevel.VERIFIED})


class TrustReason(StrEnum):
    """Why a message has its trust level: the closed list of guards' table."""

    PINNED_KEY = "pinned-key"
    PROTON_INTERNAL = "proton-internal"
    UNSIGNED = "unsigned"
    SIGNATURE_NOT_TOP_LEVEL = "signature-not-top-level"
    MALFORMED_SIGNED = "malformed-signed"
    UNPINNED_KEY = "unpinned-key"
    NO_IDENTITY = "no-identity"
    KEY_OF_SOMEONE_ELSE = "key-of-someone-else"
    BAD_SIGNATURE = "bad-signature"
    EXPIRED_KEY = "expired-key"
    REVOKED_KEY = "revoked-key"
    EXPIRED_SIGNATURE = "expired-signature"
    WEAK_HASH = "weak-hash"
    FUTURE_SIGNATURE = "future-signature"
    SEVERAL_SIGNATURES = "several-signatures"
    NO_SIGNATURE_DATA = "no-signature-data"
    ENCRYPTED = "encrypted"
    VERIFIER_UNAVAILABLE = "verifier-unavailable"


class Action(StrEnum):
    """What somebody asks to do, as `Decision.action` stores it."""

    SURFACE = "surface"
    READ = "read"
    DOWNLOAD = "download"
    SEND = "send"
    REPLY = "reply"
    EXECUTE = "execute"
    DIAGNOSE = "diagnose"
    MOVE = "move"
    REVEAL = "reveal"
    RELEASE = "release"
    ANSWER = "answer"


class Verdict(StrEnum):
    """The answer to an action."""

    ALLOW = "allow"
    DENY = "deny"
    HOLD = "hold"


class Rule(StrEnum):
    """The rule that decided: the first that applies, in this order."""

    NO_IDENTITY = "no-identity"
    TRUST_TOO_LOW = "trust-too-low"
    LOOP = "loop"
    NO_TEXT = "no-text"
    RECIPIENT_NOT_BOUND = "recipient-not-bound"
    SIGNATURE_TOO_OLD = "signature-too-old"
    REPLAYED = "replayed"
    FIRST_PASS = "first-pass"  # noqa: S105
    EXECUTE_PERMITTED = "execute-permitted"
    READ_PERMITTED = "read-permitted"
    NO_PERMISSION = "no-permission"
    NO_WRITE = "no-write"
    WRITE_PERMITTED = "write-permitted"
    OPERATOR_OVERRIDE = "operator-override"
    OWN_MAILBOX = "own-mailbox"
    OWNER_NOTICE = "owner-notice"
    OWNER_ANSWER = "owner-answer"


class Refusal(StrEnum):
    """The rules of refusals that answer no question about a subject, as `rule` of an error."""

    OPERATOR_ONLY = "operator-only"
    SYSTEM_ONLY = "system-only"
    PATTERN_READ_ONLY = "pattern-read-only"
    PATTERN_TOO_WIDE = "pattern-too-wide"
    PATTERN_HOLDS_NO_KEY = "pattern-holds-no-key"
    PATTERN_HOLDS_NO_ALIAS = "pattern-holds-no-alias"
    ADDRESS_TAKEN = "address-taken"
    KEY_TAKEN = "key-taken"
    OTHER_IDENTITY = "other-identity"
    OTHER_HOLDER = "other-holder"
    NOT_A_PERSON = "not-a-person"
    TOKEN_MISSING = "token-missing"  # noqa: S105
    TOKEN_UNKNOWN = "token-unknown"  # noqa: S105
    TOKEN_REVOKED = "token-revoked"  # noqa: S105
    TOKEN_EXPIRED = "token-expired"  # noqa: S105
    SCOPE_MISSING = "scope-missing"
    FOREIGN_HOST = "foreign-host"
    FOREIGN_ORIGIN = "foreign-origin"


class SettingName(StrEnum):
    """The values of an installation that commands change at run time."""

    #: Signatures made before this instant start nothing: `restore` sets it (invariant 12).
    EXECUTE_NOT_BEFORE = "execute_not_before"


class ProviderHeaders(StrEnum):
    """What became of a provider's internal headers."""

    ABSENT = "absent"
    IGNORED = "ignored"
    HONOURED = "honoured"


class SignedStructure(StrEnum):
    """How a message carries OpenPGP, judged on its raw bytes only."""

    NONE = "none"
    SIGNED = "signed"
    NOT_TOP_LEVEL = "not-top-level"
    MALFORMED = "malformed"
    ENCRYPTED = "encrypted"


@dataclass(frozen=True, slots=True)
class Rwx:
    """The three permissions of one identity for one contact (DES-012)."""

    read: bool = False
    write: bool = False
    execute: bool = False

    @classmethod
    def parse(cls, text: str) -> Rwx:
        """Read `rwx`, `r--`, `---` …; ValueError says what is wrong with anything else."""
        if len(text) != 3 or any(
            got not in (want, "-") for got, want in zip(text, "rwx", strict=True)
        ):
            raise ValueError(f"permission {text!r} is not of the form rwx, r-- or ---")
        return cls(text[0] == "r", text[1] == "w", text[2] == "x")

    def __str__(self) -> str:
        return (
            ("r" if self.read else "-")
            + ("w" if self.write else "-")
            + ("x" if self.execute else "-")
        )


NOTHING = Rwx()
READ_ONLY = Rwx(read=True)


@dataclass(frozen=True, slots=True)
class Pin:
    """A public key that a person pinned to a contact.

    `addresses` are all exact addresses of that contact, lower-case; `public_key` is the binary
    (dearmoured) key with one primary; `fingerprint` is the primary's, 40 upper-case hex digits.
    """

    addresses: frozenset[str]
    fingerprint: str
    public_key: bytes
    contact: str = ""


@dataclass(frozen=True, slots=True)
class TransportFacts:
    """What `mail` saw on a message's raw bytes, for `guards.trust.classify`.

    `sender` is the one plain address of the one `From` header (domain lower-case), else None.
    `signed` are the exact bytes of the first child of a top-level multipart/signed,
    CRLF-normalised; `signature` the decoded second child. `signed_from` is the address that a
    protected `From` inside the signed part names, where there is one. `proton_headers` holds every
    value of the two internal headers as they stand at the top level. `loopback_bridge` says that
    the account is declared `proton-bridge` on a literal loopback host.
    """

    sender: str | None
    structure: SignedStructure = SignedStructure.NONE
    signed: bytes | None = None
    signature: bytes | None = None
    signed_from: str | None = None
    proton_headers: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    loopback_bridge: bool = False
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TrustEvidence:
    """What a trust verdict rests on; stored with it and shown with it.

    `signer` is the primary fingerprint (or, for an unpinned key, the issuer's fingerprint or key id
    as the signature names it), `hash` an OpenPGP hash name such as `SHA256`, `status` the words of
    GnuPG's status protocol that counted, in order.
    """

    signer: str | None = None
    signed_at: datetime | None = None
    hash: str | None = None
    status: tuple[str, ...] = ()
    provider_headers: ProviderHeaders = ProviderHeaders.ABSENT
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TrustVerdict:
    """A level, its reason, and the evidence. `version` names the rules that made it."""

    level: TrustLevel
    reason: TrustReason
    evidence: TrustEvidence
    version: int = 1


@dataclass(frozen=True, slots=True)
class Judgement:
    """What `decide` answers: pure, not yet recorded."""

    action: Action
    verdict: Verdict
    rule: Rule
    evidence: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Subject:
    """An opaque reference to a row of some app: its type's label and its id as text."""

    type: str
    id: str

    def __str__(self) -> str:
        return f"{self.type}:{self.id}"


@dataclass(frozen=True, slots=True)
class Asker:
    """Who asked: `system`, `operator:NAME`, `token:PREFIX`, `identity:HANDLE` or `owner:KEY`.

    The owner is named by the fingerprint of the key that signed, else by the word `reported`.
    """

    kind: str
    name: str = ""

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}" if self.name else self.kind

    @property
    def may_change_rights(self) -> bool:
        """Whether this is the operator, or a command that the operator started."""
        return self.kind in {"operator", "system"}


SYSTEM = Asker("system")
