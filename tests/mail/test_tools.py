"""Mail over MCP: the API's answers, its redaction and its records (invariant 10)."""

from __future__ import annotations

import base64
import json
from functools import cache
from typing import Any

import pytest
from django.test import Client
from django.utils.http import urlencode
from mcp.client import Client as McpClient

from guards.models import Contact, Decision
from guards.services import permissions, tokens
from guards.services.keys import pin_key
from guards.types import Rwx
from mail import answers
from mail.listing import REDACTED
from mail.models import Message
from mail.services import messages, polling
from tests.agents import Agent, agent
from tests.mail.builders import multipart, part
from tests.mail.factories import OPERATOR, AccountFactory, make_contact, make_mail, make_signed

pytestmark = pytest.mark.django_db

USER = "agent@agents.test"
ALICE = "alice@example.org"
SUBJECT, BODY, NAME = "the secret plan", "meet at the harbour", "map-of-the-harbour.bin"
CONTENT = bytes(range(256)) * 40
WITH_AND_WITHOUT_R = (
    *(pytest.param(rwx, marks=pytest.mark.one_database) for rwx in ("---", "r--", "-wx")),
    "rwx",
)
#: `w` and `x` change nothing for what is read: with each of them alone `make soak` asks again.
RIGHTS_ASKED_OF_EVERYTHING = (
    pytest.param("---", marks=pytest.mark.one_database),
    "rwx",
    *(
        pytest.param(rwx, marks=pytest.mark.soak)
        for rwx in ("r--", "-w-", "--x", "rw-", "r-x", "-wx")
    ),
)


def with_attachment(sender: str = ALICE) -> bytes:
    """Text, HTML and a named attachment."""
    encoded = base64.encodebytes(CONTENT).replace(b"\n", b"\r\n")
    body = multipart(
        "alternative", "in", part("text/plain", BODY.encode()), part("text/html", b"<p>")
    )
    return multipart(
        "mixed",
        "out",
        body,
        part(
            "application/octet-stream",
            encoded,
            "Content-Transfer-Encoding: base64",
            f'Content-Disposition: attachment; filename="{NAME}"',
        ),
        headers=(f"From: {sender}", f"To: {USER}", f"Subject: {SUBJECT}", "Message-ID: <a@x>"),
    )


@pytest.fixture
def deliver(account, mail_server):
    """Put mail into the agent's mailbox after its first pass; the stored rows, oldest first."""
    polling.poll(account_id=account.pk)

    def put(*raws: bytes) -> list[Message]:
        for raw in raws:
            mail_server.deliver(USER, raw)
        polling.poll(account_id=account.pk)
        return list(Message.objects.order_by("number"))

    return put


def may(account: Any, rwx: str) -> None:
    """What Alice may ask of the agent."""
    if rwx != "---":
        make_contact(account.identity, ALICE, rwx)


# --- One answer -----------------------------------------------------------------------------------

#: Each tool as an address of the API: what stands in the path, and what is a query.
ADDRESSES = {
    "whoami": "whoami",
    "list_contacts": "contacts",
    "list_messages": "messages",
    "read_message": "messages/{message_id}",
    "check_trust": "messages/{message_id}/trust",
    "show_mime": "messages/{message_id}/mime",
    "download_attachment": "messages/{message_id}/parts/{path}",
}


@cache
def http() -> Client:
    """One client for all questions: each new one would set the middleware up again."""
    return Client()


def by_api(asker: Agent, tool: str, **arguments: Any) -> Any:
    """The same question over HTTP."""
    pattern = ADDRESSES[tool]
    path = pattern.format(**arguments)
    query = urlencode(
        {key: value for key, value in arguments.items() if f"{{{key}}}" not in pattern}
    )
    headers = {"authorization": f"Bearer {asker.secret}"}
    return json.loads(http().get(f"/api/v1/{path}?{query}", headers=headers).content)


