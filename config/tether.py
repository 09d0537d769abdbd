"""Starts a program that ends when its parent dies. Run as a file; imports nothing of the house.

`tether.py PARENT_PID PROGRAM ARGUMENT…`: on Linux the program gets SIGTERM if its
parent dies, however it dies. The wish survives the exec, so no process stays between.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from typing import NoReturn

_PR_SET_PDEATHSIG = 1


def main(arguments: list[str]) -> NoReturn:
    """Ask for the signal, then become the program; exit 1 if the parent is gone already."""
    parent, *program = arguments
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
        if os.getppid() != int(parent):
            sys.exit(1)
    os.execv(program[0], program)  # noqa: S606 (no shell; the arguments are the supervisor's own)


if __name__ == "__main__":
    main(sys.argv[1:])
