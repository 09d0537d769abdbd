from collections.abc import Sequence
from types import ModuleType

dmarc: ModuleType

class AuthResError(Exception): ...

class AuthenticationResultProperty:
    type: str
    name: str
    value: str | None

class AuthenticationResult:
    method: str
    result: str
    properties: Sequence[AuthenticationResultProperty] | None

class FeatureContext:
    def __init__(self, *modules: ModuleType) -> None: ...

class AuthenticationResultsHeader:
    authserv_id: str | None
    results: list[AuthenticationResult]
    @classmethod
    def parse_value(cls, feature_context: FeatureContext, string: str) -> AuthenticationResultsHeader: ...
