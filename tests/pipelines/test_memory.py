"""A process that runs stages keeps the memory that one needed for the next."""

from __future__ import annotations

import platform
import resource
import subprocess
import sys

import pytest

from pipelines import memory

_FAULTS = """
import resource
from pipelines import memory
{call}
def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(20):
        blocks = [bytearray(1_000_000) for _ in range(8)]
        del blocks
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
faults()
print(faults())
"""


def _faults(call: str) -> int:
    code = _FAULTS.format(call=call)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return int(done.stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="it is glibc that is told")
def test_blocks_of_a_megabyte_are_not_taken_anew_each_time():
    pages = 20 * 8 * 1_000_000 // resource.getpagesize()
    assert _faults("memory.keep_heap()") < pages // 20
    assert _faults("") > pages // 2


def test_it_may_be_said_again_and_where_nobody_listens(monkeypatch):
    monkeypatch.setattr(memory.ctypes, "CDLL", lambda _: object())
    memory.keep_heap.cache_clear()
    memory.keep_heap()
    memory.keep_heap()
    memory.keep_heap.cache_clear()
