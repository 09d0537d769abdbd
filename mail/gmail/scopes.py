"""Which scopes a token was seen to have: present, exact, and judged at every refresh (ADR-016).

Only what the refresh answer itself says counts. Neither a declaration, an earlier answer nor an
identity fills in for a scope that is missing now.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from hashlib import sha256

from mail.exceptions import ProfileRefused
from mail.gateways.google.base import ABSENT
from mail.gmail.reasons import Reason

_OPENID = "openid"
_EMAIL = "email"
_EMAIL_ALIAS = "https://www.googleapis.com/auth/userinfo.email"
_GMAIL_READONLY = "https://www.googleapis.com/auth/gmail.readonly"
_GMAIL_SEND = "https://www.googleapis.com/auth/gmail.send"

#: What a reply's reading credential may do, and nothing else.
READ = frozenset({_GMAIL_READONLY, _OPENID, _EMAIL})
#: What a reply's sending credential may do, and nothing else.
SEND = frozenset({_GMAIL_SEND, _OPENID, _EMAIL})
#: What a connection that only reads mail may do. It is never ready for replies.
LEGACY_READONLY = frozenset({_GMAIL_READONLY})

#: The longest scope string that is looked at, in characters.
MAX_SCOPE_CHARS = 2_048

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
#: RFC 6749, section 3.3: tokens of these characters, single spaces between them.
_TOKEN = r"[\x21\x23-\x5b\x5d-\x7e]+"  # noqa: S105 (a pattern, no secret)
_SCOPE = re.compile(rf"{_TOKEN}(?: {_TOKEN})*")


@dataclass(frozen=True, slots=True)
class ScopeEvidence:
    """What one refresh answer said, exactly as it said it, and what that means."""

    observed: str
    scopes: frozenset[str]

    @property
    def digest(self) -> str:
        """SHA-256, hex, over the observed text and its canonical meaning."""
        meaning = "\n".join((self.observed, *sorted(self.scopes)))
        return sha256(meaning.encode("utf-8")).hexdigest()


def prove(scope: object, declared: frozenset[str]) -> ScopeEvidence:
    """The evidence that this refresh answer carries exactly the declared scopes.

    `scope` is whatever stood there, ABSENT where nothing did. ProfileRefused with a reason of its
    own for each way in which the evidence is missing, malformed, too little or too much.
    """
    observed = _text(scope)
    found = _tokens(observed)
    extra, missing = sorted(found - declared), sorted(declared - found)
    if extra:
        raise _refused(Reason.SCOPE_EXTRA, f"beyond what was declared: {', '.join(extra)}")
    if missing:
        raise _refused(Reason.SCOPE_MISSING, f"not granted: {', '.join(missing)}")
    return ScopeEvidence(observed, found)


def prove_legacy(scope: object) -> ScopeEvidence | None:
    """The same for a connection that only reads: an omitted scope is accepted, as None.

    Whatever this returns is no evidence for a reply.
    """
    return None if scope is ABSENT else prove(scope, LEGACY_READONLY)


def _text(observed: object) -> str:
    if observed is ABSENT:
        raise _refused(Reason.SCOPE_OMITTED)
    if observed is None:
        raise _refused(Reason.SCOPE_NULL)
    if not isinstance(observed, str):
        raise _refused(Reason.SCOPE_NOT_TEXT)
    if len(observed) > MAX_SCOPE_CHARS:
        raise _refused(Reason.SCOPE_TOO_LONG)
    if _CONTROL.search(observed):
        raise _refused(Reason.SCOPE_CONTROL_CHARACTER)
    if not observed.strip():
        raise _refused(Reason.SCOPE_EMPTY)
    return observed


def _tokens(observed: str) -> frozenset[str]:
    if not _SCOPE.fullmatch(observed):
        raise _refused(Reason.SCOPE_MALFORMED)
    found = [_EMAIL if token == _EMAIL_ALIAS else token for token in observed.split(" ")]
    if len(set(found)) != len(found):
        raise _refused(Reason.SCOPE_DUPLICATE)
    return frozenset(found)


def _refused(reason: Reason, detail: str = "") -> ProfileRefused:
    return ProfileRefused(reason, detail, field="scope")
