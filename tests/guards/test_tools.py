"""The registry of tools: what may be offered, how arguments are read, how failures are told."""

from __future__ import annotations

import json
import logging
from typing import Annotated, Any

import pytest
from asgiref.sync import async_to_sync
from pydantic import Field

from guards.exceptions import Conflict
from guards.fronts import mcp
from guards.fronts.mcp import Answer, Tool
from guards.models import ApiToken
from guards.types import TrustLevel

TOKEN = ApiToken(prefix="cs_00000000", scopes=["contacts:read"])


@pytest.fixture(autouse=True)
def own_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tools of these tests end with them."""
    monkeypatch.setattr(mcp, "_tools", dict(mcp._tools))


def offer(handler: Any, *, scope: str | None = None, structured: bool = True) -> Tool:
    tool = Tool("sample", scope, "A sample.", handler, structured=structured)
    mcp.register_tool(tool)
    return tool


def call(arguments: Any = None, *, name: str = "sample", token: ApiToken = TOKEN) -> Answer:
    return async_to_sync(mcp.call_tool)(token, name, arguments)


async def echo(
    token: ApiToken,
    number: Annotated[int, Field(description="how many")],
    share: float = 0.5,
    level: TrustLevel | None = None,
    words: list[str] | None = None,
) -> dict[str, Any]:
    return {"number": number, "share": share, "level": level, "words": words, "by": token.prefix}


def test_a_tool_of_a_scope_that_nobody_registered_cannot_be_offered() -> None:
    with pytest.raises(ValueError, match="contact:read"):
        offer(echo, scope="contact:read")


def test_a_name_is_offered_once() -> None:
    async def another(token: ApiToken) -> str:
        return ""

    offer(echo)
    offer(echo)  # the same one again: an app that is set up twice
    with pytest.raises(ValueError, match="sample"):
        offer(another)


def test_the_schema_is_the_handlers_signature() -> None:
    schema = mcp.input_schema(offer(echo))
    assert list(schema["properties"]) == ["number", "share", "level", "words"]
    assert schema["properties"]["number"] == {"description": "how many", "type": "integer"}
    assert (schema["required"], schema["additionalProperties"]) == (["number"], False)
    assert "token" not in json.dumps(schema)


@pytest.mark.fault("sister-36")
@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        (None, "number"),
        ({}, "number"),
        ({"number": "500"}, "number"),
        ({"number": 10.5}, "number"),
        ({"number": 10.0}, "number"),
        ({"number": False}, "number"),
        ({"number": 1, "share": "0.5"}, "share"),
        ({"number": 1, "share": True}, "share"),
        ({"number": 1, "level": "TRUSTED"}, "level"),
        ({"number": 1, "words": "one"}, "words"),
        ({"number": 1, "words": ["one", 2]}, "words.1"),
        ({"number": 1, "more": None}, "more"),
        ({"number": float("nan")}, None),
        ({"number": 1, "words": ["\ud800"]}, None),
    ],
)
def test_an_argument_is_never_turned_into_another_type(arguments: Any, field: str | None) -> None:
    offer(echo)
    refused = call(arguments)
    assert refused.is_error and refused.document is not None
    assert (refused.document["code"], refused.document["field"]) == ("invalid-input", field)


@pytest.mark.fault("sister-36")
def test_arguments_of_the_right_types_arrive_as_they_are() -> None:
    offer(echo)
    answer = call({"number": 2**70, "share": 1, "level": "trusted", "words": ["é", "\x00"]})
    assert not answer.is_error
    assert answer.document == {
        "number": 2**70,
        "share": 1,
        "level": "trusted",
        "words": ["é", "\x00"],
        "by": "cs_00000000",
    }
    assert json.loads(answer.text) == answer.document


@pytest.mark.parametrize(("scopes", "refused"), [([], True), (["contacts:read"], False)])
def test_a_scope_opens_a_tool_and_nothing_else_does(scopes: list[str], refused: bool) -> None:
    offer(echo, scope="contacts:read")
    token = ApiToken(prefix="cs_00000000", scopes=scopes)
    assert ("sample" in [tool.name for tool in mcp.tools_for(token)]) is not refused
    answer = call({"number": 1}, token=token)
    assert answer.is_error is refused
    assert answer.document is not None
    assert (answer.document.get("rule") == "scope-missing") is refused


def test_the_scope_is_asked_before_the_arguments_are_read() -> None:
    offer(echo, scope="contacts:read")
    answer = call({"number": "x"}, token=ApiToken(prefix="cs_0", scopes=[]))
    assert answer.document is not None
    assert (answer.document["rule"], answer.document["field"]) == ("scope-missing", None)


def test_a_refusal_of_a_service_keeps_its_words() -> None:
    async def busy(token: ApiToken) -> str:
        raise Conflict("somebody else has it", field="row", rule="taken")

    offer(busy)
    answer = call()
    assert answer.document == {
        "code": "conflict",
        "message": "somebody else has it",
        "field": "row",
        "rule": "taken",
    }


def test_what_nobody_foresaw_is_logged_and_not_told(caplog: pytest.LogCaptureFixture) -> None:
    async def broken(token: ApiToken) -> str:
        raise RuntimeError("the password is hunter2")

    offer(broken)
    with caplog.at_level(logging.ERROR):
        answer = call()
    assert answer.is_error and answer.document is not None
    assert answer.document["code"] == "internal-error"
    assert "hunter2" not in answer.text
    assert [record.exc_info is not None for record in caplog.records] == [True]


@pytest.mark.parametrize(("structured", "document"), [(True, {"behavior": "allow"}), (False, None)])
def test_a_tool_for_clients_that_want_text_answers_with_text_alone(
    structured: bool, document: Any
) -> None:
    async def allow(token: ApiToken) -> dict[str, str]:
        return {"behavior": "allow"}

    offer(allow, structured=structured)
    answer = call()
    assert (answer.text, answer.document) == ('{"behavior":"allow"}', document)
