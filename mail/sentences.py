"""Trust reasons, rules and loop reasons in plain words: what a person reads beside the stable name.

Each reason of `guards.types.TrustReason`, each `Rule` and each `LoopReason` has its sentence here;
a test holds the lists against each other.
"""

from __future__ import annotations

from collections.abc import Mapping

from guards.types import Rule, TrustLevel, TrustReason
from mail.models import Outbound
from mail.types import AnswerReason, LoopReason, OrderFault

LEVELS: Mapping[str, str] = {
    TrustLevel.TRUSTED: "Trusted",
    TrustLevel.VERIFIED: "Verified",
    TrustLevel.UNVERIFIED: "Unverified",
    TrustLevel.UNTRUSTED: "Untrusted",
}

#: One glyph per level, as `inbox` prints it.
GLYPHS: Mapping[str, str] = {
    TrustLevel.TRUSTED: "✓",
    TrustLevel.VERIFIED: "+",
    TrustLevel.UNVERIFIED: "?",
    TrustLevel.UNTRUSTED: "✗",
}

TRUST: Mapping[str, str] = {
    TrustReason.PINNED_KEY: (
        "The signature is good, and its key is the one pinned to this sender."
    ),
    TrustReason.PROTON_INTERNAL: (
        "It came end to end encrypted inside Proton, through the bridge on this very machine."
    ),
    TrustReason.UNSIGNED: (
        "Nothing in it is signed. Anybody can write any name into the From line."
    ),
    TrustReason.SIGNATURE_NOT_TOP_LEVEL: (
        "There is a signature, but it does not cover the whole message, so it proves nothing."
    ),
    TrustReason.MALFORMED_SIGNED: (
        "It claims to be signed, but is not built as a signed message has to be."
    ),
    TrustReason.UNPINNED_KEY: (
        "It is signed by a key that nobody here has pinned, and a key cannot prove whose it is."
    ),
    TrustReason.NO_IDENTITY: (
        "It does not name exactly one sender, so there is nobody whom it could be from."
    ),
    TrustReason.KEY_OF_SOMEONE_ELSE: (
        "The signature is good, but its key is pinned to somebody else than the sender it names."
    ),
    TrustReason.BAD_SIGNATURE: (
        "The signature does not match the text: the message was changed after it was signed, "
        "or the signature belongs to another one."
    ),
    TrustReason.EXPIRED_KEY: "It was signed with a key that has expired.",
    TrustReason.REVOKED_KEY: "It was signed with a key that its owner has revoked.",
    TrustReason.EXPIRED_SIGNATURE: "The signature itself has expired.",
    TrustReason.WEAK_HASH: (
        "The signature uses a hash that can be forged, so a good match proves nothing."
    ),
    TrustReason.FUTURE_SIGNATURE: "The signature is dated in the future.",
    TrustReason.SEVERAL_SIGNATURES: (
        "It carries more than one signature, and it cannot be said which one counts."
    ),
    TrustReason.NO_SIGNATURE_DATA: (
        "Where the signature should be, there is none: it is empty or not OpenPGP at all."
    ),
    TrustReason.ENCRYPTED: (
        "It is encrypted. What is inside is judged when somebody who may read it opens it."
    ),
    TrustReason.VERIFIER_UNAVAILABLE: (
        "The signature could not be checked, because GnuPG did not answer. It will be judged again."
    ),
}

#: What a rule means for the message, and what would change it.
RULES: Mapping[str, str] = {
    Rule.NO_IDENTITY: "Held: without exactly one sender nobody could have a permission.",
    Rule.TRUST_TOO_LOW: (
        "The sender may start work, but this message does not prove who wrote it. "
        "It was held, and nothing was started."
    ),
    Rule.LOOP: (
        "The sender may start work, but this was written by a machine or came from a list. "
        "Answering it could go round in circles."
    ),
    Rule.NO_TEXT: "The sender may start work, but it holds no new text that says what to do.",
    Rule.RECIPIENT_NOT_BOUND: (
        "The signed text does not name this identity, so it might have been written to somebody "
        "else. The sender can put the address or @handle into the first line."
    ),
    Rule.SIGNATURE_TOO_OLD: (
        "The sender may start work, but this was signed too long ago to start it today."
    ),
    Rule.REPLAYED: "The same signed text has started work before. One text starts work once, ever.",
    Rule.FIRST_PASS: (
        "It was in the mailbox before this account was added. Old mail starts nothing by itself."
    ),
    Rule.EXECUTE_PERMITTED: "The sender may start work here, and the message is proven theirs.",
    Rule.READ_PERMITTED: "The sender may be read here. They may not start work.",
    Rule.NO_PERMISSION: "This sender has no permission here, so subject and text stay covered.",
    Rule.NO_WRITE: "Not sent: a recipient is not somebody this identity may write to.",
    Rule.WRITE_PERMITTED: "Every recipient is somebody this identity may write to.",
    Rule.OPERATOR_OVERRIDE: "An operator decided this by hand.",
    Rule.OWN_MAILBOX: "It is about this identity's own mailbox, which needs no further permission.",
    Rule.OWNER_NOTICE: "It tells the owner of this installation what waits for an answer.",
    Rule.OWNER_ANSWER: "It is an answer to something that waits, and such mail never starts work.",
}