def by_mcp(asker: Agent, tool: str, **arguments: Any) -> Any:
    return asker.call(tool, **arguments).structured_content


def agree(asker: Agent, stored: list[Message]) -> list[Any]:
    """Ask both fronts everything, in one session; the answers, which are the same."""
    asked = questions(stored)

    async def ask(client: McpClient) -> list[Any]:
        made = [await client.call_tool(tool, arguments) for tool, arguments in asked]
        return [one.structured_content for one in made]

    told = asker.during(ask)
    for answer, (tool, arguments) in zip(told, asked, strict=True):
        assert answer == by_api(asker, tool, **arguments), (tool, arguments)
    return told


def questions(stored: list[Message]) -> list[tuple[str, dict[str, Any]]]:
    """Everything that can be asked about these messages, errors among it."""
    asked: list[tuple[str, dict[str, Any]]] = [
        ("whoami", {}),
        ("list_contacts", {}),
        ("list_contacts", {"limit": 0}),
        ("list_messages", {}),
        ("list_messages", {"limit": 1}),
        ("list_messages", {"trust": "verified"}),
        ("list_messages", {"rule": "no-permission", "account": "agent"}),
        ("list_messages", {"cursor": "page-99"}),
        ("read_message", {"message_id": 999_999}),
    ]
    for message in stored:
        one = {"message_id": message.pk}
        asked += [("read_message", one), ("check_trust", one), ("show_mime", one)]
        asked += [("download_attachment", {**one, "path": path}) for path in ("2", "9")]
    return asked


@pytest.mark.invariant(10)
@pytest.mark.parametrize("rwx", RIGHTS_ASKED_OF_EVERYTHING)
def test_api_and_mcp_say_the_same_to_the_same_token(account, deliver, keys, rwx):
    may(account, rwx)
    if rwx != "---":
        pin_key(contact=Contact.objects.get(), key=keys.alice.public, by=OPERATOR)
    stored = deliver(
        with_attachment(),
        make_signed(keys.alice, "run the report\n"),
        make_mail(sender="stranger@evil.test", subject=SUBJECT),
    )
    assert {m.trust_level for m in stored} == (
        {"unverified"} if rwx == "---" else {"unverified", "verified"}
    )
    asker = agent("messages:read", "contacts:read", identity=account.identity)
    told = agree(asker, stored)
    assert len({json.dumps(answer) for answer in told}) > len(stored) * 3
    assert (BODY in json.dumps(told)) == ("r" in rwx)  # they agree on what may be read, too


@pytest.mark.one_database
@pytest.mark.invariant(10)
def test_tokens_of_others_get_the_same_nothing_from_both(account, deliver):
    may(account, "rwx")
    stored = deliver(with_attachment())
    other = AccountFactory(identity__handle="second", identity__email="second@agents.test")
    scopes = ("messages:read", "contacts:read")
    for asker in (agent(*scopes, identity=other.identity), agent(*scopes, project="apollo")):
        assert SUBJECT not in json.dumps(agree(asker, stored))
        assert by_mcp(asker, "list_messages") == {"items": [], "next_cursor": None}


# --- Redaction ------------------------------------------------------------------------------------


@pytest.mark.parametrize("rwx", WITH_AND_WITHOUT_R)
def test_no_tool_tells_what_a_sender_without_r_wrote(account, deliver, rwx):
    may(account, rwx)
    (message,) = deliver(with_attachment())
    asker, readable = agent(), "r" in rwx
    one = {"message_id": message.pk}
    (listed,) = asker.answer("list_messages")["items"]
    assert listed["subject"] == (SUBJECT if readable else REDACTED)
    read = asker.answer("read_message", **one)
    told = (read["untrusted_text"], read["text_size"], bool(read["parts"]))
    assert told == ((BODY, len(BODY), True) if readable else (None, None, False))
    tree = asker.answer("show_mime", **one)
    assert [child["type"] for child in tree["children"]] == [
        "multipart/alternative",
        "application/octet-stream",
    ]
    assert tree["children"][1]["name"] == (NAME if readable else REDACTED)


