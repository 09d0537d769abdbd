"""What a secret reference may look like, and what looks like a secret itself."""

from __future__ import annotations

import re
from dataclasses import dataclass

from guards.exceptions import InvalidInput

SCHEMES = ("env", "file", "cmd", "pass", "secret-tool", "keyring")

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,63}")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
_SCHEME = re.compile(r"([a-z][a-z0-9-]*):(.*)", re.DOTALL)

#: How tokens of well-known issuers begin, our own included.
_TOKEN = re.compile(
    r"(sk-|sk_|pk_|rk_|gh[opsur]_|github_pat_|glpat-|xox[abpr]-|AKIA|ASIA|AIza|ya29\.|eyJ|cs_|cst_"
    r"|-----BEGIN)"
)


@dataclass(frozen=True, slots=True)
class Reference:
    """A reference taken apart; `scheme` is empty for a bare name."""

    scheme: str
    rest: str


def parse(text: str) -> Reference:
    """Take a reference apart; InvalidInput says what is wrong, without repeating the text."""
    if not text or text != text.strip() or any(ord(character) < 32 for character in text):
        raise InvalidInput("a secret reference is one line without outer spaces", field="reference")
    match = _SCHEME.fullmatch(text)
    if match is None:
        return Reference("", checked_name(text))
    scheme, rest = match.groups()
    if scheme not in SCHEMES:
        raise InvalidInput(
            f"a secret reference begins with one of {', '.join(SCHEMES)}, or is a bare name",
            field="reference",
        )
    _CHECKS[scheme](rest)
    return Reference(scheme, rest)


def validate_reference(text: str) -> None:
    """InvalidInput unless `text` is a secret reference, and not a secret itself."""
    reference = parse(text)
    if not reference.scheme and looks_raw(reference.rest):
        raise InvalidInput(
            "this looks like a secret itself: store it in a file or a password manager and give "
            "its reference, such as env:NAME or file:/path",
            field="reference",
        )


def looks_raw(text: str) -> bool:
    """Whether a bare name is more likely a password or a token."""
    if _TOKEN.match(text):
        return True
    words = re.split(r"[._-]", text)
    return any(_is_scrambled(word) for word in words)


def _is_scrambled(word: str) -> bool:
    """Words of names are in one case; digits stand at their end, and there are few."""
    mixed = re.search(r"[a-z][A-Z]|[A-Z]{2}[a-z]", word) is not None
    broken = re.search(r"[0-9][A-Za-z]", word) is not None and len(word) > 4
    return (
        broken or (mixed and (len(word) > 16 or any(c.isdigit() for c in word))) or (len(word) > 24)
    )


def checked_name(name: str) -> str:
    """A bare name, safe in a path and in a variable; InvalidInput otherwise."""
    if "/" in name or "\\" in name or ".." in name:
        raise InvalidInput("a secret's name holds no /, \\ or ..", field="reference")
    if _NAME.fullmatch(name) is None:
        raise InvalidInput(
            "a secret's name has letters, digits, dot, dash and underscore, begins with a letter, "
            "and has at most 64 of them",
            field="reference",
        )
    return name


def _check_variable(rest: str) -> None:
    if _VARIABLE.fullmatch(rest) is None:
        raise InvalidInput("env: is followed by a variable's name", field="reference")


def _check_file(rest: str) -> None:
    if not rest.startswith("/") or ".." in rest.split("/"):
        raise InvalidInput("file: is followed by an absolute path without ..", field="reference")


def _check_command(rest: str) -> None:
    if not rest.strip():
        raise InvalidInput("cmd: is followed by a program and its arguments", field="reference")


def _check_pass(rest: str) -> None:
    parts = rest.split("/")
    if not rest or rest.startswith("-") or "\\" in rest or any(p in ("", ".", "..") for p in parts):
        raise InvalidInput("pass: is followed by the path of an entry", field="reference")


def _check_pair(rest: str) -> None:
    service, slash, account = rest.partition("/")
    if not slash or not service or not account or "/" in account or "\\" in rest or ".." in rest:
        raise InvalidInput("this needs service/account", field="reference")
    if service.startswith("-") or account.startswith("-"):
        raise InvalidInput("neither service nor account begins with a dash", field="reference")


_CHECKS = {
    "env": _check_variable,
    "file": _check_file,
    "cmd": _check_command,
    "pass": _check_pass,
    "secret-tool": _check_pair,
    "keyring": _check_pair,
}
