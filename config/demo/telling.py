"""How the demo's stories are told: progress beside the report."""

from __future__ import annotations

import sys


def say(line: str) -> None:
    """One line of progress, beside the report on standard output."""
    sys.stderr.write(line + "\n")
    sys.stderr.flush()
