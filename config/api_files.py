"""Where ninja keeps the page and the scripts of the API's documentation.

As an installed app it would be loaded at each start of a program, and `web` alone has an API.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

_found = find_spec("ninja")
assert _found is not None and _found.origin is not None  # noqa: S101 (requirements/run.in)
_NINJA = Path(_found.origin).parent

TEMPLATES = _NINJA / "templates"
STATIC = _NINJA / "static"
