"""What we use of google-re2."""

from collections.abc import Mapping
from typing import Any

class error(Exception): ...

class Options:
    max_mem: int
    log_errors: bool

class Match:
    def groupdict(self, default: Any = ...) -> dict[str, str | None]: ...

class Pattern:
    @property
    def groupindex(self) -> Mapping[str, int]: ...
    def search(self, text: str) -> Match | None: ...

def compile(pattern: str, options: Options | None = ...) -> Pattern: ...
def search(pattern: str, text: str, options: Options | None = ...) -> Match | None: ...
