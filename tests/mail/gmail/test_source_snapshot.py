"""A strict snapshot of what is answered: complete or refused, and each drift has its name."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mail.exceptions import ProfileRefused
from mail.gateways.google.base import RawMessage
from mail.gmail import snapshot
from tests.mail.gmail.builders import SOURCE, THREAD, facts, seen, source, thread
from tests.mail.gmail.refusals import refused


def test_it_takes_everything_that_a_reply_depends_on():
    found = seen("Reply-To: Collector <collect@evil.example>")
    assert found.thread_id == THREAD
    assert found.source_id == SOURCE
    assert found.message_id == "q4@example.org"
    assert (found.sender, found.sender_name) == ("bob@example.org", "Bob Example")
    assert found.reply_to == "Collector <collect@evil.example>"
    assert found.subject == "Quarterly figures"
    assert found.references == ("q2@example.org", "q3@example.org")
    assert found.reply_references() == ("q2@example.org", "q3@example.org", "q4@example.org")
    assert found.messages == (SOURCE,)
    assert found.revision == "4711"


def test_ten_messages_are_a_thread_and_eleven_are_too_many():
    ids = [SOURCE, *(f"18c0ffee000001{number:02d}" for number in range(9))]
    assert snapshot.read(thread(*ids), source()).messages == tuple(ids)
    with refused("thread_too_long", "thread"):
        snapshot.read(thread(*ids, "18c0ffee00000200"), source())


def test_a_source_of_over_256_kib_is_refused():
    with refused("thread_too_large", "source"):
        snapshot.read(thread(), source(body=b"x" * (256 * 1024)))


def test_the_source_stands_in_that_thread():
    with refused("source_not_found", "source"):
        snapshot.read(thread("18c0ffee00000005"), source())
    elsewhere = RawMessage(facts(thread="18c0ffee00000007"), source().raw)
    with refused("source_not_found", "source"):
        snapshot.read(thread(), elsewhere)


def test_a_message_of_another_thread_or_twice_the_same_is_no_thread():
    with refused("thread_malformed"):
        snapshot.read(thread(SOURCE, SOURCE), source())
    stray = facts("18c0ffee00000005", thread="18c0ffee00000007")
    with refused("thread_malformed"):
        snapshot.read(thread(messages=(facts(), stray)), source())
    with refused("thread_malformed"):
        snapshot.read(thread(id="a b"), source())


@pytest.mark.parametrize(
    "header", ["From", "Reply-To", "Subject", "Message-ID", "In-Reply-To", "References", "Date"]
)
@pytest.mark.parametrize("spelled", [str, str.lower, str.upper])
def test_a_header_that_decides_stands_once(header: str, spelled):
    value = "<one@example.org>"
    lines = [f"{spelled(header)}: {value}"]
    if header in ("Reply-To", "In-Reply-To"):
        lines.append(f"{header}: {value}")
    with refused("header_duplicated", header.lower().replace("-", "_")):
        seen(*lines)


@pytest.mark.parametrize("header", ["From", "Message-ID"])
def test_a_header_that_must_be_there_is_there(header: str):
    with refused("header_missing", header.lower().replace("-", "_")):
        seen(**{header.replace("-", "_"): None})


@pytest.mark.parametrize(
    "value",
    [
        "bob@example.org, eve@example.org",
        "Team: bob@example.org;",
        "Bob",
        "",
        "bob@example.org eve@example.org",
        "<bob@example.org> <eve@example.org>",
        "Bob <bob@example.org",
    ],
)
def test_the_source_has_exactly_one_sender(value: str):
    with refused("from_not_one_address", "from"):
        seen(From=value)


@pytest.mark.parametrize("value", ["bób@example.org", '"bob x"@example.org', "bob@[127.0.0.1]"])
def test_the_sender_is_one_plain_ascii_address(value: str):
    with refused("address_not_plain", "from"):
        seen(From=value)


@pytest.mark.parametrize(
    "value",
    ["q4@example.org", "<q4@example.org> <q5@example.org>", "<>", "<q4>", "<q 4@x>", "<a@b@c>"],
)
def test_the_source_has_exactly_one_message_id(value: str):
    with refused("id_malformed", "message_id"):
        seen(Message_ID=value)


def test_a_subject_has_up_to_200_bytes_and_is_never_cut():
    assert seen(Subject="ä" * 100).subject == "ä" * 100
    with refused("subject_too_long", "subject"):
        seen(Subject="ä" * 100 + "x")


def test_an_encoded_subject_is_shown_decoded():
    assert seen(Subject="=?utf-8?Q?Fran=C3=A7ois?= =?utf-8?B?w6k=?=").subject == "Françoisé"


@pytest.mark.parametrize(
    "value",
    ["=?utf-8?Q?a=0D=0Ab?=", "=?utf-8?Q?a=00b?=", "=?nonsense?B?AAAA?=", "=?utf-8?B?/w==?="],
)
def test_a_subject_that_needs_cleaning_or_guessing_is_refused(value: str):
    with refused("header_unreadable", "subject"):
        seen(Subject=value)


def test_references_are_up_to_20_with_the_source_itself():
    nineteen = " ".join(f"<r{number}@example.org>" for number in range(19))
    assert len(seen(References=nineteen).reply_references()) == 20
    with refused("references_too_many", "references"):
        seen(References=nineteen + " <r19@example.org>")


def test_references_are_up_to_2_kib():
    with refused("references_too_long", "references"):
        seen(References=" ".join(f"<{'x' * 200}{number}@example.org>" for number in range(10)))


@pytest.mark.parametrize("value", ["q3@example.org", "<q3@example.org>,<q2@example.org>", "words"])
def test_references_are_ids_and_nothing_else(value: str):
    with refused("id_malformed", "references"):
        seen(References=value)


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        ((b"Subject: a\r\n \t \r\n b",), "ambiguous_folding"),
        ((b"Subject: a\rFrom: eve@example.org",), "ambiguous_folding"),
        ((b"Subject: a\nFrom: eve@example.org",), "ambiguous_folding"),
        ((b"Subject: a\0b",), "ambiguous_folding"),
        ((b"no header at all",), "header_malformed"),
        ((b"Subject : spaced",), "header_malformed"),
        ((b": nameless",), "header_malformed"),
        ((b"Subject: \x07",), "control_character"),
        ((b"Subject: \xff",), "header_malformed"),
    ],
)
def test_what_two_readers_might_take_differently_is_refused(lines, reason: str):
    with refused(reason):
        seen(*lines, Subject=None)


def test_a_plain_fold_is_undone_as_every_reader_does():
    assert seen(b"Subject: Quarterly\r\n figures", Subject=None).subject == "Quarterly figures"
    assert seen(b"Subject: Quarterly\r\n\tfigures", Subject=None).subject == "Quarterly figures"


def test_a_message_without_an_end_of_its_header_is_refused():
    with refused("truncated"):
        snapshot.read(thread(), RawMessage(facts(), b"From: bob@example.org\r\n"))


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({"Subject": "Other figures"}, "subject"),
        ({"From": "Bob Example <bob2@example.org>"}, "sender"),
        ({"From": "Rob Example <bob@example.org>"}, "sender_name"),
        ({"Reply_To": "eve@example.org"}, "reply_to"),
        ({"References": "<q3@example.org>"}, "references"),
        ({"Message_ID": "<q5@example.org>"}, "message_id"),
        ({"Date": "Tue, 1 Dec 2026 07:00:01 +0000"}, "date"),
        ({"X_Other": "1"}, "source"),
        ({"body": b"How are they now?\r\n"}, "source"),
    ],
)
def test_a_drift_of_the_source_is_named(change: dict, name: str):
    before = seen().facts()
    now = snapshot.read(thread(), source(**change))
    assert snapshot.drifted(before, now) == name
    assert now.digest != seen().digest


def test_a_drift_of_the_thread_is_named():
    before = seen().facts()
    grown = snapshot.read(thread(SOURCE, "18c0ffee00000005"), source())
    assert snapshot.drifted(before, grown) == "messages"
    relabelled = snapshot.read(thread(history_id=4712), source())
    assert snapshot.drifted(before, relabelled) == "revision"
    moved = replace(seen(), thread_id="18c0ffee00000007")
    assert snapshot.drifted(before, moved) == "thread_id"
    assert snapshot.drifted(before, seen()) is None


@pytest.mark.parametrize("name", sorted(seen().facts()))
def test_a_fact_that_is_missing_or_another_has_drifted(name: str):
    facts_then = seen().facts()
    assert snapshot.drifted({**facts_then, name: "another"}, seen()) == name
    del facts_then[name]
    assert snapshot.drifted(facts_then, seen()) == name


@given(st.binary(max_size=200))
def test_any_bytes_give_a_snapshot_or_a_refusal(raw: bytes):
    head = b"From: bob@example.org\r\nMessage-ID: <q4@example.org>\r\n"
    try:
        found = snapshot.read(thread(), RawMessage(facts(), head + raw))
    except ProfileRefused as error:
        assert error.reason
    else:
        assert found.sender == "bob@example.org"
