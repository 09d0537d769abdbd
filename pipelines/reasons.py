"""Why a message started no work, in plain words, and what would change it: one entry a rule."""

from __future__ import annotations

from collections.abc import Mapping

from guards.types import Rule
from pipelines.types import PlanRule

#: The rule of a message that may start work and has not been looked at yet.
WAITING = "waiting"
#: The rule of a message that became a pipeline with work in it.
STARTED = "started"

#: Rule: what it means for this message, and what to do about it.
REASONS: Mapping[str, tuple[str, str]] = {
    Rule.NO_IDENTITY: (
        "It does not name exactly one sender, so nobody could have asked for it.",
        "Ask the sender to write again with one plain address in From.",
    ),
    Rule.TRUST_TOO_LOW: (
        "The sender may start work, but nothing proves that the sender wrote this.",
        "Pin the sender's key if it is only not pinned yet; else have them sign and send it again.",
    ),
    Rule.LOOP: (
        "A machine or a mailing list wrote it, and such mail never starts work.",
        "Have the sender write from a person's own address.",
    ),
    Rule.NO_TEXT: (
        "It holds no new text that says what to do: no text/plain of its own above the quotes.",
        "Ask the sender to write the order as plain text above what is quoted.",
    ),
    Rule.RECIPIENT_NOT_BOUND: (
        "The signed text does not name this identity, so it may have been written to another one.",
        "The sender puts the address or @handle into the first line and signs again.",
    ),
    Rule.SIGNATURE_TOO_OLD: (
        "It was signed too long ago to start anything now (EXECUTE_MAX_AGE_HOURS).",
        "Ask the sender to sign and send it again.",
    ),
    Rule.REPLAYED: (
        "The same signed text has started work before, and one text starts work once, ever.",
        "Look at the pipeline that it started; for more work a new text is signed.",
    ),
    Rule.FIRST_PASS: (
        "It lay in the mailbox before this account was added, and old mail starts nothing.",
        "Release it on its page if it should start work after all.",
    ),
    Rule.READ_PERMITTED: (
        "The sender may be read here, and may not start work.",
        "Give the contact x for this identity if they should.",
    ),
    Rule.NO_PERMISSION: (
        "The sender has no permission here at all.",
        "Add the sender as a contact, with r and x for this identity, if they should.",
    ),
    Rule.EXECUTE_PERMITTED: (
        "It was allowed to start work when it came, and was held when it was looked at again.",
        "Look at its decisions below; what changed in between is named there.",
    ),
    Rule.OWNER_ANSWER: (
        "It is an answer to something that waits for a person, and such mail never starts work.",
        "What it did stands on its page. For work, write a mail that names no digest to approve.",
    ),
    PlanRule.NO_PLAN: (
        "No rule fits its text and no planner had an answer, so it only got the fixed text.",
        "Write a rule for such texts, and try it on this message.",
    ),
    PlanRule.UNKNOWN_COMMAND: (
        "What was planned names a command that is not here.",
        "Load that command, or correct the rule.",
    ),
    PlanRule.RESERVED_COMMAND: (
        "What was planned names a command that belongs to the program itself.",
        "Take it out of the rule: every pipeline ends with its reply anyway.",
    ),
    PlanRule.COMMAND_NOT_RUNNABLE: (
        "What was planned names a command that may not run as it is.",
        "Look at the command: its signature, serial, date, program or options do not hold.",
    ),
    PlanRule.INVALID_ARGUMENT: (
        "What was planned gives a command an argument that it does not take.",
        "Correct the rule, or what the command declares.",
    ),
    PlanRule.TOO_MANY_STAGES: (
        "More commands were planned than one message may start.",
        "Plan fewer, or join programs in one command's steps.",
    ),
    WAITING: (
        "It may start work, and waits to be taken by a worker.",
        "If it stays so, see whether a worker runs: `manage.py doctor`, or `run_pipelines` once.",
    ),
    STARTED: ("It started work.", "Look at its pipeline."),
}

_UNFORESEEN = (
    "The rule that decided is recorded with it.",
    "Look at its decisions below.",
)


def reason(rule: str) -> tuple[str, str]:
    """What a rule means here, and what to do; a rule that is not listed says so."""
    return REASONS.get(rule, _UNFORESEEN)
