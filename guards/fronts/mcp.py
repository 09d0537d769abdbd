"""The manners of `/mcp`: which tools a token sees, how arguments are read, how a refusal reads.

Each app's module `tools` registers them; `config.mcp` has them found, and serves them. A tool asks
what the API asks: the same scope, the same decisions, the same shapes; its refusals are the API's
one error shape.
"""

from __future__ import annotations

import functools
import inspect
import json
import logging
import typing
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from asgiref.sync import sync_to_async
from django.utils.module_loading import autodiscover_modules
from ninja.responses import NinjaJSONEncoder
from pydantic import BaseModel, ConfigDict, ValidationError, create_model

from guards import registry
from guards.exceptions import InvalidInput, NotFound, Refused
from guards.fronts.api import describe
from guards.models import ApiToken
from guards.types import Refusal

logger = logging.getLogger(__name__)

Made = TypeVar("Made")

#: `async (token, **arguments)`: answers a schema, a mapping of JSON values, or a text.
Handler = Callable[..., Awaitable[Any]]

#: The part of a handler's signature that is no argument of the tool.
_TOKEN = "token"  # noqa: S105 (a parameter's name)


@dataclass(frozen=True, slots=True)
class Tool:
    """One thing that an agent may ask.

    Its arguments are the handler's, after the token: names, types, defaults, and descriptions by
    `Annotated[…, Field(description=…)]`. `scope` None: any token that counts may call it.
    `structured` False answers with text alone, for clients that want a text of JSON.
    """

    name: str
    scope: str | None
    description: str
    handler: Handler
    structured: bool = True
    writes: bool = False


@dataclass(frozen=True, slots=True)
class Answer:
    """What a call comes to. `document` is the same as `text` where the tool is structured."""

    text: str
    document: Mapping[str, Any] | None = None
    is_error: bool = False


_tools: dict[str, Tool] = {}


def register_tool(tool: Tool) -> None:
    """Offer a tool. Called once, by an app's module `tools`.

    ValueError for a name that another tool has, and for a scope that no app registered.
    """
    if tool.scope is not None and tool.scope not in registry.scopes():
        raise ValueError(f"{tool.scope!r} is not a registered scope")
    if _tools.get(tool.name, tool).handler is not tool.handler:
        raise ValueError(f"there is a tool {tool.name!r} already")
    _tools[tool.name] = tool


def discover() -> None:
    """Have every app's tools registered: called by whoever serves them, and safe to repeat."""
    autodiscover_modules("tools")


def tools() -> list[Tool]:
    """All tools, by name."""
    return [_tools[name] for name in sorted(_tools)]


def find(name: str) -> Tool | None:
    """The tool of that name, if there is one."""
    return _tools.get(name)


def tools_for(token: ApiToken) -> list[Tool]:
    """The tools that this token may call, by name."""
    return [tool for tool in tools() if _may_call(token, tool)]


@functools.cache
def input_schema(tool: Tool) -> dict[str, Any]:
    """The JSON Schema of a tool's arguments; what is not named there is refused."""
    schema = _model_of(tool).model_json_schema()
    schema.pop("title", None)
    for described in schema.get("properties", {}).values():
        described.pop("title", None)
    return schema


async def call_tool(token: ApiToken, name: str, arguments: Mapping[str, Any] | None) -> Answer:
    """Call a tool for this token. Never raises: a refusal is an answer in the one error shape."""
    try:
        tool = _permitted(token, name)
        given = _read(tool, arguments or {})
        return _answer(tool, await tool.handler(token, **given))
    except Exception as error:
        status, shape = describe(error)
        if status >= 500:
            logger.error("a tool failed", exc_info=error, extra={"tool": name[:100]})
        return Answer(shape.model_dump_json(), shape.model_dump(), is_error=True)


def in_database(function: Callable[..., Made]) -> Callable[..., Awaitable[Made]]:
    """A handler that calls this function in the call's own thread, which may reach the database.

    Whoever serves the call gives it that thread, and closes what was opened there.
    """
    run = sync_to_async(function, thread_sensitive=True)

    @functools.wraps(function)
    async def handler(*given: Any, **arguments: Any) -> Made:
        return await run(*given, **arguments)

    return handler


def _may_call(token: ApiToken, tool: Tool) -> bool:
    return tool.scope is None or tool.scope in token.scopes


def _permitted(token: ApiToken, name: str) -> Tool:
    tool = _tools.get(name)
    if tool is None:
        raise NotFound(f"there is no tool {name[:100]!r} here", field="name")
    if not _may_call(token, tool):
        raise Refused(
            f"this token does not carry the scope {tool.scope}", rule=Refusal.SCOPE_MISSING
        )
    return tool


@functools.cache
def _model_of(tool: Tool) -> type[BaseModel]:
    """The strict model of a handler's arguments: no other names, no types turned into others."""
    hints = typing.get_type_hints(tool.handler, include_extras=True)
    fields: dict[str, Any] = {}
    for name, parameter in inspect.signature(tool.handler).parameters.items():
        if name != _TOKEN:
            required = parameter.default is inspect.Parameter.empty
            fields[name] = (hints[name], ... if required else parameter.default)
    return create_model(tool.name, __config__=ConfigDict(extra="forbid", strict=True), **fields)


def _read(tool: Tool, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments as the handler takes them; InvalidInput names the field (sister-36)."""
    model = _model_of(tool)
    try:
        text = json.dumps(arguments, allow_nan=False)
        read = model.model_validate_json(text)
    except ValidationError as error:
        raise _wrong(model, error) from error
    except (ValueError, RecursionError) as error:
        raise InvalidInput("the arguments are no JSON that can be read") from error
    return {name: getattr(read, name) for name in model.model_fields}


def _wrong(model: type[BaseModel], error: ValidationError) -> InvalidInput:
    first = error.errors(include_url=False, include_input=False, include_context=False)[0]
    where = ".".join(str(step) for step in first["loc"]) or None
    if first["type"] == "extra_forbidden" and len(first["loc"]) == 1:
        known = ", ".join(model.model_fields) or "none"
        return InvalidInput(f"there is no such argument here; known: {known}", field=where)
    return InvalidInput(str(first["msg"]), field=where)


def _answer(tool: Tool, made: Any) -> Answer:
    """The answer as the API's own encoder writes it."""
    if isinstance(made, str):
        return Answer(made)
    document = made.model_dump() if isinstance(made, BaseModel) else made
    text = json.dumps(document, cls=NinjaJSONEncoder, ensure_ascii=False, separators=(",", ":"))
    return Answer(text, json.loads(text) if tool.structured else None)
