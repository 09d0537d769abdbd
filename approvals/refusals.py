"""What the desk refuses, as a sentence with its stable word: never a page that only says that."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from approvals.exceptions import Blocked, ContactRefused
from approvals.sentences import look_sentence, reason_sentence
from guards.exceptions import Conflict

#: Why a review is not opened, or a connection not asked. Other words are the kinds' own.
SENTENCES: Mapping[str, str] = {
    "session_unavailable": (
        "Only the session that it was begun in can go on with it, and that one is over or is "
        "another than yours. Open the held draft again."
    ),
    "authority_revoked": "The session or the grant that this rests on was revoked.",
    "goal_closed": "This review was ended or replaced by another. Open the held draft again.",
    "goal_changed": "What this review was for has changed. Open the held draft again.",
    "goal_deleted": "What this review was for was deleted.",
    "goal_reassigned": "What this review was for belongs to somebody else now.",
    "consent_expired": "The time for asking was over.",
    "consent_changed": "The grant is not what was granted.",
    "deadline_passed": "The time for asking was over.",
    "contacts_used_up": "Everything that it was allowed to ask has been asked.",
    "connection_unavailable": (
        "The account has no connection that may be used for this. Its own page has them: connect "
        "it, or verify what is connected."
    ),
    "connection_changed": "The account was connected anew meanwhile.",
    "needs_reconnect": "The provider no longer accepts the connection: connect the account again.",
    "job_not_held": "Another process went on with it.",
    "not_granted": "Nobody granted this contact.",
}


@contextmanager
def in_words(sentences: Mapping[str, str] = SENTENCES) -> Iterator[None]:
    """Tell a refusal of the engine in words; its stable word stays with it."""
    try:
        yield
    except (Blocked, ContactRefused) as refused:
        words = told(refused, sentences)
        raise Conflict(words, field=refused.field, rule=refused.reason) from refused


def told(refused: Blocked | ContactRefused, sentences: Mapping[str, str] = SENTENCES) -> str:
    """The sentence of a refusal, with the field that it is about."""
    spoken = refused.reason.replace("_", " ").replace("-", " ")
    words = (
        sentences.get(refused.reason)
        or look_sentence(refused.reason)
        or reason_sentence(refused.reason)
        or f"{spoken[:1].upper()}{spoken[1:]}."
    )
    about = f" It is about: {refused.field.replace('_', ' ')}." if refused.field else ""
    return f"{words}{about} Nothing was sent."
