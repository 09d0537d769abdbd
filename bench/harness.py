"""How every benchmark of ours runs: beside its floor, in the same run, as a ratio.

    with Benchmark("verify") as benchmark:
        ours, floor = compare(verify_one, the_old_way, rounds=30)
        benchmark.claim("one mail, 20 keys", ours=ours, floor=floor, at_least=15)

Absolute times say more about the machine than about the program; ratios of two things measured in
turns on the same machine do not. Results are printed and kept as JSON in bench/results/NAME.json.
The process ends with 1 when a claim is missed.
"""

from __future__ import annotations

import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType

RESULTS = Path(__file__).resolve().parent / "results"


@dataclass(frozen=True)
class Sample:
    """Repeated measurements of one thing, in seconds."""

    median: float
    fastest: float
    p90: float
    rounds: int

    @classmethod
    def of(cls, seconds: Sequence[float]) -> Sample:
        ordered = sorted(seconds)
        return cls(
            median=statistics.median(ordered),
            fastest=ordered[0],
            p90=ordered[min(len(ordered) - 1, int(len(ordered) * 0.9))],
            rounds=len(ordered),
        )


def time_once(function: Callable[[], object]) -> float:
    """The seconds of one call."""
    began = time.perf_counter()
    function()
    return time.perf_counter() - began


def measure(function: Callable[[], object], *, rounds: int, warmup: int = 1) -> Sample:
    """Call it `warmup` times unmeasured, then `rounds` times."""
    for _ in range(warmup):
        function()
    return Sample.of([time_once(function) for _ in range(rounds)])


def compare(
    ours: Callable[[], object], floor: Callable[[], object], *, rounds: int, warmup: int = 1
) -> tuple[Sample, Sample]:
    """Measure both in turns, so that what else the machine does falls on both alike."""
    for _ in range(warmup):
        ours()
        floor()
    pairs = [(time_once(ours), time_once(floor)) for _ in range(rounds)]
    return Sample.of([pair[0] for pair in pairs]), Sample.of([pair[1] for pair in pairs])


@dataclass
class Claim:
    """One promise: a ratio of medians and the bound it must keep."""

    name: str
    ratio: float
    bound: str
    kept: bool
    ours: Sample | None = None
    floor: Sample | None = None
    note: str = ""


@dataclass
class Benchmark:
    """Collects the claims of one benchmark; leaving the `with` block prints and keeps them."""

    name: str
    claims: list[Claim] = field(default_factory=list)
    facts: dict[str, object] = field(default_factory=dict)

    def claim(
        self,
        name: str,
        *,
        ours: Sample,
        floor: Sample,
        at_least: float | None = None,
        at_most: float | None = None,
        note: str = "",
    ) -> Claim:
        """`at_least`: we are so many times faster than the floor. `at_most`: so many times slower.

        With neither, the ratio (ours to floor) is only told.
        """
        if at_least is not None:
            return self.ratio(
                name, floor.median / ours.median, at_least=at_least, ours=ours, floor=floor,
                note=note,
            )  # fmt: skip
        return self.ratio(
            name, ours.median / floor.median, at_most=at_most, ours=ours, floor=floor, note=note
        )

    def ratio(
        self,
        name: str,
        ratio: float,
        *,
        at_least: float | None = None,
        at_most: float | None = None,
        ours: Sample | None = None,
        floor: Sample | None = None,
        note: str = "",
    ) -> Claim:
        """A ratio that was worked out elsewhere, with its bound."""
        bound, kept = "told", True
        if at_least is not None:
            bound, kept = f">= {at_least:g}", ratio >= at_least
        elif at_most is not None:
            bound, kept = f"<= {at_most:g}", ratio <= at_most
        claim = Claim(name, ratio, bound, kept, ours, floor, note)
        self.claims.append(claim)
        return claim

    def __enter__(self) -> Benchmark:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is not None:
            return
        self._print()
        self._keep()
        if not all(claim.kept for claim in self.claims):
            sys.exit(1)

    def _print(self) -> None:
        for claim in self.claims:
            word = "ok  " if claim.kept else "MISS"
            times = ""
            if claim.ours and claim.floor:
                ours, floor = claim.ours.median * 1000, claim.floor.median * 1000
                times = f"  ours {ours:.2f} ms, floor {floor:.2f} ms"
            print(f"{word} {self.name}: {claim.name}: {claim.ratio:.2f} ({claim.bound}){times}")
            if claim.note:
                print(f"     {claim.note}")

    def _keep(self) -> None:
        RESULTS.mkdir(exist_ok=True)
        document = {
            "benchmark": self.name,
            "at": datetime.now(UTC).isoformat(timespec="seconds"),
            "machine": {
                "system": platform.system(),
                "python": platform.python_version(),
                "processors": os.cpu_count(),
            },
            "facts": self.facts,
            "claims": [asdict(claim) for claim in self.claims],
        }
        path = RESULTS / f"{self.name}.json"
        path.write_text(json.dumps(document, indent=2, default=str) + "\n")
