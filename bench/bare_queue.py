"""django-q2 as it comes, on the same database and with the same numbers: a floor for ours.

`python -m bench.bare_queue` is its cluster, in a process of its own, until SIGTERM.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path

from guards.queue import task


@task
def nothing(path: str) -> None:
    """An empty task; its moment is appended to a file, so that nobody has to look at the queue."""
    with Path(path).open("a") as file:
        file.write(f"{time.time()}\n")


def use_its_own_broker() -> None:
    """The broker that django-q2 brings for the ORM, in place of ours."""
    from django_q.conf import Conf

    Conf.BROKER_CLASS = None


def main() -> None:
    import django

    django.setup()
    use_its_own_broker()
    from django_q.cluster import Cluster

    stop = threading.Event()
    cluster = Cluster()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    cluster.start()
    stop.wait()
    cluster.stop()


if __name__ == "__main__":
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
    main()
