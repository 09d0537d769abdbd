"""What every mailbox gateway promises: run against memory, the embedded server and Dovecot."""

from __future__ import annotations

import dataclasses
import threading
from datetime import UTC, datetime

import pytest

from mail.exceptions import FolderUnavailable, LoginRefused
from mail.gateways.base import Waker
from tests.mail.factories import make_mail


def test_it_gives_back_the_exact_bytes_and_marks_nothing_seen(box):
    raws = [make_mail(subject=f"Number {n}", text="A line.\n.dot\n" * n) for n in range(1, 4)]
    for raw in raws:
        box.deliver(raw)
    with box.transport.open_mailbox(box.endpoint) as mailbox:
        mailbox.select("INBOX")
        uids = mailbox.uids_after(0)
        first = mailbox.fetch(uids)
        again = mailbox.fetch(uids)
    assert [message.raw for message in first.messages] == raws
    assert [message.size for message in first.messages] == [len(raw) for raw in raws]
    assert not first.absent
    assert all("\\Seen" not in message.flags for message in again.messages)
    assert all(message.internal_date is not None for message in first.messages)


@pytest.mark.fault("sister-10", "imap-16")
def test_it_names_stale_absent_and_duplicate_uids_instead_of_reporting_success(box):
    box.deliver(make_mail())
    with box.transport.open_mailbox(box.endpoint) as mailbox:
        mailbox.select("INBOX")
        (uid,) = mailbox.uids_after(0)
        result = mailbox.fetch([uid, uid, uid + 50])
        assert [message.uid for message in result.messages] == [uid]
        assert result.absent == (uid + 50,)
        assert mailbox.existing([uid, uid + 50]) == {uid}
        assert set(mailbox.sizes([uid, uid + 50])) == {uid}


def test_only_uids_above_the_given_one_are_new(box):
    for _ in range(3):
        box.deliver(make_mail())
    with box.transport.open_mailbox(box.endpoint) as mailbox:
        state = mailbox.select("INBOX")
        uids = mailbox.uids_after(0)
        assert len(uids) == 3 == state.exists
        assert mailbox.uids_after(uids[1]) == (uids[2],)
        assert mailbox.uids_after(uids[2]) == ()
        assert state.uidnext > uids[2]
        assert state.uidvalidity > 0


def test_headers_only_gives_the_header_section_with_the_real_size(box):
    raw = make_mail(text="x" * 5000 + "\n")
    box.deliver(raw)
    with box.transport.open_mailbox(box.endpoint) as mailbox:
        mailbox.select("INBOX")
        (message,) = mailbox.fetch(mailbox.uids_after(0), headers_only=True).messages
    assert message.truncated
    assert message.size == len(raw)
    assert raw.startswith(message.raw)
    assert message.raw.endswith(b"\r\n\r\n")


def test_it_refuses_a_wrong_password_and_a_folder_that_does_not_exist(box):
    wrong = dataclasses.replace(box.endpoint, password="not-this-one")
    with pytest.raises(LoginRefused):
        box.transport.open_mailbox(wrong)
    with (
        box.transport.open_mailbox(box.endpoint) as mailbox,
        pytest.raises(FolderUnavailable, match="Nowhere"),
    ):
        mailbox.select("Nowhere")


def test_idle_returns_when_mail_arrives_and_when_it_is_woken(box):
    waker = Waker()
    with box.transport.open_mailbox(box.endpoint) as mailbox:
        mailbox.select("INBOX")
        assert "IDLE" in mailbox.capabilities
        timer = threading.Timer(0.2, box.deliver, [make_mail()])
        timer.start()
        assert mailbox.idle(seconds=20, waker=waker)
        timer.join()
        assert len(mailbox.uids_after(0)) == 1  # without opening the folder again
        waker.wake()
        mailbox.idle(seconds=20, waker=waker)
        assert len(mailbox.uids_after(0)) == 1
    waker.close()


def test_mail_that_comes_while_a_pass_runs_ends_the_next_idle_at_once(box):
    with box.transport.open_mailbox(box.endpoint) as mailbox:
        mailbox.select("INBOX")
        box.deliver(make_mail())
        mailbox.uids_after(0)  # servers announce it in this answer, once
        assert mailbox.idle(seconds=20)
        mailbox.select("INBOX")
        assert len(mailbox.uids_after(0)) == 1
        assert not mailbox.idle(seconds=0.2)


@pytest.mark.fault("send-12")
def test_an_appended_message_is_found_by_its_id_byte_for_byte(box):
    raw = make_mail(message_id="wanted@example.org")
    box.deliver(make_mail(message_id="other@example.org"))
    with box.transport.open_mailbox(box.endpoint) as mailbox:
        mailbox.append("INBOX", raw, datetime(2026, 11, 30, 9, 0, tzinfo=UTC))
        mailbox.select("INBOX")
        found = mailbox.find("wanted@example.org")
        assert [message.raw for message in mailbox.fetch(found).messages] == [raw]
        assert mailbox.find("nobody@example.org") == ()