@pytest.mark.one_database
@pytest.mark.parametrize("rwx", WITH_AND_WITHOUT_R)
def test_diagnosis_needs_no_permission_and_never_tells_the_text(account, deliver, rwx):
    may(account, rwx)
    (message,) = deliver(with_attachment())
    asker = agent()
    checked = asker.answer("check_trust", message_id=message.pk)
    assert (checked["level"], checked["reason"], checked["permission"]) == (
        "unverified",
        "unsigned",
        rwx,
    )
    assert checked["explanation"].startswith("Nothing in it is signed.")
    assert [one["cause"] for one in checked["verdicts"]] == ["ingest"]
    tree = asker.answer("show_mime", message_id=message.pk)
    for word in (BODY, SUBJECT, base64.b64encode(CONTENT[:30]).decode()):
        assert word not in json.dumps([checked, tree])


def test_rights_taken_away_count_at_the_next_call(account, deliver):
    may(account, "r--")
    (message,) = deliver(with_attachment())
    asker = agent()
    assert asker.answer("read_message", message_id=message.pk)["untrusted_text"] == BODY
    permissions.grant(
        identity=account.identity, contact=Contact.objects.get(), rwx=Rwx(), by=OPERATOR
    )
    assert asker.answer("read_message", message_id=message.pk)["untrusted_text"] is None


# --- Attachments ----------------------------------------------------------------------------------


@pytest.mark.one_database
@pytest.mark.fault("sister-18")
def test_an_attachment_is_that_leaf_alone_with_its_digest(account, deliver):
    may(account, "r--")
    (message,) = deliver(with_attachment())
    got = agent().answer("download_attachment", message_id=message.pk, path="2")
    assert base64.b64decode(got["content_base64"]) == CONTENT
    assert (got["name"], got["size"], got["next_offset"]) == (NAME, len(CONTENT), None)
    assert got["sha256"] == message.parts.get(path="2").sha256
    assert got["is_signed"] is False


@pytest.mark.one_database
def test_a_part_comes_in_pieces_that_fit_together(account, deliver):
    may(account, "r--")
    (message,) = deliver(with_attachment())
    asker, whole, offset = agent(), b"", 0
    while offset is not None:
        piece = asker.answer(
            "download_attachment", message_id=message.pk, path="2", offset=offset, length=4_000
        )
        whole += base64.b64decode(piece["content_base64"])
        offset = piece["next_offset"]
    assert whole == CONTENT
    beyond = asker.answer("download_attachment", message_id=message.pk, path="2", offset=10**12)
    assert (beyond["content_base64"], beyond["next_offset"]) == ("", None)


@pytest.mark.one_database
def test_a_long_text_comes_in_pieces_and_nothing_is_cut_silently(account, deliver):
    may(account, "r--")
    text = "".join(f"{number}\n" for number in range(60_000))
    (message,) = deliver(make_mail(sender=ALICE, text=text))
    assert len(message.text) > answers.MOST_CHARACTERS
    asker, whole, offset = agent(), "", 0
    while offset is not None:
        piece = asker.answer("read_message", message_id=message.pk, offset=offset)
        assert piece == by_api(asker, "read_message", message_id=message.pk, offset=offset)
        assert piece["text_size"] == len(message.text)
        whole += piece["untrusted_text"]
        offset = piece["next_offset"]
    assert whole == message.text


@pytest.mark.one_database
@pytest.mark.parametrize(
    ("wrong", "field"),
    [({"offset": -1}, "offset"), ({"length": answers.MOST_CHARACTERS + 1}, "length")],
)
def test_what_is_no_piece_of_a_text_is_refused_by_its_field(wrong, field):
    refused = agent().refusal("read_message", message_id=1, **wrong)
    assert (refused["code"], refused["field"]) == ("invalid-input", field)


