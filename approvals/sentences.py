"""The phases of an effect, and the reasons why one ended as it did, in plain words."""

from __future__ import annotations

from collections.abc import Mapping

from approvals import registry
from approvals.models import Effect

PHASES: Mapping[str, str] = {
    Effect.Phase.INTENT: "It is allowed and frozen. Nothing outside has been contacted yet.",
    Effect.Phase.MARKED: "The one contact is being made, or was when we last heard of it.",
    Effect.Phase.ACCEPTED: (
        "The other side took it. Whether it arrived, the transport does not say; "
        "accepted is the truest word for that."
    ),
    Effect.Phase.VERIFIED: "It left, and an independent look found exactly it on the other side.",
    Effect.Phase.FAILED: "It is certain that it did not leave.",
    Effect.Phase.UNKNOWN: (
        "The contact began and no certain answer came back. It may have arrived, or not. "
        "Trying again could do it twice, so nothing here ever does that by itself."
    ),
    Effect.Phase.CANCELLED: "It was given up before anything outside was contacted.",
}

REASONS: Mapping[str, str] = {
    "smtp-250": "The mail server confirmed it after the message's last byte.",
    "no-recipients": "It had nobody to go to.",
    "address-invalid": "An address in it is none.",
    "payload-not-canonical": "Its bytes were not in the form that mail travels in.",
    "not-connected": "The mail server could not be reached.",
    "certificate-refused": "The mail server's certificate does not hold.",
    "tls-required": "The mail server offers no encryption, and without it nothing is sent.",
    "tls-refused": "The mail server broke off while the connection was being encrypted.",
    "login-refused": "The mail server refused the login.",
    "refused-before-data": "The mail server refused it before the message began to leave.",
    "sender-refused": "The mail server does not take mail from this address.",
    "recipients-refused": "The mail server takes nothing for any of the recipients.",
    "message-too-large": "The mail server does not take messages of this size.",
    "eight-bit-not-supported": "The mail server cannot carry its characters unchanged.",
    "international-address-not-supported": "The mail server cannot carry an address in it.",
    "data-refused": "The mail server refused to take the message's text.",
    "refused-after-data": "The mail server read the whole message and refused it.",
    "connection-lost-in-data": "The connection broke while the message was leaving.",
    "connection-lost-after-data": "The connection broke after the message had left.",
    "unexpected-reply": "The mail server answered something that says neither yes nor no.",
    "read-only": "Its account only reads: nothing is sent through it.",
    "drifted": "Something it rests on changed between the yes and the contact.",
    "cancelled-by-person": "A person stopped it before the contact.",
}

#: What a later look found, or why there was none, by the job's result and by reason.
LOOKS: Mapping[str, str] = {
    "verified_sent_observation": (
        "Exactly it lies in the sender's own Sent mailbox. Whether it reached the recipient, "
        "nobody there can tell; the act itself stays unknown."
    ),
    "unknown_observation": "The look proved nothing: the act may have left, or not.",
    "blocked": "The look was not made: nothing was contacted.",
    "lost": "The look ended without a result. What it contacted stays counted.",
    "effect_not_unknown": "Its outcome is certain: there is nothing to look for.",
    "session_unavailable": (
        "The session that this needs is over, or is another than yours. No other session can "
        "take its place, so nothing more is contacted."
    ),
    "authority_revoked": "What allowed it was revoked. Nothing more is contacted.",
    "goal_deleted": "What it was made for was deleted. Nothing more is contacted.",
    "goal_reassigned": (
        "What it was made for belongs to somebody else now. Nothing more is contacted."
    ),
    "goal_closed": "This look was ended before it had its result.",
    "connection_unavailable": "The connection that would look is revoked, or needs reconnecting.",
    "connection_changed": (
        "The connection that would look is not the one of the act: it was changed since."
    ),
    "act_still_running": "The process that makes the act still holds it. Wait until it has ended.",
    "transport_unsettled": (
        "Nobody has proved yet that the act's own transport is closed: something of it could "
        "still arrive. Once its process has ended, look again."
    ),
    "look_running": "A look is under way. Wait for its result.",
    "consent_expired": "The time for this look was over. Nothing more was contacted.",
    "deadline_passed": "The time for this look was over before it could be written down.",
    "contacts_used_up": "The look had used up its contacts.",
    "effect_moved_on": "Something else was written down about the act meanwhile.",
    "nothing_to_look_at": (
        "There is nothing to look at: the server keeps no copy of its own of what it was given."
    ),
    "not_found": "No such message was found. That does not prove that it was not sent.",
    "several_candidates": "More than one message answers to it, so none of them proves anything.",
    "too_many_candidates": "More messages answer to it than a look may open.",
    "timed_out": "There was not enough time left to look at everything.",
    "incomplete": "A message that answers to it could not be read to its end.",
    "mismatch": "A message answers to it, but is not exactly what was to leave.",
    "sent-copy-matches": "The server's own copy in Sent is exactly what was to leave.",
    "never-begun": "No worker took the look in time. Nothing was contacted.",
    "worker-lost": "The process that looked has died.",
    "deadline-passed": "The process that looked took too long.",
}

#: Why a draft waits, for the reasons that apps give as one stable word.
HOLDS: Mapping[str, str] = {
    "reply-policy": "Replies of this identity wait for a person.",
    "agent-draft": "An agent drafted it for you to look at.",
}


def hold_reason_sentence(reason: str) -> str:
    """Why a draft waits; a reason that is a sentence already stays one."""
    return HOLDS.get(reason, f"{reason[:1].upper()}{reason[1:].rstrip('.')}.")


def phase_sentence(phase: str) -> str:
    """What a phase says to a person."""
    return PHASES[Effect.Phase(phase)]


def reason_sentence(reason: str) -> str:
    """Why it ended so, where we have words for it."""
    return REASONS.get(reason) or registry.words().get(reason, "")


def look_sentence(word: str) -> str:
    """What a look's result, or the reason why there is none, says to a person."""
    return LOOKS.get(word) or reason_sentence(word)
