"""TransportFacts: how a message carries OpenPGP, judged on its raw bytes only.

Signed is a top-level multipart/signed of exactly two parts whose second is the signature. The
signed bytes are the first part exactly as received, with CRLF line ends, never re-serialised.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from guards.types import SignedStructure, TransportFacts
from mail.mime import addresses, transfer, words
from mail.mime.tree import Node
from mail.types import Address

#: The two headers that Proton Bridge writes; only `guards.trust` decides whether they count.
PROTON_HEADERS = ("x-pm-content-encryption", "x-pm-origin")
#: Stands beside the values of provider headers in a header block that readers may read differently.
DISORDERLY = "(the header block is damaged)"

_PGP_SIGNATURE = "application/pgp-signature"
_SMIME = frozenset({"application/pkcs7-signature", "application/x-pkcs7-signature"})
_INLINE_SIGNED = re.compile(r"^-----BEGIN PGP SIGNED MESSAGE-----[ \t]*$", re.MULTILINE)
_INLINE_ENCRYPTED = re.compile(r"^-----BEGIN PGP MESSAGE-----[ \t]*$", re.MULTILINE)
_LONE_LF = re.compile(rb"(?<!\r)\n")


@dataclass(frozen=True, slots=True)
class Protected:
    """The headers inside the signed part. `sender` is empty where From is there and no identity."""

    sender: str | None = None
    to: tuple[str, ...] = ()


def structure(root: Node) -> SignedStructure:
    """How the tree carries OpenPGP. Inline PGP is found by `inline`, on the decoded text."""
    if _claims_signature(root):
        return SignedStructure.SIGNED if _is_well_formed(root) else SignedStructure.MALFORMED
    below = root.descend()
    if root.type == "multipart/encrypted":
        return SignedStructure.ENCRYPTED
    if any(node.type == _PGP_SIGNATURE or _claims_signature(node) for node in below):
        return SignedStructure.NOT_TOP_LEVEL
    if any(node.type == "multipart/encrypted" for node in below):
        return SignedStructure.ENCRYPTED
    return SignedStructure.NONE


def inline(text: str) -> SignedStructure:
    """What inline PGP in a text amounts to: it never raises trust."""
    if "-----BEGIN PGP " not in text:
        return SignedStructure.NONE
    if _INLINE_SIGNED.search(text):
        return SignedStructure.NOT_TOP_LEVEL
    return SignedStructure.ENCRYPTED if _INLINE_ENCRYPTED.search(text) else SignedStructure.NONE


def protected(signed: Node | None) -> Protected:
    """The protected From and To of a signed part, where it carries its own."""
    if signed is None:
        return Protected()
    sender: str | None = None
    if signed.headers.all("from"):
        one, _ = addresses.identity(signed.headers, set())
        sender = one.address if one else ""
    to = addresses.addresses(signed.headers, "to", set())
    return Protected(sender, tuple(address.address for address in to))


def extract(
    raw: bytes,
    root: Node,
    *,
    sender: Address | None,
    found: SignedStructure,
    loopback_bridge: bool,
    notes: tuple[str, ...],
) -> TransportFacts:
    """Everything `guards.trust.classify` needs to know about one message."""
    signed = signature = None
    if found is SignedStructure.SIGNED:
        first, second = root.children
        signed = canonical(raw[first.start : first.end])
        signature = transfer.decode(raw[second.body : second.end], second.encoding, set())
    return TransportFacts(
        sender=sender.address if sender else None,
        structure=found,
        signed=signed,
        signature=signature,
        signed_from=protected(root.children[0]).sender if signed is not None else None,
        proton_headers=_proton_headers(root),
        loopback_bridge=loopback_bridge,
        notes=notes + _outside(raw, root, found),
    )


def _proton_headers(root: Node) -> dict[str, tuple[str, ...]]:
    """The values of Proton's headers at the top level.

    In a header block that is not orderly Proton may not have seen, and not have removed, what a
    sender wrote himself: then one more value says so, and no value is exact.
    """
    found = {}
    for name in PROTON_HEADERS:
        values = [words.raw_text(value, set()) for value in root.headers.all(name)]
        if values:
            found[name] = tuple(values if root.headers.orderly else [*values, DISORDERLY])
    return found


def canonical(content: bytes) -> bytes:
    """The bytes with CRLF line ends (RFC 3156 5); a CR that ends no line stays."""
    return _LONE_LF.sub(b"\r\n", content)


def _claims_signature(node: Node) -> bool:
    """Whether a multipart/signed is OpenPGP's: by its protocol, or by what stands in it."""
    if _declared_types(node).isdisjoint({"multipart/signed"}):
        return False
    kinds = {child.type for child in node.children}
    protocol = node.content_type.get("protocol").strip().lower()
    return not (protocol in _SMIME or kinds & _SMIME) or _PGP_SIGNATURE in kinds


def _declared_types(node: Node) -> set[str]:
    """The media types a part's Content-Type headers name; a part may carry several by mistake."""
    declared = {node.type}
    for value in node.headers.all("content-type"):
        declared.add(value.partition(b";")[0].strip().lower().decode("latin-1"))
    return declared


def _is_well_formed(root: Node) -> bool:
    if root.type != "multipart/signed" or len(root.headers.all("content-type")) != 1:
        return False
    protocol = root.content_type.get("protocol").strip().lower()
    return (
        protocol == _PGP_SIGNATURE
        and len(root.children) == 2
        and root.children[1].type == _PGP_SIGNATURE
    )


def _outside(raw: bytes, root: Node, found: SignedStructure) -> tuple[str, ...]:
    """Text beside the signed part, which no signature covers."""
    if found is not SignedStructure.SIGNED:
        return ()
    places = zip(("before", "after"), root.outside, strict=False)
    return tuple(
        f"unsigned text {place} the signed part"
        for place, (start, end) in places
        if raw[start:end].strip()
    )
