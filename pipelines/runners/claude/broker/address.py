"""Where the Messages API is: CLAUDE_BASE_URL, or Anthropic's own address."""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import urlsplit

from django.conf import settings

from guards.exceptions import InvalidInput

#: Where it is when CLAUDE_BASE_URL is empty.
MESSAGES_API = "https://api.anthropic.com"

#: What a head can say of it: a host with other letters has a form of its own for that.
_PLAIN = re.compile(r"https?://[!-~]+")
_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class Address:
    """A server, as its Host field names it, and the path before the API's own."""

    host: str
    port: int
    named: str
    path: str
    tls: bool


def of_api() -> Address:
    """InvalidInput where CLAUDE_BASE_URL is no address of a server."""
    url = settings.CLAUDE_BASE_URL or MESSAGES_API
    parts = urlsplit(url)
    try:
        port = parts.port or _PORTS.get(parts.scheme, 0)
    except ValueError:
        port = 0
    extra = parts.query or parts.fragment or parts.username or parts.password
    if not parts.hostname or not port or extra or not _PLAIN.fullmatch(url):
        raise InvalidInput(f"{url!r} is no http or https address", field="CLAUDE_BASE_URL")
    path = parts.path.rstrip("/")
    return Address(parts.hostname, port, parts.netloc, path, parts.scheme == "https")
