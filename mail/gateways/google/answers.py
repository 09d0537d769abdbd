"""Google's JSON, read strictly: every field is there once, of its type, within its bounds.

What Google adds is left alone. What is wrong is a `BadAnswer` that names the field and the rule,
never the value.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, NoReturn

from mail.gateways.google.base import (
    ABSENT,
    BadAnswer,
    CredentialRefused,
    Missing,
    NeedsReconnect,
    RedirectRefused,
    StatusRefused,
)
from mail.gateways.google.http import Response

_ID: Final = re.compile(r"[0-9A-Za-z_-]{1,64}\Z", re.ASCII)
_PAGE: Final = re.compile(r"[!-~]{1,512}\Z", re.ASCII)
_DECIMAL: Final = re.compile(r"(0|[1-9][0-9]{0,18})\Z", re.ASCII)
_BASE64URL: Final = re.compile(r"[0-9A-Za-z_-]+={0,2}\Z", re.ASCII)
_JSON_TYPE: Final = re.compile(r"application/json\s*(;\s*charset=\"?utf-8\"?\s*)?\Z", re.IGNORECASE)

#: Statuses that pass by themselves, beside 5xx.
_PASSING: Final = frozenset({401, 408, 429})
#: Reasons of a 403 that are about rates.
_RATES: Final = frozenset(
    {"rateLimitExceeded", "userRateLimitExceeded", "dailyLimitExceeded", "quotaExceeded"}
)
#: Words of the token endpoint that say what is wrong with the client, not with the account.
_CLIENT_WORDS: Final = frozenset({"invalid_client", "unauthorized_client", "deleted_client"})


class Fields:
    """One JSON object of an answer; `where` is its place in it (`messages[2].`)."""

    def __init__(self, fields: Mapping[str, Any], where: str = "") -> None:
        self._fields = fields
        self._where = where

    def refuse(self, name: str, rule: str) -> NoReturn:
        """BadAnswer about that field."""
        field = f"{self._where}{name}"
        raise BadAnswer(f"{field} {rule}", field=field)

    def value(self, name: str) -> object:
        """Whatever stands there, `ABSENT` where nothing does."""
        return self._fields.get(name, ABSENT)

    def text(self, name: str, *, longest: int) -> str:
        """A text of printable characters, neither empty nor too long."""
        found = self._fields.get(name)
        if not isinstance(found, str):
            self.refuse(name, "must be a text")
        if not 0 < len(found) <= longest or not found.isprintable():
            self.refuse(name, f"must have 1 to {longest} printable characters")
        return found

    def id(self, name: str) -> str:
        """One of Google's ids: letters, digits, hyphen, underscore."""
        return self._matched(name, _ID, "must be an id")

    def page(self, name: str) -> str:
        """A page token; empty where there is none."""
        return self._matched(name, _PAGE, "must be a page token") if name in self._fields else ""

    def token(self, name: str, *, longest: int) -> str:
        """Visible ASCII without spaces: what fits into a header as it is."""
        found = self.text(name, longest=longest)
        if not found.isascii() or " " in found:
            self.refuse(name, "must be ASCII without spaces")
        return found

    def whole(self, name: str, *, least: int, most: int) -> int:
        """A JSON number without a fraction, in its bounds."""
        found = self._fields.get(name)
        if not isinstance(found, int) or isinstance(found, bool) or not least <= found <= most:
            self.refuse(name, f"must be a whole number from {least} to {most}")
        return found

    def decimal(self, name: str) -> int:
        """A whole number that Google writes as a text, of 63 bits."""
        found = int(self._matched(name, _DECIMAL, "must be a number written as a text"))
        if found >= 2**63:
            self.refuse(name, "must be below 2**63")
        return found

    def flag(self, name: str) -> bool:
        """True or false, and nothing that looks like it."""
        found = self._fields.get(name)
        if not isinstance(found, bool):
            self.refuse(name, "must be true or false")
        return found

    def labels(self, name: str) -> frozenset[str]:
        """A list of distinct label ids; none where it is absent."""
        found = self._fields.get(name, [])
        if not isinstance(found, list) or len(found) > 200:
            self.refuse(name, "must be a list of labels")
        labels = {one for one in found if isinstance(one, str) and 0 < len(one) <= 100}
        if len(labels) != len(found):
            self.refuse(name, "must hold distinct label ids")
        return frozenset(labels)

    def within(self, name: str) -> Fields:
        """An object inside this one."""
        found = self._fields.get(name)
        if not isinstance(found, dict):
            self.refuse(name, "must be an object")
        return Fields(found, f"{self._where}{name}.")

    def each(self, name: str, *, most: int) -> Iterator[Fields]:
        """The objects of a list; none where it is absent."""
        found = self._fields.get(name, [])
        if not isinstance(found, list) or len(found) > most:
            self.refuse(name, f"must be a list of at most {most}")
        for number, one in enumerate(found):
            if not isinstance(one, dict):
                self.refuse(f"{name}[{number}]", "must be an object")
            yield Fields(one, f"{self._where}{name}[{number}].")

    def content(self, name: str) -> bytes:
        """Bytes as base64url, with or without padding, in the one way to write them."""
        written = self._matched(name, _BASE64URL, "must be base64url").rstrip("=")
        try:
            content = base64.b64decode(written + "=" * (-len(written) % 4), b"-_", validate=True)
        except binascii.Error:
            self.refuse(name, "must be base64url")
        if base64.urlsafe_b64encode(content).rstrip(b"=").decode() != written:
            self.refuse(name, "must be base64url without stray bits")
        return content

    def _matched(self, name: str, pattern: re.Pattern[str], rule: str) -> str:
        found = self._fields.get(name)
        if not isinstance(found, str) or pattern.match(found) is None:
            self.refuse(name, rule)
        return found


