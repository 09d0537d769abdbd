"""`python -m config.demo`: tells the story once in the data directory of its environment.

`manage.py demo` makes that directory and starts this; it is not meant to be called by hand.
"""

from __future__ import annotations

import argparse
import gc
import json
import sys
import time
from pathlib import Path


def main(arguments: list[str]) -> int:
    """Play and print the report. 0 as told, 1 otherwise, 2 for a database that is in use."""
    parser = argparse.ArgumentParser(prog="config.demo")
    parser.add_argument("--crash", choices=["after-mark", "after-data"])
    parser.add_argument("--unknown", action="store_true")
    parser.add_argument("--started", type=float, default=time.time())
    options = parser.parse_args(arguments)

    gc.disable()  # as in manage.py
    import django

    django.setup()
    from django.contrib.auth import get_user_model
    from django.core.management import call_command

    from config.demo.telling import say
    from guards.models import Identity

    call_command("migrate", verbosity=0, interactive=False)
    if get_user_model().objects.exists() or Identity.objects.exists():
        say("This database is in use; the demo wants an empty one.")
        return 2
    if options.unknown:
        return _tell_unknown()
    return _tell_all(options.crash, options.started)


def _tell_unknown() -> int:
    """The story of a lost answer."""
    from config.demo import unknown
    from config.demo.telling import say

    told = unknown.play(say)
    for wrong in told.wrong:
        say(f"not as told: {wrong}")
    sys.stdout.write(json.dumps(told.as_json()) + "\n")
    return 1 if told.wrong else 0


def _tell_all(crash: str | None, started: float) -> int:
    """The whole story, with the processes of a real installation."""
    from django.conf import settings

    from config.demo.performance import Performance, StepTimedOut, start_mail
    from config.demo.report import Told, report
    from config.demo.telling import say
    from config.demo.world import World
    from config.supervision import Supervisor

    world = World(Path(settings.DATA_DIR) / "demo")
    supervisor = Supervisor(say)
    told = Told()
    try:
        told = Performance(world, supervisor, start_mail(world, supervisor)).play(crash)
    except StepTimedOut as late:
        told.failures.append(str(late))
    finally:
        supervisor.stop_all()
    answer = report(world, told, time.time() - started)
    sys.stdout.write(json.dumps(answer) + "\n")
    return 0 if answer["ok"] else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