@pytest.mark.one_database
@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({"length": answers.MOST_BYTES + 1}, "length"),
        ({"length": 0}, "length"),
        ({"offset": -1}, "offset"),
        ({"path": "7"}, "path"),
        ({"path": "../../etc/passwd"}, "path"),
        ({"path": "1"}, "path"),  # a multipart is no leaf
        ({"path": "1" * 256}, "path"),
        ({"path": "\x00"}, "path"),
    ],
)
def test_what_is_no_piece_of_a_part_is_refused_by_its_field(account, deliver, wrong, field):
    may(account, "r--")
    (message,) = deliver(with_attachment())
    arguments = {"message_id": message.pk, "path": "2", **wrong}
    refused = agent().refusal("download_attachment", **arguments)
    assert (refused["field"], refused["code"] in ("invalid-input", "not-found")) == (field, True)


@pytest.mark.parametrize("front", [pytest.param(by_api, marks=pytest.mark.one_database), by_mcp])
def test_each_download_is_a_decision_whether_allowed_or_not(account, deliver, front):
    may(account, "r--")
    allowed, denied = deliver(with_attachment(), with_attachment("stranger@evil.test"))
    asker = agent()
    before = set(Decision.objects.values_list("pk", flat=True))
    prefix = asker.answer("whoami")["prefix"]
    for message in (allowed, denied):
        for tool in ("read_message", "check_trust", "show_mime"):
            front(asker, tool, message_id=message.pk)
        front(asker, "download_attachment", message_id=message.pk, path="2")
    made = Decision.objects.exclude(pk__in=before).order_by("pk")
    assert [(one.action, one.verdict, one.rule) for one in made] == [
        ("download", "allow", "read-permitted"),
        ("download", "deny", "no-permission"),
    ]
    assert {one.asker for one in made} == {f"token:{prefix}"}
    assert [one.subject_id for one in made] == [str(allowed.pk), str(denied.pk)]
    assert [(one.sender, one.permission) for one in made] == [
        (ALICE, "r--"),
        ("stranger@evil.test", "---"),
    ]


@pytest.mark.one_database
def test_a_release_by_an_operator_opens_a_strangers_attachment(account, deliver):
    (message,) = deliver(with_attachment())
    asker, one = agent(), {"path": "2", "message_id": message.pk}
    assert asker.refusal("download_attachment", **one)["rule"] == "no-permission"
    messages.reveal(message_id=message.pk, by=OPERATOR)
    assert asker.refusal("download_attachment", **one)["rule"] == "no-permission"
    messages.release(message_id=message.pk, by=OPERATOR)
    assert asker.answer("download_attachment", **one)["size"] == len(CONTENT)
    assert Decision.objects.order_by("pk").last().rule == "operator-override"


@pytest.mark.one_database
def test_a_signed_messages_parts_say_what_the_signature_covers(account, deliver, keys):
    may(account, "r--")
    (message,) = deliver(make_signed(keys.alice, "run the report\n"))
    got = agent().answer("download_attachment", message_id=message.pk, path="1")
    assert got["is_signed"] is True
    assert base64.b64decode(got["content_base64"]).strip() == b"run the report"


# --- Pages and arguments --------------------------------------------------------------------------


@pytest.mark.fault("sister-11")
def test_pages_follow_each_other_by_the_apis_cursors(account, deliver):
    stored = deliver(*(make_mail(subject=f"number {n}") for n in range(5)))
    asker, seen, cursor = agent(), [], None
    while True:
        given = {} if cursor is None else {"cursor": cursor}
        page = asker.answer("list_messages", limit=2, **given)
        assert page == by_api(asker, "list_messages", limit=2, **given)
        seen += [item["id"] for item in page["items"]]
        cursor = page["next_cursor"]
        if cursor is None:
            break
    assert seen == [message.pk for message in reversed(stored)]


