"""Verifying one signed mail: ours against a temporary home that imports the whole keyring.

The other way, measured in the same run: make a temporary home, export all keys of a ring into it,
import them, `gpg --verify`, delete it. Ours must be 15 times faster with 20 keys in the ring, 100
times with 200, and take the same time whatever the number of keys.

    python -m bench.verify [rounds]
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")

from bench.harness import Benchmark, Sample, compare
from guards import openpgp
from guards.openpgp import SignatureOutcome
from guards.types import Pin

RING_SIZES = (1, 20, 200)
PAYLOAD = b"Content-Type: text/plain; charset=utf-8\r\n\r\n@agent weekly figures, please\r\n" * 40


def gpg(home: Path, *arguments: str, stdin: bytes = b"") -> bytes:
    return subprocess.run(
        ["gpg", "--batch", "--no-tty", "--yes", "--quiet", "--passphrase", "", *arguments],
        input=stdin,
        capture_output=True,
        check=True,
        env={"PATH": os.environ["PATH"], "GNUPGHOME": str(home), "LC_ALL": "C"},
    ).stdout


def make_ring(home: Path, keys: int) -> list[Pin]:
    """`keys` generated keys in `home`, each pinned to its address."""
    for number in range(keys):
        uid = f"Key {number} <key{number}@example.org>"
        gpg(home, "--quick-generate-key", uid, "ed25519", "sign", "1y")
    pins = []
    for number in range(keys):
        facts = openpgp.read_key(gpg(home, "--export", f"key{number}@example.org"))
        address = frozenset({f"key{number}@example.org"})
        pins.append(Pin(address, facts.fingerprint, facts.binary))
    return pins


def verify_the_other_way(ring: Path, signature: bytes) -> None:
    """Temporary home, export all, import, verify, delete."""
    with tempfile.TemporaryDirectory(prefix="csb-", dir="/tmp") as folder:
        home = Path(folder)
        (home / "text").write_bytes(PAYLOAD)
        (home / "signature").write_bytes(signature)
        gpg(home, "--import", stdin=gpg(ring, "--export"))
        gpg(home, "--verify", str(home / "signature"), str(home / "text"))


def run_size(ring: Path, size: int, rounds: int) -> tuple[Sample, Sample]:
    """Ours and the other way with a ring of `size` keys."""
    pins = make_ring(ring, size)
    signer = pins[size // 2].fingerprint
    signature = gpg(ring, "--armor", "--local-user", signer, "--detach-sign", stdin=PAYLOAD)
    verifier = openpgp.verifier()

    def ours() -> None:
        report = verifier.verify(signed=PAYLOAD, signature=signature, pins=pins, now=None)
        if report.outcome is not SignatureOutcome.GOOD or report.signer != signer:
            raise AssertionError(report)

    other: Callable[[], None] = lambda: verify_the_other_way(ring, signature)  # noqa: E731
    return compare(ours, other, rounds=rounds, warmup=2)


def main(rounds: int) -> None:
    samples: dict[int, Sample] = {}
    with Benchmark("verify") as benchmark:
        for size in RING_SIZES:
            ring = Path(tempfile.mkdtemp(prefix="csb-", dir="/tmp"))
            try:
                ours, other = run_size(ring, size, rounds)
            finally:
                subprocess.run(
                    ["gpgconf", "--kill", "all"],
                    env={"PATH": os.environ["PATH"], "GNUPGHOME": str(ring)},
                )
                shutil.rmtree(ring, ignore_errors=True)
            samples[size] = ours
            bound = {20: 15.0, 200: 100.0}.get(size, 1.0)
            benchmark.claim(f"ring of {size}", ours=ours, floor=other, at_least=bound)
        growth = samples[200].median / samples[1].median
        benchmark.ratio("growth from 1 key to 200", growth, at_most=1.3)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 25)
