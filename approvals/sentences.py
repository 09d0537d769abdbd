"""The phases of an effect, and the reasons why one ended as it did, in plain words."""

from __future__ import annotations

from collections.abc import Mapping

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
    "drifted": "Something it rests on changed between the yes and the contact.",
    "cancelled-by-person": "A person stopped it before the contact.",
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
    return REASONS.get(reason, "")
