"""One POST: the exact JSON resource, with the frozen message and the thread it answers."""

from __future__ import annotations

import json
from base64 import urlsafe_b64decode
from hashlib import sha256

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mail.exceptions import ProfileRefused
from mail.gmail import exact_mime, mime_check, request
from tests.mail.gmail.builders import THREAD, reply
from tests.mail.gmail.refusals import refused

MIME = exact_mime.build(reply())
PAYLOAD = request.build(MIME, THREAD)
FACTS = {
    **mime_check.read(MIME).facts(),
    "mime_sha256": sha256(MIME).hexdigest(),
    "thread_id": THREAD,
}


def test_the_resource_is_the_raw_message_and_its_thread():
    resource = json.loads(PAYLOAD)
    assert list(resource) == ["raw", "threadId"]
    assert urlsafe_b64decode(resource["raw"]) == MIME
    assert resource["threadId"] == THREAD
    assert request.read(PAYLOAD) == (MIME, THREAD)
    assert request.require_approved(PAYLOAD, FACTS).to == "bob@example.org"


def _changed(**members: object) -> bytes:
    resource = {**json.loads(PAYLOAD), **members}
    kept = {name: value for name, value in resource.items() if value is not ...}
    return json.dumps(kept, separators=(",", ":")).encode()


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        (_changed(threadId=...), "thread_id_missing"),
        (_changed(threadId=""), "thread_id_missing"),
        (_changed(threadId=None), "thread_id_missing"),
        (_changed(threadId=7), "thread_id_missing"),
        (_changed(threadId="18c0ffee00000003"), "thread_id_differs"),
        (_changed(threadId=THREAD.upper()), "thread_id_differs"),
        (_changed(raw=...), "request_malformed"),
        (_changed(raw=""), "request_malformed"),
        (_changed(raw="AAA"), "request_malformed"),
        (_changed(raw="A+=="), "request_malformed"),
        (_changed(labelIds=["SENT"]), "request_malformed"),
        (_changed(threadid=THREAD), "request_malformed"),
        (b"{}", "thread_id_missing"),
        (b"[]", "request_malformed"),
        (b"", "request_malformed"),
        (b"[" * 10_000, "request_malformed"),
        (PAYLOAD + b" ", "request_not_exact"),
        (PAYLOAD.replace(b",", b", ", 1), "request_not_exact"),
        (PAYLOAD[:-1] + b',"threadId":"' + THREAD.encode() + b'"}', "request_malformed"),
        (b" " * request.MAX_BYTES + PAYLOAD, "request_malformed"),
    ],
)
def test_another_resource_is_refused_before_the_contact(payload: bytes, reason: str):
    with refused(reason):
        request.require_approved(payload, FACTS)


def test_another_message_is_refused_before_the_contact():
    other = request.build(exact_mime.build(reply("They are bad.\n")), THREAD)
    with refused("mime_not_exact", "body_sha256"):
        request.require_approved(other, FACTS)


def test_a_thread_that_cannot_be_one_makes_no_request():
    for one in ("", 'a"', "a b", "x" * 65):
        with refused("thread_id_missing"):
            request.build(MIME, one)


def test_every_flipped_byte_is_found_before_the_contact():
    for position in range(len(PAYLOAD)):
        for flip in (0x01, 0x20, 0x80):
            other = PAYLOAD[:position] + bytes([PAYLOAD[position] ^ flip]) + PAYLOAD[position + 1 :]
            with pytest.raises(ProfileRefused) as caught:
                request.require_approved(other, FACTS)
            assert caught.value.field


@given(st.binary(max_size=500))
def test_any_bytes_are_read_or_refused(payload: bytes):
    with pytest.raises(ProfileRefused):
        request.read(payload)
