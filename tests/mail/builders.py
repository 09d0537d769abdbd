"""Small messages for parser tests: exact bytes, nothing that a library would tidy up."""

from __future__ import annotations

CRLF = b"\r\n"


def lines(*given: str | bytes) -> bytes:
    """The lines joined with CRLF, with one at the end."""
    return CRLF.join(one.encode() if isinstance(one, str) else one for one in given) + CRLF


def plain(*headers: str | bytes, text: bytes = b"hello\r\n") -> bytes:
    """A message of these headers (From unless one is given) and this text."""
    names = [one.encode() if isinstance(one, str) else one for one in headers]
    if not any(one.lower().startswith(b"from") for one in names):
        names.insert(0, b"From: alice@example.org")
    return CRLF.join(names) + CRLF + CRLF + text


def multipart(
    subtype: str, boundary: str, *parts: bytes, headers: tuple[str, ...] = (), parameters: str = ""
) -> bytes:
    """A multipart entity with its Content-Type header, closed."""
    start = b"--" + boundary.encode()
    body = b"".join(start + CRLF + part + CRLF for part in parts) + start + b"--" + CRLF
    kind = f'Content-Type: multipart/{subtype}; boundary="{boundary}"{parameters}'
    return CRLF.join([*(one.encode() for one in headers), kind.encode(), b"", b""]) + body


def part(kind: str, content: bytes, *headers: str) -> bytes:
    """A leaf."""
    first = f"Content-Type: {kind}".encode()
    return CRLF.join([first, *(one.encode() for one in headers), b"", content])


PGP = '; protocol="application/pgp-signature"; micalg=pgp-sha256'


def signed(
    payload: bytes,
    signature: bytes = b"-----BEGIN PGP SIGNATURE-----",
    *headers: str,
    boundary: str = "sig",
    extra: tuple[bytes, ...] = (),
) -> bytes:
    """A PGP/MIME message around exactly these signed bytes."""
    children = (payload, part("application/pgp-signature", signature), *extra)
    given = headers or ("From: alice@example.org", "To: agent@example.net", "Message-ID: <s@x>")
    return multipart("signed", boundary, *children, headers=given, parameters=PGP)
