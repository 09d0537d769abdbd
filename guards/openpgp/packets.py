"""Reading OpenPGP packets ourselves, bounded, as far as it takes to know *whose* signature it is.

Nothing here decides that a signature is good: it only finds the issuer, so that GnuPG may be given
the one key that can count, and refuses what is not exactly one signature (RFC 9580, RFC 4880).
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache

_SIGNATURE_TAG = 2
_SECRET_TAGS = frozenset({5, 7})
_PRIMARY_TAG = 6
_SUBKEY_TAG = 14
#: Between keys a file may hold these: signatures, user ids and attributes, trust, markers.
_KEY_TAGS = frozenset({_SIGNATURE_TAG, _PRIMARY_TAG, 10, 12, 13, _SUBKEY_TAG, 17})
#: Trust and marker packets: no part of a key.
_NOTES = frozenset({10, 12})
#: A session key for one recipient, and data whose integrity is protected (RFC 9580 §5.1, §5.13).
_SESSION_KEY_TAG = 1
_PROTECTED_TAGS = frozenset({18, 20})
_MAX_PACKETS = 4096

_ARMOR_EDGE = re.compile(rb"-----(BEGIN|END) PGP [A-Z ]{3,30}-----")


class MalformedPackets(ValueError):
    """These bytes are not a sequence of whole OpenPGP packets."""


class SurplusPackets(MalformedPackets):
    """Something that is no signature stands beside a whole one."""


@dataclass(frozen=True, slots=True)
class SignatureFacts:
    """What one signature packet says about itself; all of it is the sender's claim.

    `issuer` is a fingerprint (40 hex, or 64 for newer key versions), else a key id (16 hex), else
    None. `packet` is the packet alone, binary.
    """

    issuer: str | None
    created_at: datetime | None
    hash_id: int
    signature_class: int
    packet: bytes


def dearmor(content: bytes) -> bytes:
    """The binary packets of armoured or binary `content`; several armoured blocks are joined.

    One pass over the lines, whatever they are. MalformedPackets for armour that does not decode.
    The checksum is not looked at (RFC 9580 §6.1).
    """
    if content[:1] and content[0] & 0x80:
        return content
    binary: list[bytes] = []
    block: list[bytes] | None = None
    for line in content.splitlines():
        edge = _ARMOR_EDGE.fullmatch(line.rstrip())
        if edge is None:
            if block is not None:
                block.append(line.strip())
        elif edge.group(1) == b"BEGIN":
            block = []
        elif block is not None:
            binary.append(_decode_block(block))
            block = None
    return b"".join(binary)


def _decode_block(lines: list[bytes]) -> bytes:
    """The bytes of one armoured block: after its headers and the empty line, without checksum."""
    body = lines[lines.index(b"") + 1 :] if b"" in lines else lines
    try:
        return base64.b64decode(b"".join(line for line in body if line[:1] != b"="), validate=True)
    except binascii.Error as error:
        raise MalformedPackets("the armour does not decode") from error


def split_packets(content: bytes) -> Iterator[tuple[int, bytes, bytes]]:
    """(tag, body, whole packet) of each packet; MalformedPackets where one is cut or unbounded."""
    offset = 0
    for _ in range(_MAX_PACKETS):
        if offset >= len(content):
            return
        tag, start, length = _read_header(content, offset)
        end = start + length
        if end > len(content):
            raise MalformedPackets("a packet is cut short")
        yield tag, content[start:end], content[offset:end]
        offset = end
    raise MalformedPackets(f"there are more than {_MAX_PACKETS} packets")


def _read_header(content: bytes, offset: int) -> tuple[int, int, int]:
    """(tag, start of the body, length of the body) of the packet at `offset`."""
    first = content[offset]
    if not first & 0x80:
        raise MalformedPackets("no packet begins here")
    if first & 0x40:
        length, start = _read_new_length(content, offset + 1)
        if length is None:
            raise MalformedPackets("a length is missing or partial")
        return first & 0x3F, start, length
    size = {0: 1, 1: 2, 2: 4}.get(first & 0x03)
    if size is None:
        raise MalformedPackets("a packet has no length")
    start = offset + 1 + size
    return (first >> 2) & 0x0F, start, int.from_bytes(content[offset + 1 : start], "big")


def _read_new_length(content: bytes, offset: int) -> tuple[int | None, int]:
    """A new-format or subpacket length and what follows it; None where it is partial or cut."""
    head = content[offset : offset + 5]
    if not head or 224 <= head[0] < 255:
        return None, offset
    if head[0] < 192:
        return head[0], offset + 1
    if head[0] == 255:
        return (int.from_bytes(head[1:5], "big"), offset + 5) if len(head) == 5 else (None, offset)
    if len(head) < 2:
        return None, offset
    return ((head[0] - 192) << 8) + head[1] + 192, offset + 2


def read_signatures(content: bytes) -> list[SignatureFacts]:
    """All signatures in a detached signature, armoured or binary, in order.

    MalformedPackets when none can be read; SurplusPackets for anything beside whole signatures.
    """
    facts: list[SignatureFacts] = []
    try:
        for tag, body, packet in split_packets(dearmor(content)):
            if tag != _SIGNATURE_TAG:
                raise MalformedPackets(f"a packet with tag {tag} stands in a detached signature")
            facts.append(_read_signature(body, packet))
    except MalformedPackets as error:
        raise (SurplusPackets(str(error)) if facts else error) from error
    return facts


def _read_signature(body: bytes, packet: bytes) -> SignatureFacts:
    version = body[0] if body else 0
    if version == 3 and len(body) >= 17:
        return SignatureFacts(
            issuer=body[7:15].hex().upper(),
            created_at=_moment(body[3:7]),
            hash_id=body[16],
            signature_class=body[2],
            packet=packet,
        )
    if version not in (4, 5, 6) or len(body) < 6:
        raise MalformedPackets(f"a signature of version {version} cannot be read")
    hashed, unhashed = _read_areas(body, 4 if version == 6 else 2)
    created = next((_moment(value) for kind, value in hashed if kind == 2), None)
    return SignatureFacts(
        issuer=_issuer(hashed + unhashed),
        created_at=created,
        hash_id=body[3],
        signature_class=body[1],
        packet=packet,
    )


def _read_areas(body: bytes, width: int) -> tuple[list[tuple[int, bytes]], list[tuple[int, bytes]]]:
    """The hashed and the unhashed subpackets as (type, value)."""
    areas = []
    offset = 4
    for _ in range(2):
        start = offset + width
        end = start + int.from_bytes(body[offset:start], "big")
        if end > len(body):
            raise MalformedPackets("a signature's subpackets are cut short")
        areas.append(_read_subpackets(body[start:end]))
        offset = end
    return areas[0], areas[1]


def _read_subpackets(area: bytes) -> list[tuple[int, bytes]]:
    found: list[tuple[int, bytes]] = []
    offset = 0
    while offset < len(area):
        length, start = _read_new_length(area, offset)
        if not length or start + length > len(area):
            raise MalformedPackets("a signature's subpacket is cut short")
        found.append((area[start] & 0x7F, area[start + 1 : start + length]))
        offset = start + length
    return found


def _issuer(subpackets: list[tuple[int, bytes]]) -> str | None:
    """The issuer fingerprint (subpacket 33) where there is one, else the key id (16)."""
    for kind, value in subpackets:
        if kind == 33 and len(value) in (21, 33):
            return value[1:].hex().upper()
    return next((v.hex().upper() for kind, v in subpackets if kind == 16 and len(v) == 8), None)


def _moment(value: bytes) -> datetime | None:
    return datetime.fromtimestamp(int.from_bytes(value, "big"), UTC) if len(value) == 4 else None


def key_fingerprints(binary: bytes) -> tuple[str, ...]:
    """The fingerprints in a binary public key: the primary's first, then its subkeys'.

    MalformedPackets unless there is exactly one primary key, and no secret one.
    """
    packets = list(split_packets(binary))
    tags = [tag for tag, _, _ in packets]
    if _SECRET_TAGS.intersection(tags):
        raise MalformedPackets("there is a secret key in it")
    if not set(tags) <= _KEY_TAGS:
        raise MalformedPackets("there is something in it that does not belong to a public key")
    if tags.count(_PRIMARY_TAG) != 1 or tags[0] != _PRIMARY_TAG:
        raise MalformedPackets(f"there are {tags.count(_PRIMARY_TAG)} primary keys in it, not one")
    return tuple(_fingerprint(body) for tag, body, _ in packets if tag in (6, _SUBKEY_TAG))


def without_trust(binary: bytes) -> bytes:
    """The key without trust packets.

    They are a keyring's own notes, and GnuPG would believe from them that a signature in the key
    was checked before: nothing that came from outside may say so. Markers go too.
    """
    kept = (packet for tag, _, packet in split_packets(binary) if tag not in _NOTES)
    return b"".join(kept)


def recipients_of(binary: bytes) -> tuple[str, ...]:
    """The ids (16 hex) of the keys that an encrypted message is for, one for each session key.

    MalformedPackets unless such packets, and nothing else, precede integrity-protected data.
    """
    found: list[str] = []
    offset = 0
    while offset < len(binary):
        first = binary[offset]
        if first & 0xC0 == 0xC0 and first & 0x3F in _PROTECTED_TAGS:
            return tuple(found)
        tag, start, length = _read_header(binary, offset)
        body = binary[start : start + length]
        if tag != _SESSION_KEY_TAG or len(body) < 10 or body[0] != 3:
            raise MalformedPackets(f"a packet with tag {tag} stands before the encrypted data")
        found.append(body[1:9].hex().upper())
        offset = start + length
    raise MalformedPackets("there is no encrypted data")


@lru_cache(maxsize=4096)
def pinned_fingerprints(binary: bytes) -> tuple[str, ...]:
    """`key_fingerprints`, remembered; nothing for a key that cannot be read."""
    try:
        return key_fingerprints(binary)
    except MalformedPackets:
        return ()


def _fingerprint(body: bytes) -> str:
    """The fingerprint of a version 4 key packet (RFC 9580 §5.5.4.2)."""
    if not body or body[0] != 4:
        raise MalformedPackets(f"a key of version {body[0] if body else 0} is not supported")
    framed = b"\x99" + len(body).to_bytes(2, "big") + body
    return hashlib.sha1(framed, usedforsecurity=False).hexdigest().upper()
