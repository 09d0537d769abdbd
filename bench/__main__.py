"""Run every benchmark, one after the other, each in a process of its own: `python -m bench`.

Names may follow to choose some. The exit code is 1 when a claim was missed, 3 when a benchmark
could not run because something it needs is missing (it says what).
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
PARTS = frozenset({"__init__", "__main__", "bare_queue", "harness", "house"})


def names() -> list[str]:
    """All benchmarks."""
    return sorted(path.stem for path in FOLDER.glob("*.py") if path.stem not in PARTS)


def main(chosen: list[str]) -> int:
    unknown = sorted(set(chosen) - set(names()))
    if unknown:
        print(f"no such benchmark: {', '.join(unknown)}; there are {', '.join(names())}")
        return 2
    codes = []
    for name in chosen or names():
        print(f"# {name}", flush=True)
        done = subprocess.run([sys.executable, "-m", f"bench.{name}"], cwd=FOLDER.parent)
        codes.append(done.returncode)
    return next((code for code in codes if code), 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
