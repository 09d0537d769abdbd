"""Mail that only its recipients read: RFC 3156 `multipart/encrypted`, with its headers inside.

Every header of the message goes into the encrypted part, where it is protected (RFC 9788); outside
stands what a server needs to carry the message, with a Subject that says nothing. `HP-Outer` tells
a reader what stood outside, so that a change on the way can be seen. A signed message is signed
first and then encrypted whole (RFC 3156 §6.1), so that nobody learns who signed.
"""

from __future__ import annotations

from collections.abc import Callable

from guards.openpgp import Signature
from mail import parts
from mail.parts import Body

#: What stands outside in place of every Subject (RFC 9788 §3.2.1).
OUTER_SUBJECT = "[...]"

Headers = tuple[tuple[str, str], ...]

_CONTROL = Body((("Content-Type", "application/pgp-encrypted"),), b"Version: 1\r\n")
_CONTENT_HEADERS = (
    ("Content-Type", 'application/octet-stream; name="encrypted.asc"'),
    ("Content-Description", "OpenPGP encrypted message"),
    ("Content-Disposition", 'inline; filename="encrypted.asc"'),
)
_PROTOCOL = 'protocol="application/pgp-encrypted"'
#: Tells readers, by the present and by the older convention, that the headers inside count.
_INSIDE_COUNTS = '; protected-headers="v1"; hp="cipher"'


def conceal(
    headers: Headers,
    body: Body,
    *,
    encrypt: Callable[[bytes], bytes],
    sign: Callable[[bytes], Signature] | None,
) -> tuple[Headers, Body]:
    """The headers that stay outside, and the encrypted body with all of them inside.

    `headers` are the message's own, without those of MIME. What `encrypt` and `sign` raise passes
    through: there is no message then, and nothing is ever sent in clear instead.
    """
    outside = tuple(
        (name, OUTER_SUBJECT if name.lower() == "subject" else value) for name, value in headers
    )
    inside = _protected(headers, outside, body)
    if sign is not None:
        inside = parts.signed(inside, sign)
    return outside, _encrypted(encrypt(inside.serialised))


def _protected(headers: Headers, outside: Headers, body: Body) -> Body:
    """The body with the message's headers before its own, and word of what stands outside."""
    (name, content_type), *rest = body.headers
    told = tuple(("HP-Outer", f"{outer}: {value}") for outer, value in outside)
    return Body(
        (*headers, *told, (name, content_type + _INSIDE_COUNTS), *rest),
        body.content,
    )


def _encrypted(armored: bytes) -> Body:
    """multipart/encrypted: the control part, then the OpenPGP message."""
    message = armored.replace(b"\r\n", b"\n").replace(b"\n", b"\r\n")
    content = Body(_CONTENT_HEADERS, message if message.endswith(b"\r\n") else message + b"\r\n")
    return parts.multipart("encrypted", [_CONTROL, content], parameters=(_PROTOCOL,))
