"""What this host has for workers of the `claude` runner, for whoever looks after it.

Both may start a program: never inside a transaction.
"""

from __future__ import annotations

from pathlib import Path

from pipelines.runners.claude import preflight, sandbox


def program() -> Path:
    """The `claude` program that workers would be; BinaryNotAllowed says what to do without it."""
    return preflight.find_program()


def sandbox_hindrance() -> str:
    """Why a worker could not be confined here, tried with the walls that it gets; "" if it can."""
    return sandbox.missing()
