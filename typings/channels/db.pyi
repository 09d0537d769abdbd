from collections.abc import Awaitable, Callable
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

def database_sync_to_async(func: Callable[P, T]) -> Callable[P, Awaitable[T]]: ...
