from collections.abc import Sequence
from types import ModuleType

class AuthResError(Exception): ...

class AuthenticationResultProperty:
    type: str
    name: str
    value: str | None

class AuthenticationResult:
    method: str
    result: str
    properties: Sequence[AuthenticationResultProperty] | None

class AuthenticationResultsHeader:
    authserv_id: str | None
    results: list[AuthenticationResult]

class FeatureContext:
    def __init__(self, *modules: ModuleType) -> None: ...
    def parse_value(self, string: str) -> AuthenticationResultsHeader: ...
