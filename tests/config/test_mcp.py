"""`/mcp`: who is let in, what each token sees, and what becomes of bodies that make no sense."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import threading
from contextlib import nullcontext, suppress
from datetime import timedelta
from typing import Any

import pytest
from asgiref.sync import async_to_sync, sync_to_async
from django.core.management import call_command
from django.core.management.base import CommandError
from django.db import OperationalError
from django.utils import timezone
from mcp.client import Client
from mcp.shared.exceptions import MCPError

from config.mcp import MOST_BYTES, McpApplication, Threads
from guards.models import ApiToken
from guards.services import identities, tokens
from guards.types import SYSTEM, Subject
from tests.agents import JSON, OPERATOR, WHOAMI, Agent, agent, send
from tests.guards.factories import IdentityFactory

pytestmark = [pytest.mark.django_db, pytest.mark.one_database]

#: Which tools each scope opens, beside `whoami`, which needs none.
BY_SCOPE = {
    "contacts:read": {"list_contacts"},
    "messages:read": {
        "list_messages",
        "read_message",
        "check_trust",
        "show_mime",
        "download_attachment",
    },
    "mission:work": {"mission_show", "mission_result", "permission_prompt"},
    "pipelines:read": set(),
}
#: A call of each tool that is well formed.
CALLS: dict[str, dict[str, Any]] = {
    "list_contacts": {},
    "list_messages": {},
    "read_message": {"message_id": 1},
    "check_trust": {"message_id": 1},
    "show_mime": {"message_id": 1},
    "download_attachment": {"message_id": 1, "path": "1"},
    "mission_show": {},
    "mission_result": {"result": {}},
}


def rule_of(response: Any) -> tuple[int, str]:
    """Status and rule of a refusal, which has the one error shape."""
    body = json.loads(response.content)
    assert set(body) == {"code", "message", "field", "rule"}
    return response.status_code, body["rule"]


# --- Who is let in --------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["legacy", "auto"])
def test_a_client_of_either_generation_lists_and_calls(mode: str) -> None:
    visitor = agent("contacts:read", mode=mode)
    assert visitor.tools() == ["list_contacts", "whoami"]
    assert visitor.answer("whoami")["scopes"] == ["contacts:read"]
    assert visitor.answer("list_contacts", limit=5) == {"items": [], "next_cursor": None}


@pytest.mark.fault("W12")
@pytest.mark.parametrize("method", ["POST", "GET", "DELETE", "PUT"])
@pytest.mark.parametrize(
    ("header", "rule"),
    [
        ("", "token-missing"),
        ("Basic abc", "token-missing"),
        ("Bearer ", "token-missing"),
        ("Bearer cs_00000000_guess", "token-unknown"),
    ],
)
def test_without_a_token_that_counts_nobody_gets_further(
    method: str, header: str, rule: str
) -> None:
    given = {"authorization": header} if header else {}
    response = send(method=method, **given)
    assert rule_of(response) == (401, rule)
    assert response.headers["www-authenticate"] == "Bearer"


def test_two_tokens_in_one_request_are_none() -> None:
    first, second = agent().secret, agent().secret
    response = send(secret=f"{first}, Bearer {second}")
    assert rule_of(response) == (401, "token-unknown")


@pytest.mark.parametrize("method", ["GET", "DELETE", "PUT", "OPTIONS"])
def test_there_is_no_stream_from_the_server(method: str) -> None:
    response = send(method=method, secret=agent().secret)
    assert (response.status_code, response.headers["allow"]) == (405, "POST")


def end_by_revoking(token: ApiToken) -> None:
    tokens.revoke(token=token, by=OPERATOR)


def end_by_time(token: ApiToken) -> None:
    ApiToken.objects.filter(pk=token.pk).update(expires_at=timezone.now() - timedelta(seconds=1))


def end_by_switching_off(token: ApiToken) -> None:
    assert token.identity is not None
    identities.update_identity(identity=token.identity, is_active=False, by=OPERATOR)


@pytest.mark.parametrize(
    ("end", "rule"),
    [
        (end_by_revoking, "token-revoked"),
        (end_by_time, "token-expired"),
        (end_by_switching_off, "token-revoked"),
    ],
)
def test_a_token_that_ends_during_a_session_is_refused_at_its_next_call(
    end: Any, rule: str
) -> None:
    token, secret = tokens.mint(
        label="agent", scopes=["contacts:read"], identity=IdentityFactory(), by=OPERATOR
    )

    async def session(client: Client) -> None:
        assert not (await client.call_tool("whoami", {})).is_error
        await sync_to_async(end)(token)
        with pytest.raises(MCPError):
            await client.call_tool("whoami", {})
        with pytest.raises(MCPError):
            await client.list_tools(cache_mode="bypass")

    Agent(secret).during(session)
    assert rule_of(send(secret=secret)) == (401, rule)


# --- From where -----------------------------------------------------------------------------------


@pytest.mark.fault("W12")
@pytest.mark.parametrize(
    ("host", "rule"),
    [
        ("localhost", None),
        ("localhost:8000", None),
        ("api.house.example", None),
        ("evil.test", "foreign-host"),
        ("localhost.evil.test", "foreign-host"),
        ("127.0.0.1.evil.test:8000", "foreign-host"),
        ("", "foreign-host"),
        ("localhost@evil.test", "foreign-host"),
    ],
)
def test_only_our_own_hosts_are_answered_for(settings: Any, host: str, rule: str | None) -> None:
    settings.ALLOWED_HOSTS = ["localhost", ".house.example"]
    response = send(secret=agent().secret, host=host)
    if rule is None:
        assert response.status_code == 200
    else:
        assert rule_of(response) == (421, rule)


@pytest.mark.fault("W12")
@pytest.mark.parametrize(
    ("origin", "allowed"),
    [
        ("http://localhost", True),
        ("https://console.example", True),
        ("https://evil.test", False),
        ("http://localhost:9999", False),
        ("http://localhost.evil.test", False),
        ("null", False),
        ("", False),
        ("file://localhost", False),
    ],
)
def test_a_page_from_elsewhere_may_not_call(settings: Any, origin: str, allowed: bool) -> None:
    settings.CSRF_TRUSTED_ORIGINS = ["https://console.example"]
    response = send(secret=agent().secret, origin=origin)
    if allowed:
        assert response.status_code == 200
    else:
        assert rule_of(response) == (403, "foreign-origin")


def test_a_call_notes_that_its_token_was_used_and_a_refused_one_does_not() -> None:
    used, revoked = agent(), agent()
    ApiToken.objects.filter(digest=digest_of(revoked.secret)).update(revoked_at=timezone.now())
    assert send(secret=used.secret).status_code == 200
    assert send(secret=revoked.secret).status_code == 401
    noted = dict(ApiToken.objects.values_list("digest", "last_used_at"))
    assert noted[digest_of(used.secret)] is not None
    assert noted[digest_of(revoked.secret)] is None


async def gone(scope: Any, *, at: str) -> None:
    """A caller with a whole request, who is gone when it is read, or when it is answered."""

    async def receive() -> dict[str, Any]:
        if at == "http.request":
            raise ConnectionResetError
        return {"type": "http.request", "body": json.dumps(WHOAMI).encode(), "more_body": False}

    async def answer(message: Any) -> None:
        raise asyncio.CancelledError

    await McpApplication(nullcontext)(scope, receive, answer)


@pytest.mark.parametrize("at", ["http.request", "http.response.start"])
def test_whoever_does_not_stay_for_the_answer_has_used_the_token_all_the_same(at: str) -> None:
    secret = agent().secret
    headers = {**JSON, "host": "localhost", "authorization": f"Bearer {secret}"}
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "POST",
        "scheme": "http",
        "path": "/mcp",
        "raw_path": b"/mcp",
        "root_path": "",
        "query_string": b"",
        "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
        "server": ("localhost", 80),
        "client": ("127.0.0.1", 1),
    }
    with suppress(BaseException):
        async_to_sync(gone)(scope, at=at)
    token = ApiToken.objects.get(digest=digest_of(secret))
    assert token.last_used_at is not None


def test_an_answer_stands_where_the_use_of_its_token_cannot_be_noted(monkeypatch: Any) -> None:
    def locked(token: ApiToken) -> None:
        raise OperationalError("database is locked")

    monkeypatch.setattr(tokens, "note_use", locked)
    assert send(secret=agent().secret).status_code == 200


def digest_of(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


# --- What each token sees -------------------------------------------------------------------------


@pytest.mark.parametrize("scope", BY_SCOPE)
def test_a_token_sees_the_tools_of_its_scopes_alone(scope: str) -> None:
    seen = set(agent(scope).tools())
    assert "whoami" in seen
    assert seen - {"whoami"} <= BY_SCOPE[scope]
    others = set().union(*(found for name, found in BY_SCOPE.items() if name != scope))
    assert not seen & others


def test_no_tool_is_registered_that_these_tests_do_not_know() -> None:
    everything = set(agent(*BY_SCOPE).tools())
    assert everything <= set().union({"whoami"}, *BY_SCOPE.values())
    assert set(CALLS) | {"whoami"} <= everything


@pytest.mark.parametrize("tool", CALLS)
def test_a_hidden_tool_called_anyway_is_refused_by_its_scope(tool: str) -> None:
    (scope,) = (name for name, found in BY_SCOPE.items() if tool in found)
    others = [name for name in BY_SCOPE if name != scope]
    refused = agent(*others).refusal(tool, **CALLS[tool])
    assert (refused["code"], refused["rule"]) == ("refused", "scope-missing")
    assert scope in refused["message"]
    allowed = agent(scope).call(tool, **CALLS[tool])  # the control: refused by nothing of the kind
    assert not allowed.is_error or allowed.structured_content["rule"] != "scope-missing"


def test_a_missions_token_reads_no_mail() -> None:
    _, secret = tokens.mint_for(
        holder=Subject("pipelines.mission", "6f1c4f0e-0000-4000-8000-000000000000"),
        label="mission",
        scopes=["mission:work"],
        identity=IdentityFactory(),
        expires_at=timezone.now() + timedelta(hours=1),
        by=SYSTEM,
    )
    worker = Agent(secret)
    assert "list_messages" not in worker.tools()
    for tool in BY_SCOPE["messages:read"] | BY_SCOPE["contacts:read"]:
        assert worker.refusal(tool, **CALLS[tool])["rule"] == "scope-missing"


def test_a_tool_that_does_not_exist_is_refused_without_repeating_much_of_its_name() -> None:
    refused = agent().refusal("x" * 5_000)
    assert (refused["code"], refused["field"]) == ("not-found", "name")
    assert len(refused["message"]) < 200


def test_the_list_is_for_this_token_and_no_shared_cache() -> None:
    async def look(client: Client) -> Any:
        return await client.list_tools()

    listed = agent().during(look)
    assert listed.cache_scope == "private"
    for tool in listed.tools:
        assert tool.description
        assert tool.input_schema["type"] == "object"
        assert tool.input_schema["additionalProperties"] is False
        assert tool.annotations.read_only_hint is True


# --- Bodies that make no sense --------------------------------------------------------------------


def calling(arguments: str) -> bytes:
    """A call of `list_contacts` whose arguments are this text."""
    return (
        b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":'
        b'{"name":"list_contacts","arguments":%b}}' % arguments.encode()
    )


@pytest.mark.parametrize("version", ["", "2025-06-18", "2026-07-28", "not-a-version"])
@pytest.mark.parametrize(
    ("body", "statuses"),
    [
        (b"", {400}),
        (b"\xff\xfe", {400}),
        (b"{", {400}),
        (b"{}", {400}),
        (b"7", {400}),
        (b"[" * 100_000, {400}),
        (b'{"a":' * 100_000, {400}),
        (calling('{"limit":1' + "0" * 5_000 + "}"), {400}),
        (json.dumps([WHOAMI, WHOAMI]).encode(), {400}),
        (b" " * (MOST_BYTES + 1), {413}),
    ],
    ids=["empty", "bytes", "cut", "bare", "number", "deep", "deeper", "huge", "batch", "large"],
)
def test_a_body_that_is_no_request_is_refused(
    body: bytes, statuses: set[int], version: str
) -> None:
    secret = agent("contacts:read").secret
    given = {"mcp_protocol_version": version} if version else {}
    assert send(body, secret=secret, **given).status_code in statuses


@pytest.mark.parametrize(
    "arguments",
    ['{"limit":NaN}', '{"limit":' + "[" * 150 + "]" * 150 + "}", '{"cursor":"\\ud800"}', '{"":1}'],
    ids=["nan", "nested", "half a character", "nameless"],
)
def test_arguments_that_no_tool_can_read_are_refused(arguments: str) -> None:
    response = send(calling(arguments), secret=agent("contacts:read").secret)
    assert response.status_code in (200, 400)
    if response.status_code == 200:
        made = response.json()["result"]
        assert made["isError"] is True
        assert made["structuredContent"]["code"] == "invalid-input"


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "", "json"])
def test_only_json_is_read(kind: str) -> None:
    response = send(secret=agent().secret, content_type=kind)
    assert json.loads(response.content)["field"] == "Content-Type"
    assert response.status_code == 422


def test_a_body_of_json_with_its_charset_named_is_read() -> None:
    response = send(secret=agent().secret, content_type="application/json; charset=utf-8")
    assert response.json()["result"]["isError"] is False


def test_other_methods_of_the_protocol_are_not_there() -> None:
    secret = agent().secret
    for method in ("resources/list", "prompts/list", "logging/setLevel", "sampling/createMessage"):
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {}}
        assert "error" in send(body, secret=secret).json(), method


def test_ten_calls_at_once_are_all_answered() -> None:
    async def at_once(client: Client) -> list[Any]:
        return await asyncio.gather(*(client.call_tool("whoami", {}) for _ in range(10)))

    assert [made.is_error for made in agent().during(at_once)] == [False] * 10


async def test_no_more_calls_are_worked_on_than_there_are_threads() -> None:
    threads, inside, most, used = Threads(2), 0, 0, set()

    async def call() -> None:
        nonlocal inside, most
        async with threads():
            inside += 1
            most = max(most, inside)
            used.add(await sync_to_async(threading.get_ident)())
            used.add(await sync_to_async(threading.get_ident)())
            inside -= 1

    await asyncio.gather(*(call() for _ in range(7)))
    assert (most, len(used)) == (2, 2)
    assert threading.get_ident() not in used


async def test_a_call_that_fails_gives_its_thread_back() -> None:
    threads = Threads(1)
    for _ in range(3):
        with pytest.raises(RuntimeError):
            async with threads():
                raise RuntimeError
    async with threads():
        pass


# --- On standard input and output -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("secret", "code", "word"),
    [("", 3, "COUNTERSIGN_TOKEN"), ("cs_00000000_guess", 1, "token-unknown")],
)
def test_on_stdio_a_token_is_asked_for_at_once(
    monkeypatch: pytest.MonkeyPatch, secret: str, code: int, word: str
) -> None:
    monkeypatch.setenv("COUNTERSIGN_TOKEN", secret)
    with pytest.raises(CommandError) as refused:
        call_command("mcp")
    assert refused.value.returncode == code
    assert word in str(refused.value)
    assert "guess" not in str(refused.value)
    assert "COUNTERSIGN_TOKEN" not in os.environ  # no child of ours inherits it
