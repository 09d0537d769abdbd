"""A strict snapshot of what is answered: complete or refused, and each drift has its name."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mail.exceptions import ProfileRefused
from mail.gateways.google.base import HeaderMessage, MessagePage, MessageReference
from mail.gmail import snapshot
from tests.mail.gmail.builders import SOURCE, THREAD, facts, seen, source, thread
from tests.mail.gmail.refusals import refused


def test_it_takes_everything_that_a_reply_depends_on():
    found = seen(("Reply-To", "Collector <collect@evil.example>"))
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
    others = [f"18c0ffee000001{number:02d}" for number in range(9)]
    ten = snapshot.read(thread(source(), *others), SOURCE)
    assert ten.messages == (SOURCE, *others)
    with refused("thread_too_long", "thread"):
        snapshot.read(thread(source(), *others, "18c0ffee00000200"), SOURCE)


def test_the_source_stands_in_that_thread():
    with refused("source_not_found", "source"):
        snapshot.read(thread("18c0ffee00000005"), SOURCE)


def test_a_message_of_another_thread_or_twice_the_same_is_no_thread():
    with refused("thread_malformed"):
        snapshot.read(thread(source(), source()), SOURCE)
    stray = HeaderMessage(facts("18c0ffee00000005", thread="18c0ffee00000007"), (), 1)
    with refused("thread_malformed"):
        snapshot.read(thread(source(), stray), SOURCE)
    with refused("thread_malformed"):
        snapshot.read(thread(id="a b"), SOURCE)


def test_the_source_is_located_by_its_message_id_and_stands_once():
    one, other = MessageReference(SOURCE, THREAD), MessageReference("18c0ffee00000005", THREAD)
    assert snapshot.located(MessagePage((one,))) == one
    with refused("source_not_found", "source"):
        snapshot.located(MessagePage(()))
    with refused("source_ambiguous", "source"):
        snapshot.located(MessagePage((one, other)))
    with refused("source_ambiguous", "source"):
        snapshot.located(MessagePage((one,), next_page="more"))


@pytest.mark.parametrize(
    "header", ["From", "Reply-To", "Subject", "Message-ID", "In-Reply-To", "References", "Date"]
)
@pytest.mark.parametrize("spelled", [str, str.lower, str.upper])
def test_a_header_that_decides_stands_once(header: str, spelled):
    twice = [(spelled(header), "<one@example.org>")] * 2
    with refused("header_duplicated", header.lower().replace("-", "_")):
        seen(*twice)


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
    ("value", "reason"),
    [
        ("a\r\n \t \r\n b", "ambiguous_folding"),
        ("a\r\nFrom: eve@example.org", "ambiguous_folding"),
        ("a\rFrom: eve@example.org", "ambiguous_folding"),
        ("a\nFrom: eve@example.org", "ambiguous_folding"),
        ("a\n b", "ambiguous_folding"),
        ("a\r\n ", "ambiguous_folding"),
        ("a\0b", "control_character"),
        ("a\x07", "control_character"),
        ("a\x85b", "control_character"),
        ("a\u2028b", "control_character"),
        ("a\udcffb", "control_character"),
        ("x" * 9000, "header_malformed"),
    ],
)
@pytest.mark.parametrize("header", ["Subject", "Reply-To"])
def test_what_two_readers_might_take_differently_is_refused(header: str, value: str, reason: str):
    with refused(reason, header.lower().replace("-", "_")):
        seen(**{header.replace("-", "_"): value})


def test_a_name_with_blanks_is_no_header_that_decides():
    with refused("header_malformed", "subject"):
        seen(("Subject ", "spaced"), Subject=None)


def test_a_plain_fold_is_undone_as_every_reader_does():
    assert seen(Subject="Quarterly\r\n figures").subject == "Quarterly figures"
    assert seen(Subject="Quarterly\r\n\tfigures").subject == "Quarterly figures"
    assert seen(References="<a@x.example>\r\n <b@x.example>").references == (
        "a@x.example",
        "b@x.example",
    )


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
        ({"size": 2_001}, "source"),
    ],
)
def test_a_drift_of_the_source_is_named(change: dict, name: str):
    before = seen().facts()
    now = snapshot.read(thread(source(**change)), SOURCE)
    assert snapshot.drifted(before, now) == name
    assert now.digest != seen().digest


def test_a_drift_of_the_thread_is_named():
    before = seen().facts()
    grown = snapshot.read(thread(source(), "18c0ffee00000005"), SOURCE)
    assert snapshot.drifted(before, grown) == "messages"
    relabelled = snapshot.read(thread(history_id=4712), SOURCE)
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


@given(st.lists(st.tuples(st.sampled_from(["Subject", "References", "X", "Date"]), st.text())))
def test_any_headers_give_a_snapshot_or_a_refusal(more: list[tuple[str, str]]):
    told = (("From", "bob@example.org"), ("Message-ID", "<q4@example.org>"), *more)
    try:
        found = snapshot.read(thread(HeaderMessage(facts(), told, 1)), SOURCE)
    except ProfileRefused as error:
        assert error.reason
    else:
        assert (found.sender, found.message_id) == ("bob@example.org", "q4@example.org")
        assert not {"\r", "\n", "\0"} & set(found.subject)
