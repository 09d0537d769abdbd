from typing import Any

class ScanKeys(list[dict[str, Any]]):
    def __init__(self, gpg: object) -> None: ...