#: The same for one line of a queue.
RULES_IN_SHORT: Mapping[str, str] = {
    Rule.NO_IDENTITY: "It names no single sender.",
    Rule.LOOP: "A machine or a list wrote it.",
    Rule.NO_TEXT: "It has no new text that says what to do.",
    Rule.RECIPIENT_NOT_BOUND: "The signed text does not name this identity.",
    Rule.SIGNATURE_TOO_OLD: "It was signed too long ago.",
    Rule.REPLAYED: "The same signed text has started work before.",
    Rule.FIRST_PASS: "It was there before this account was added.",
    Rule.NO_PERMISSION: "A sender without any permission here.",
}

LOOPS: Mapping[str, str] = {
    LoopReason.AUTO_SUBMITTED: "It says of itself that a machine wrote it.",
    LoopReason.BULK: "It is marked as bulk, list or junk mail.",
    LoopReason.LIST: "It came over a mailing list.",
    LoopReason.BOUNCE: "It is a delivery report.",
    LoopReason.OWN_ADDRESS: "It came from one of our own addresses.",
    LoopReason.NO_IDENTITY: "It names no single sender who could be answered.",
    LoopReason.RATE_LIMIT: "This sender has had today's automatic answers.",
}


#: What became of a mail that speaks of an order.
ANSWERS: Mapping[str, str] = {
    AnswerReason.DONE: "It was carried out.",
    AnswerReason.NOT_THE_OWNER: "It is not from the owner's address, so it answers nothing.",
    AnswerReason.NO_OWNER: "OWNER_EMAIL and a valid owner key are needed to answer by mail.",
    AnswerReason.FIRST_PASS: "It was in the mailbox before this account was added.",
    AnswerReason.INCOMPLETE: "Only a part of it is known, or it cannot be taken apart safely.",
    AnswerReason.AUTOMATIC: "A machine or a list sent it.",
    AnswerReason.NOT_SIGNED: "A yes needs the owner's signature over the whole message.",
    AnswerReason.WRONG_KEY: "It is not signed by the owner's key.",
    AnswerReason.BAD_SIGNATURE: "Its signature does not hold.",
    AnswerReason.NOT_IN_SIGNED_TEXT: (
        "The order does not stand in the signed plain text: a subject, HTML and text beside the "
        "signed part do not count."
    ),
    AnswerReason.TOO_OLD: "It was signed too long ago.",
    AnswerReason.REPLAYED: "The same signed text came before.",
    AnswerReason.UNKNOWN_DIGEST: "No notice that left encrypted to the owner showed this digest.",
    AnswerReason.ANSWER_ELSEWHERE: "Acts of this kind are answered in the console only.",
    AnswerReason.EXPIRED: "The time for it was over.",
    AnswerReason.CHANGED: "What the notice showed has changed or was opened again since.",
    AnswerReason.ALREADY_DECIDED: "It was decided before.",
    AnswerReason.OUTSTANDING: "Another act about the same source is not settled yet.",
    AnswerReason.REFUSED: "It could not be carried out.",
    OrderFault.NO_ORDER: "Its own text is no order: one verb and one whole digest.",
    OrderFault.SEVERAL_ORDERS: "It names more than one order, so none was carried out.",
    OrderFault.UNCLEAR_ORDER: "There are words beside the order, so it was not carried out.",
}


def trust_sentence(reason: str) -> str:
    """Why a message has its level."""
    return TRUST.get(reason, f"The reason is recorded as {reason}.")


def rule_sentence(rule: str) -> str:
    """What a rule means."""
    return RULES.get(rule, f"The rule is recorded as {rule}.")


def rule_in_short(rule: str, trust_reason: str = "") -> str:
    """One short sentence; a message held for its trust says what is wrong with that."""
    if rule == Rule.TRUST_TOO_LOW and trust_reason:
        return trust_sentence(trust_reason)
    return RULES_IN_SHORT.get(rule) or rule_sentence(rule)


def loop_sentence(reason: str) -> str:
    """Why a message gets no automatic answer."""
    return LOOPS.get(reason, f"The reason is recorded as {reason}.")


#: How far a drafted reply has come.
REPLIES: Mapping[str, str] = {
    Outbound.Status.DRAFT: "It is written, and nobody was asked yet whether it may leave.",
    Outbound.Status.QUEUED: "It waits for its turn: the hourly cap is reached.",
    Outbound.Status.HELD: "It waits for a person to look at it.",
    Outbound.Status.SENDING: "A person said yes, and it is leaving.",
    Outbound.Status.ACCEPTED: "The mail server took it. Whether it arrived, nobody can tell.",
    Outbound.Status.VERIFIED: "It left, and exactly it was found among the sent mail.",
    Outbound.Status.UNKNOWN: (
        "Nobody can tell whether it left. It is not sent again: only a person decides what is next."
    ),
    Outbound.Status.FAILED: "It is certain that it did not leave.",
    Outbound.Status.REJECTED: "A person said no; the reason stands beside it. Nothing was sent.",
    Outbound.Status.CANCELLED: "It was given up before anything left.",
}


def reply_sentence(status: str) -> str:
    """What the state of a drafted reply says."""
    return REPLIES[Outbound.Status(status)]


def answer_sentence(reason: str) -> str:
    """What became of an answer by mail."""
    return ANSWERS.get(reason, f"The reason is recorded as {reason}.")
