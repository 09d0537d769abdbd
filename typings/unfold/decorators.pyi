from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from django.db.models import Model
from django.db.models.expressions import BaseExpression, Combinable

_F = TypeVar("_F", bound=Callable[..., Any])

def display(
    function: Callable[[Model], Any] | None = ...,
    *,
    boolean: bool | None = ...,
    image: bool | None = ...,
    ordering: str | Combinable | BaseExpression | None = ...,
    description: str | None = ...,
    empty_value: str | None = ...,
    dropdown: bool | None = ...,
    label: bool | str | Mapping[Any, str] | None = ...,
    header: bool | None = ...,
) -> Callable[[_F], _F]: ...
def action(
    function: Callable[..., Any] | None = ...,
    *,
    permissions: Iterable[str] | None = ...,
    description: str | None = ...,
    url_path: str | None = ...,
    attrs: dict[str, Any] | None = ...,
    icon: str | None = ...,
    variant: Any = ...,
    dialog: Any = ...,
) -> Callable[[_F], _F]: ...
