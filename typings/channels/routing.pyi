from collections.abc import Mapping, Sequence
from typing import Any

class ProtocolTypeRouter:
    def __init__(self, application_mapping: Mapping[str, Any]) -> None: ...

class URLRouter:
    def __init__(self, routes: Sequence[Any]) -> None: ...
