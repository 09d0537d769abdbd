"""The manners of `/api/v1`: who may call, how a refusal reads, how a long list is cut.

A refusal is `{"code", "message", "field", "rule"}` with the status of its error; `rule` names the
rule that refused, `field` the part of the request that is wrong.
"""

from __future__ import annotations

import base64
import json
import logging
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any, Generic, TypeVar

from django.core.exceptions import PermissionDenied, RequestDataTooBig
from django.core.exceptions import ValidationError as InvalidValue
from django.db.models import Field, Model, Q, QuerySet
from django.http import Http404, HttpRequest, HttpResponse
from ninja import Header, NinjaAPI, Schema
from ninja.errors import AuthenticationError, HttpError, ValidationError
from ninja.security import HttpBearer

from guards import registry, storable
from guards.exceptions import CountersignError, InvalidInput, NotAuthenticated, NotFound, Refused
from guards.models import ApiToken
from guards.services import tokens
from guards.types import Asker, Refusal

logger = logging.getLogger(__name__)

Row = TypeVar("Row", bound=Model)

#: Rows of one page: what a caller may ask for at most, and gets where nothing is said.
MOST_ROWS = 200
USUAL_ROWS = 50

#: A cursor holds two column values; those given out here are far shorter.
_LONGEST_CURSOR = 1_000


class ErrorOut(Schema):
    """The one shape of every answer that is not a success."""

    code: str
    message: str
    field: str | None = None
    rule: str | None = None


#: For `response=` of an operation, beside its own success.
ERRORS: dict[int, type[ErrorOut]] = {401: ErrorOut, 403: ErrorOut, 404: ErrorOut, 422: ErrorOut}


#: For operations that act: beside the usual refusals, what has moved on or was asked before.
ACTING: dict[int, type[ErrorOut]] = {**ERRORS, 409: ErrorOut}

#: The header by which a call that acts is repeated safely.
IdempotencyKey = Annotated[
    str,
    Header(
        alias="Idempotency-Key",
        description="your own name for this call: repeated with it, it acts once",
    ),
]


def mark_replayed(response: HttpResponse, *, replayed: bool) -> None:
    """Say in a header that this is the first call's answer."""
    if replayed:
        response["Idempotency-Replayed"] = "true"


class AnyToken(HttpBearer):
    """Lets a call pass whose bearer token counts now, whatever its scopes."""

    def authenticate(self, request: HttpRequest, token: str) -> ApiToken:
        """The token behind the secret; a refusal names its rule."""
        return tokens.authenticate(token)


class TokenAuth(AnyToken):
    """Lets a call pass whose bearer token counts now and carries this scope.

    The token is `request.auth`. ValueError for a scope that no app registered: a typing error must
    not become an address that nobody may call.
    """

    def __init__(self, scope: str) -> None:
        if scope not in registry.scopes():
            raise ValueError(f"{scope!r} is not a registered scope")
        self.scope = scope
        super().__init__()

    def authenticate(self, request: HttpRequest, token: str) -> ApiToken:
        """The token behind the secret, if it carries the scope."""
        found = super().authenticate(request, token)
        if self.scope not in found.scopes:
            raise Refused(
                f"this token does not carry the scope {self.scope}", rule=Refusal.SCOPE_MISSING
            )
        _require_text(request)
        return found


def _require_text(request: HttpRequest) -> None:
    """InvalidInput for NUL in an address: PostgreSQL cannot even be asked for it."""
    if "\0" in request.path:
        raise InvalidInput("an address has no NUL")
    for name, values in request.GET.lists():
        if any("\0" in text for text in (name, *values)):
            raise InvalidInput("an address has no NUL", field=name.replace("\0", ""))


def token_of(request: HttpRequest) -> ApiToken:
    """The token that `TokenAuth` let pass."""
    token = getattr(request, "auth", None)
    if not isinstance(token, ApiToken):
        raise NotAuthenticated
    return token


def asker_of(request: HttpRequest) -> Asker:
    """Who asks, as services and decisions name it."""
    return Asker("token", token_of(request).prefix)


# --- Refusals -------------------------------------------------------------------------------------


def install_handlers(api: NinjaAPI) -> None:
    """Give every answer of this API that is not a success the one error shape."""

    def answer(request: HttpRequest, status: int, error: ErrorOut) -> HttpResponse:
        response = api.create_response(request, error.model_dump(), status=status)
        if status == NotAuthenticated.status:
            response["WWW-Authenticate"] = "Bearer"
        return response

    def handle(request: HttpRequest, error: Exception | type[Exception]) -> HttpResponse:
        status, shape = describe(error)
        if status >= 500:
            failure = error if isinstance(error, Exception) else None
            logger.error("api call failed", exc_info=failure, extra={"path": request.path})
        return answer(request, status, shape)

    for kind in (
        CountersignError,
        AuthenticationError,
        ValidationError,
        HttpError,
        Http404,
        PermissionDenied,
        Exception,
    ):
        api.add_exception_handler(kind, handle)


