"""Where protocols of mailboxes are plugged in: `imap` here, others by their own issue."""

from __future__ import annotations

from guards.exceptions import InvalidInput
from mail.gateways.base import Transport

_transports: dict[str, Transport] = {}


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
