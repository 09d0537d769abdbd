"""What `make setup` does beside installing: `.env` and the artifact key, once. Without Django.

Run it as `python -m config.setup`. An `.env` that exists is kept; only what it lacks is added. A
key that exists is never touched: what it encrypted could not be read any more.
"""

from __future__ import annotations

import base64
import os
import secrets
import sys
from pathlib import Path

BASE_DIR = Path(__file__).resolve().parent.parent

_HEAD = "# Settings of this installation. docs/settings.md lists them all.\n"


def names_in(text: str) -> set[str]:
    """The names that a file of NAME=value lines sets."""
    lines = (line.strip() for line in text.splitlines())
    return {line.split("=", 1)[0].strip() for line in lines if "=" in line and line[0] != "#"}


def add_settings(path: Path, settings: dict[str, str]) -> list[str]:
    """Append the settings that the file does not have yet (0600). The names that were added."""
    text = path.read_text(encoding="utf-8") if path.exists() else _HEAD
    missing = {name: value for name, value in settings.items() if name not in names_in(text)}
    if not missing:
        return []
    if not text.endswith("\n"):
        text += "\n"
    text += "".join(f"{name}={value}\n" for name, value in missing.items())
    path.touch(mode=0o600)
    path.chmod(0o600)
    path.write_text(text, encoding="utf-8")
    return list(missing)


def create_artifact_key(path: Path) -> bool:
    """Write a new Fernet key (0600) where there is none; whether it wrote one."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        path.touch(mode=0o600, exist_ok=False)
    except FileExistsError:
        return False
    path.write_bytes(base64.urlsafe_b64encode(secrets.token_bytes(32)) + b"\n")
    return True


def main() -> int:
    """Write `.env` with a fresh SECRET_KEY, and the artifact key, where there is none. Code 0."""
    added = add_settings(BASE_DIR / ".env", {"SECRET_KEY": secrets.token_urlsafe(50)})
    if added:
        sys.stdout.write(f"wrote {', '.join(added)} to .env\n")
    named = names_in((BASE_DIR / ".env").read_text(encoding="utf-8")) | set(os.environ)
    if not named & {"DATA_DIR", "ARTIFACT_KEY_REF"}:
        create_artifact_key(BASE_DIR / "var" / "keys" / "artifact.key")
    return 0


if __name__ == "__main__":
    sys.exit(main())