def describe(error: Exception | type[Exception]) -> tuple[int, ErrorOut]:
    """Status and shape of an error; one of ours says its own, an unforeseen one says nothing."""
    if isinstance(error, CountersignError):
        return _plain(error)
    if isinstance(error, ValidationError):
        return InvalidInput.status, _describe_validation(error)
    if isinstance(error, AuthenticationError):
        return _plain(NotAuthenticated(rule=Refusal.TOKEN_MISSING))
    if isinstance(error, RequestDataTooBig):
        return 413, ErrorOut(code="too-large", message="The body is too large.", field="body")
    if isinstance(error, Http404):
        return _plain(NotFound())
    if isinstance(error, PermissionDenied):
        return _plain(Refused())
    if isinstance(error, HttpError):
        return error.status_code, ErrorOut(code="http-error", message=error.message)
    return 500, ErrorOut(code="internal-error", message="Something failed here; the log says what.")


def _plain(error: CountersignError) -> tuple[int, ErrorOut]:
    shape = ErrorOut(
        code=error.code, message=error.detail, field=error.field, rule=_text(error.rule)
    )
    return error.status, shape


def _describe_validation(error: ValidationError) -> ErrorOut:
    first = error.errors[0] if error.errors else {}
    where = [str(step) for step in first.get("loc", ())]
    return ErrorOut(
        code=InvalidInput.code,
        message=str(first.get("msg", InvalidInput.__doc__)),
        field=".".join(where[1:]) or None,
    )


def _text(rule: str | None) -> str | None:
    return None if rule is None else str(rule)


# --- Pages of long lists --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Page(Generic[Row]):
    """Some rows of a list, and the cursor of those that follow (None at the end)."""

    items: list[Row]
    next_cursor: str | None


def take_page(
    rows: QuerySet[Row],
    *,
    cursor: str | None,
    limit: int = USUAL_ROWS,
    key: str = "pk",
    newest_first: bool = True,
) -> Page[Row]:
    """Cut one page out of a list, in the order of `key` and then of the primary key.

    The cursor names the last row seen, so that rows which come or go in between neither repeat nor
    vanish. InvalidInput for a cursor that is none of ours and for a limit out of range.
    """
    if not 1 <= limit <= MOST_ROWS:
        raise InvalidInput(f"limit lies between 1 and {MOST_ROWS}", field="limit")
    model = rows.model
    primary = model._meta.pk
    field = primary if key == "pk" else _field(model, key)
    sign, beyond = ("-", "lt") if newest_first else ("", "gt")
    if cursor:
        value, key_value = _read_cursor(cursor, field, primary)
        rows = rows.filter(
            Q(**{f"{field.name}__{beyond}": value})
            | Q(**{field.name: value, f"pk__{beyond}": key_value})
        )
    found = list(rows.order_by(f"{sign}{field.name}", f"{sign}pk")[: limit + 1])
    items = found[:limit]
    following = _write_cursor(items[-1], field) if len(found) > limit else None
    return Page(items, following)


def _field(model: type[Model], name: str) -> Field[Any, Any]:
    return next(field for field in model._meta.concrete_fields if field.name == name)


def _write_cursor(row: Model, field: Field[Any, Any]) -> str:
    seen = json.dumps([field.value_to_string(row), str(row.pk)])
    return base64.urlsafe_b64encode(seen.encode()).decode().rstrip("=")


def _read_cursor(
    cursor: str, field: Field[Any, Any], primary: Field[Any, Any]
) -> tuple[object, object]:
    if len(cursor) > _LONGEST_CURSOR:
        raise InvalidInput("this cursor was not given out here", field="cursor")
    try:
        text = base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4))
        value, key = (storable.text(str(part)) for part in json.loads(text))
        return _in_range(field.to_python(value)), primary.to_python(key)
    except (ValueError, TypeError, RecursionError, OverflowError, InvalidValue) as error:
        raise InvalidInput("this cursor was not given out here", field="cursor") from error


def _in_range(value: object) -> object:
    """OverflowError for a moment that no database can hold in UTC."""
    return value.astimezone(UTC) if isinstance(value, datetime) else value
