"""Authentication-Results as notes: evidence that is shown, and never raises a level.

Only headers of the account's own authserv-id count, parsed by their grammar, each result with
whether it is aligned with the From address.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mail.mime import limits, words
from mail.mime.headers import Headers
from mail.types import Address

if TYPE_CHECKING:
    from authres import AuthenticationResult

#: For each method, the properties whose domain must be From's.
_ALIGNED = {
    "dkim": (("header", "d"), ("header", "i")),
    "spf": (("smtp", "mailfrom"),),
    "dmarc": (("header", "from"),),
}


def notes(headers: Headers, *, authserv_id: str, sender: Address | None) -> tuple[str, ...]:
    """One note a result, such as `dkim=pass x.org (aligned)`; none without a configured id."""
    if not authserv_id:
        return ()
    found: list[str] = []
    for value in headers.all("authentication-results"):
        found += _of_header(words.raw_text(value, set()), authserv_id, sender)
    return tuple(dict.fromkeys(found))


def _of_header(text: str, authserv_id: str, sender: Address | None) -> list[str]:
    from authres import AuthResError, FeatureContext, dmarc

    if len(text) > limits.MAX_RESULTS_CHARS:
        return []
    try:
        header = FeatureContext(dmarc).parse_value(text)
    except (AuthResError, RecursionError, ValueError):  # it recurses once a bracket
        return []
    if (header.authserv_id or "").lower() != authserv_id.lower():
        return []
    return [_note(result, sender) for result in header.results if _is_shown(result)]


def _is_shown(result: AuthenticationResult) -> bool:
    """Whether it is of a method we know; `none` behind other results has no method at all."""
    return getattr(result, "method", None) in _ALIGNED


def _note(result: AuthenticationResult, sender: Address | None) -> str:
    method = result.method
    domains = [
        str(one.value).rpartition("@")[2].lower().rstrip(".")
        for one in result.properties or ()
        if (one.type, one.name) in _ALIGNED[method]
    ]
    own = sender.address.rpartition("@")[2] if sender else ""
    aligned = any(_is_aligned(domain, own) for domain in domains)
    outcome = str(result.result)[:20]
    shown = " ".join(dict.fromkeys(domains))[:255]
    return f"{method}={outcome} {shown} ({'aligned' if aligned else 'not aligned'})"


def _is_aligned(domain: str, own: str) -> bool:
    """Relaxed alignment without a suffix list: equal, or From below the authenticated domain."""
    if not domain or not own:
        return False
    return own == domain or ("." in domain and own.endswith(f".{domain}"))