@pytest.mark.one_database
@pytest.mark.fault("sister-36")
@pytest.mark.parametrize(
    ("tool", "arguments", "field"),
    [
        ("list_messages", {"limit": "500"}, "limit"),
        ("list_messages", {"limit": "5"}, "limit"),
        ("list_messages", {"limit": 10.5}, "limit"),
        ("list_messages", {"limit": 10.0}, "limit"),
        ("list_messages", {"limit": True}, "limit"),
        ("list_messages", {"limit": None}, "limit"),
        ("list_messages", {"limit": [5]}, "limit"),
        ("list_messages", {"limit": 201}, "limit"),
        ("list_messages", {"limit": -1}, "limit"),
        ("list_messages", {"count": 5}, "count"),
        ("list_messages", {"Limit": 5}, "Limit"),
        ("list_messages", {"token": "cs_x"}, "token"),
        ("list_messages", {"cursor": 5}, "cursor"),
        ("list_messages", {"cursor": "\x00"}, "cursor"),
        ("list_messages", {"trust": "certain"}, "trust"),
        ("list_messages", {"trust": 1}, "trust"),
        ("list_messages", {"rule": ""}, "rule"),
        ("list_messages", {"account": "a\x00b"}, "account"),
        ("list_messages", {"account": "a" * 65}, "account"),
        ("read_message", {}, "message_id"),
        ("read_message", {"message_id": "1"}, "message_id"),
        ("read_message", {"message_id": 1.5}, "message_id"),
        ("read_message", {"message_id": None}, "message_id"),
        ("read_message", {"message_id": 1, "identity": "other"}, "identity"),
        ("download_attachment", {"message_id": 1, "path": 2}, "path"),
        ("download_attachment", {"message_id": 1}, "path"),
        ("download_attachment", {"message_id": 1, "path": "1", "offset": "0"}, "offset"),
        ("check_trust", {"message_id": {"pk": 1}}, "message_id"),
        ("show_mime", {"message_id": [1]}, "message_id"),
    ],
)
def test_an_argument_of_another_type_is_refused_by_its_name(tool, arguments, field):
    refused = agent().refusal(tool, **arguments)
    assert (refused["code"], refused["field"]) == ("invalid-input", field)


@pytest.mark.one_database
@pytest.mark.fault("sister-36")
def test_arguments_of_their_own_types_are_taken(account, deliver):
    deliver(make_mail(), make_mail())
    asker = agent()
    for arguments in (
        {"limit": 1},
        {"limit": 200},
        {"cursor": None, "trust": None},
        {"trust": "unverified", "rule": "no-permission", "account": account.name},
    ):
        assert asker.answer("list_messages", **arguments)["items"], arguments


@pytest.mark.parametrize("number", [0, -1, 2**63 - 1, 2**63, 10**30])
def test_a_message_that_cannot_be_there_is_not_found(number):
    refused = agent().refusal("read_message", message_id=number)
    assert refused["code"] == "not-found"


@pytest.mark.one_database
def test_the_api_describes_its_new_addresses(client: Client):
    described = client.get("/api/v1/openapi.json").json()
    for tool, pattern in ADDRESSES.items():
        operation = described["paths"][f"/api/v1/{pattern}"]["get"]
        assert operation["summary"], tool
        assert set(operation["responses"]) >= {"200", "401", "403", "404", "422"}


@pytest.mark.one_database
def test_without_the_scope_the_new_addresses_are_closed(account, deliver):
    (message,) = deliver(with_attachment())
    _, secret = tokens.mint(label="other", scopes=["contacts:read"], by=OPERATOR)
    for tool in ("check_trust", "show_mime", "download_attachment"):
        refused = by_api(Agent(secret), tool, message_id=message.pk, path="2")
        assert refused["rule"] == "scope-missing"
