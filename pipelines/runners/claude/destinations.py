"""Where a worker may connect to: exact hosts and ports, and where those are inside its walls.

A sandboxed worker has a network of its own with nothing in it but loopback. Each host that is
allowed gets an address there and a line in its `/etc/hosts`, so that names, ports and TLS are what
they are outside, and a host that is not allowed has no address at all.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from django.conf import settings

from guards.exceptions import InvalidInput

_LOOPBACK = "127.0.0.1"
_DEFAULT_PORTS = {"http": 80, "https": 443}
_LABEL = r"[a-z0-9_]([a-z0-9_-]*[a-z0-9])?"
_NAME = re.compile(rf"(?=.{{1,253}}$){_LABEL}(\.{_LABEL})*")


@dataclass(frozen=True, slots=True)
class Place:
    """A host and a port of the world outside."""

    host: str
    port: int


@dataclass(frozen=True, slots=True)
class Destination:
    """A place, and the loopback address that stands for its host inside.

    `path`, where it is set, is all of a plain HTTP server that can be reached there.
    """

    place: Place
    address: str
    path: str = ""


#: The door at which the broker answers: it leads nowhere else.
MODEL = Destination(Place("127.2.0.1", 8080), "127.2.0.1")
#: What a worker behind walls finds there.
MODEL_URL = f"http://{MODEL.address}:{MODEL.place.port}"


def of_url(url: str, *, field: str) -> Place:
    """The place that a URL names; InvalidInput when it is none that a worker could reach."""
    parts = urlsplit(url)
    try:
        port = parts.port or _DEFAULT_PORTS.get(parts.scheme, 0)
    except ValueError:
        port = 0
    if parts.scheme not in _DEFAULT_PORTS or not parts.hostname or not port:
        raise InvalidInput(f"{url!r} is no http or https address", field=field)
    return Place(_checked(parts.hostname, field), port)


def declared(entry: str) -> Place:
    """The place of one entry of CLAUDE_ALLOWED_HOSTS: `HOST` (port 443) or `HOST:PORT`."""
    host, colon, port = entry.strip().lower().partition(":")
    if colon and not (port.isdecimal() and 0 < int(port) < 65_536):
        raise InvalidInput(f"{entry!r} is neither HOST nor HOST:PORT", field="CLAUDE_ALLOWED_HOSTS")
    return Place(_checked(host, "CLAUDE_ALLOWED_HOSTS"), int(port or 443))


def allowed(server_urls: Iterable[str]) -> tuple[Destination, ...]:
    """All a worker may reach: the broker, its MCP servers, and what the settings declare.

    Of the server that is ours only MCP_URL's path, unless its port is declared as well: what else
    listens there is for people. Of a server behind TLS nothing can be told apart.
    """
    wide = [
        *(of_url(url, field="mcp_servers") for url in server_urls if url != settings.MCP_URL),
        *(declared(entry) for entry in settings.CLAUDE_ALLOWED_HOSTS),
    ]
    ours = of_url(settings.MCP_URL, field="MCP_URL")
    parts = urlsplit(settings.MCP_URL)
    is_narrow = ours not in wide and parts.scheme == "http"
    places = dict.fromkeys([*wide, ours])
    if MODEL.place in places:
        raise InvalidInput(f"{MODEL_URL} is the broker's", field="CLAUDE_ALLOWED_HOSTS")
    return (MODEL, *_placed(places, {ours: parts.path or "/"} if is_narrow else {}))


def are_plain(server_urls: Iterable[str]) -> bool:
    """Whether nothing that a worker may reach speaks TLS, so that no certificate is ever checked.

    What the settings declare beside is a host and a port, and speaks what it likes.
    """
    urls = (settings.MCP_URL, *server_urls)
    return not settings.CLAUDE_ALLOWED_HOSTS and all(urlsplit(url).scheme == "http" for url in urls)


def hosts_file(destinations: Iterable[Destination]) -> str:
    """`/etc/hosts` of a worker: the names it may use, and no others."""
    lines = {f"{_LOOPBACK} localhost": None}
    for destination in destinations:
        if not is_address(destination.place.host):
            lines[f"{destination.address} {destination.place.host}"] = None
    return "".join(f"{line}\n" for line in lines)


def is_address(host: str) -> bool:
    """Whether a host is an address rather than a name."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def is_loopback(host: str) -> bool:
    """Whether a host is this one."""
    return host == "localhost" or (is_address(host) and ipaddress.ip_address(host).is_loopback)


def _placed(places: Iterable[Place], paths: Mapping[Place, str]) -> tuple[Destination, ...]:
    addresses: dict[str, str] = {"localhost": _LOOPBACK}
    found = []
    for place in places:
        if place.host not in addresses:
            number = len(addresses)
            own = f"127.1.{number // 250}.{number % 250 + 1}"
            addresses[place.host] = place.host if is_address(place.host) else own
        found.append(Destination(place, addresses[place.host], paths.get(place, "")))
    return tuple(found)


def _checked(host: str, field: str) -> str:
    """A name, or an address of this host; other addresses cannot exist inside."""
    if is_address(host):
        if host.startswith("127."):
            return host
        raise InvalidInput(f"{host} is an address: declare the host by its name", field=field)
    if _NAME.fullmatch(host) is None:
        raise InvalidInput(f"{host!r} is no host name", field=field)
    return host
