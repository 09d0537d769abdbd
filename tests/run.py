"""`make test`: the whole suite on SQLite, then all that touches the database on PostgreSQL.

`python -m tests.run [pytest's arguments]`. Services are started on free loopback ports and stopped.
"""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import ExitStack
from tempfile import TemporaryDirectory

from tests.servers.postgres import VARIABLE, PostgresServer, running_postgres
from tests.servers.presence import find_binary
from tests.servers.processes import SHARED

_SERVICES = {
    "gpg": "gnupg",
    "gpgv": "gpgv",
    "dovecot": "dovecot-imapd",
    "postgres": "postgresql",
    "redis-server": "redis-server",
    "bwrap": "bubblewrap",
    "claude": "none; requirements/test.txt brings it",
    "chromium": "chromium",
    "chromedriver": "chromium-driver",
}


def main(arguments: list[str]) -> int:
    """Run the suite on both databases. 0 when both runs passed."""
    missing = {name: package for name, package in _SERVICES.items() if not find_binary(name)}
    for name, package in missing.items():
        print(f"missing: {name} (Debian: {package}); its tests are skipped, or fail in CI")
    environment = dict(os.environ)
    environment.pop("DATABASE_URL", None)
    # Hundreds of children start, and each would compile the program again.
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    with ExitStack() as stack:
        environment[SHARED] = stack.enter_context(TemporaryDirectory(prefix="cs-", dir="/tmp"))
        postgres: PostgresServer | None = None
        if "postgres" not in missing:
            postgres = stack.enter_context(running_postgres())
            environment[VARIABLE] = str(postgres.port)
        # A third process has the processors while two wait for children, servers and the disk.
        codes = [_suite("SQLite", environment, ["-n", "3", "-m", "not soak", *arguments])]
        if postgres is not None:
            url = postgres.new_database()
            fewer = [
                "-n",
                "2",
                "--touching-database",
                "-m",
                "not acceptance and not browser and not soak",
            ]
            codes.append(
                _suite("PostgreSQL", {**environment, "DATABASE_URL": url}, [*fewer, *arguments])
            )
        elif os.environ.get("CI") == "true":
            codes.append(1)
    return max(codes)


def _suite(name: str, environment: dict[str, str], arguments: list[str]) -> int:
    print(f"--- the suite on {name}", flush=True)
    return subprocess.run(
        [sys.executable, "-m", "pytest", "--dist", "worksteal", *arguments],
        env=environment,
    ).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
