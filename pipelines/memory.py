"""The memory of a process that runs stages: what one stage needed stays for the next one.

glibc gives each block of a megabyte back to the system and takes it anew, page by page, several
times a stage. On a virtual machine those pages took a quarter of the time of a short pipeline.
"""

from __future__ import annotations

import ctypes
from contextlib import suppress
from functools import cache

#: Blocks up to this size come from the heap: all that a stage's output passes through.
FROM_HEAP = 16 * 1024**2
#: How much the heap may hold unused before it is given back, in bytes.
KEPT = 32 * 1024**2

#: glibc's names for them (malloc.h).
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3


@cache
def keep_heap() -> None:
    """Say so to glibc, once a process; elsewhere nothing happens."""
    with suppress(OSError, AttributeError):  # another C library, which has no `mallopt`
        libc = ctypes.CDLL(None)
        libc.mallopt(_M_MMAP_THRESHOLD, FROM_HEAP)
        libc.mallopt(_M_TRIM_THRESHOLD, KEPT)
