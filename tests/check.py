"""`make check`: everything that can be said about the code without running it.

`python -m tests.check` runs every step, also after one failed, and names those that did.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BIN = Path(sys.executable).parent
APPS = ("guards", "approvals", "teams", "mail", "pipelines", "config")

#: `check --deploy` looks at an installation behind TLS with a key of its own.
_DEPLOYED = {
    "HTTPS": "true",
    "DEBUG": "false",
    "SECRET_KEY": "checked-as-if-deployed-" + "0123456789abcdefghijklmnopqrstuvwxyz" * 2,
}

STEPS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("ruff check", ("ruff", "check", ".")),
    ("ruff format", ("ruff", "format", "--check", ".")),
    ("mypy", ("mypy", *APPS)),
    ("layers, rooms and doors", ("lint-imports",)),
    ("migrations", ("python", "manage.py", "makemigrations", "--check", "--dry-run")),
    ("deployment", ("python", "manage.py", "check", "--deploy", "--fail-level", "WARNING")),
    ("templates", ("djlint", "--lint", "--quiet", "templates", *APPS)),
    ("architecture and documents", ("pytest", "-q", "tests/architecture")),
)


def main() -> int:
    """Run all steps. 0 when each passed."""
    failed = [name for name, command in STEPS if not _passes(name, command)]
    print(f"failed: {', '.join(failed)}" if failed else "all checks passed")
    return 1 if failed else 0


def _passes(name: str, command: tuple[str, ...]) -> bool:
    started = time.monotonic()
    done = subprocess.run(
        [str(BIN / command[0]), *command[1:]],
        cwd=ROOT,
        env={**os.environ, **(_DEPLOYED if name == "deployment" else {})},
        capture_output=True,
        text=True,
    )
    seconds = time.monotonic() - started
    print(f"{'ok  ' if done.returncode == 0 else 'FAIL'} {name} ({seconds:.1f} s)", flush=True)
    if done.returncode:
        print(done.stdout + done.stderr, flush=True)
    return done.returncode == 0


if __name__ == "__main__":
    sys.exit(main())
