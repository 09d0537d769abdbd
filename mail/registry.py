"""Where what is outside is plugged in: protocols of mailboxes by name, and Google."""

from __future__ import annotations

from guards.exceptions import InvalidInput
from mail.gateways.base import Transport
from mail.gateways.google.base import GoogleGateway

_transports: dict[str, Transport] = {}
_google: list[GoogleGateway] = []


def register_transport(protocol: str, transport: Transport) -> None:
    """Make a protocol known; the last registration counts."""
    _transports[protocol] = transport


def transport(protocol: str) -> Transport:
    """The transport of that protocol; InvalidInput where none is registered."""
    try:
        return _transports[protocol]
    except KeyError:
        raise InvalidInput(
            f"no transport speaks {protocol!r}; known are {', '.join(sorted(_transports))}",
            field="protocol",
        ) from None


def register_google(gateway: GoogleGateway) -> None:
    """How Google is asked; the last registration counts."""
    _google[:] = [gateway]


def google() -> GoogleGateway:
    """Google, as it was registered. No setting leads anywhere else than to its own hosts."""
    return _google[0]