def opened(response: Response) -> Fields:
    """The JSON object of a 200. RedirectRefused, Missing, StatusRefused or BadAnswer otherwise."""
    refuse_status(response)
    return _object(response)


def opened_token(response: Response) -> Fields:
    """The same for the token endpoint, whose 4xx carry a word that says who has to act."""
    if response.status in (400, 401):
        word = _token_word(response)
        if word == "invalid_grant":
            raise NeedsReconnect
        if word in _CLIENT_WORDS:
            raise CredentialRefused(f"Google does not accept the client id and secret: {word}")
    refuse_status(response)
    return _object(response)


def refuse_status(response: Response) -> None:
    """Everything but a 200 is an error."""
    status = response.status
    if status == 200:
        return
    if 300 <= status < 400:
        raise RedirectRefused(f"Google answered {status} with another address; none is followed")
    if status == 404:
        raise Missing
    about_rates = status == 403 and bool(_reasons(response) & _RATES)
    raise StatusRefused(status, passing=status in _PASSING or status >= 500 or about_rates)


def _object(response: Response) -> Fields:
    encoding = response.headers.get("content-encoding", "identity").lower()
    if encoding != "identity":
        raise BadAnswer("the answer is encoded, which nobody asked for", field="content-encoding")
    if _JSON_TYPE.match(response.headers.get("content-type", "")) is None:
        raise BadAnswer("the answer is no JSON by its type", field="content-type")
    return Fields(_decoded(response.body))


def _decoded(body: bytes) -> dict[str, Any]:
    try:
        found = json.loads(
            body.decode("utf-8"), object_pairs_hook=_once, parse_constant=_no_constant
        )
    except (ValueError, RecursionError):
        # The parser's own words quote the answer: they are not passed on.
        raise BadAnswer("the answer is no JSON", field="body") from None
    if not isinstance(found, dict):
        raise BadAnswer("the answer must be a JSON object", field="body")
    return found


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) != len(pairs):
        names = [name for name, _ in pairs]
        doubled = next(name for name in names if names.count(name) > 1)
        shown = doubled if _ID.match(doubled) else "a name"
        raise BadAnswer(f"{shown} stands twice in one object", field=shown)
    return fields


def _no_constant(name: str) -> NoReturn:
    raise BadAnswer(f"{name} is no JSON number", field="body")


def _token_word(response: Response) -> str:
    """The `error` of a refused refresh; empty where it is none of the plain words."""
    try:
        word = _decoded(response.body).get("error")
    except BadAnswer:
        return ""
    return word if isinstance(word, str) else ""


def _reasons(response: Response) -> set[str]:
    """The reasons of an error of Gmail's; empty where they cannot be read."""
    try:
        told = Fields(_decoded(response.body)).within("error")
        return {str(one.value("reason")) for one in told.each("errors", most=20)}
    except BadAnswer:
        return set()
