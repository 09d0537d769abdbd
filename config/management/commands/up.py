"""`manage.py up`: the whole house in the foreground, and with `--demo` a small world in it."""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import sys
import threading
from pathlib import Path
from types import FrameType
from typing import Any

from django.conf import settings
from django.contrib.auth import get_user_model
from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandParser
from django.db import connections

from config import setup
from config.demo import prerequisites
from config.supervision import Child, Supervisor
from guards.fronts.commands import prerequisite_missing

#: The demo's mail ports, the same at each start where they are free: mail clients stay set up.
_MAIL_PORTS = (14143, 14993, 14587, 14465)


class Command(BaseCommand):
    """Start web, worker and watcher, keep them running, and stop them all at Ctrl-C.

    The first start migrates the database, makes the installation's keys and an operator's login,
    which is printed once. A second start goes on where the first one was.
    """

    help = "Run everything in the foreground. Example: manage.py up --demo"
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: CommandParser) -> None:
        """Where to listen, and whether to play the demo."""
        parser.add_argument("--host", default="127.0.0.1", help="address of the console")
        parser.add_argument("--port", type=int, default=8000, help="port of the console")
        parser.add_argument("--demo", action="store_true", help="with mail server and sample mail")

    def handle(self, *args: Any, **options: Any) -> None:
        """Prepare, start, tend, stop."""
        _require(demo=options["demo"])
        if options["demo"]:
            _name_demo_owner()
        call_command("prepare")
        self._create_operator()
        connections.close_all()
        os.environ.setdefault("LOG_LEVEL", "WARNING")  # the console shows the rest
        supervisor = Supervisor(self._say)
        stop = _stop_on_signal()
        try:
            self._run(supervisor, stop, options)
        finally:
            self._say("stopping")
            supervisor.stop_all()

    def _run(self, supervisor: Supervisor, stop: threading.Event, options: dict[str, Any]) -> None:
        host, port = options["host"], options["port"]
        supervisor.start(Child("web", ["web", "--host", host, "--port", str(port)]))
        if options["demo"]:
            self._prepare_demo(supervisor)
        where = {} if os.environ.get("MCP_URL") else {"MCP_URL": mcp_url(host, port)}
        supervisor.start(Child("worker", ["worker"], environment=where))
        supervisor.start(Child("watcher", ["watch_mail"]))
        self._say(f"The console is at http://{host}:{port}/admin/. Ctrl-C stops everything.")
        if options["demo"]:
            threading.Thread(target=self._tell, daemon=True).start()
        while not stop.wait(0.25):
            supervisor.tend()

    def _prepare_demo(self, supervisor: Supervisor) -> None:
        from config.demo import scene
        from config.demo.performance import start_mail
        from config.demo.world import World
        from config.embedded_mail import Ports

        self._world = World(Path(settings.DATA_DIR) / "demo")
        self._ports = start_mail(self._world, supervisor, Ports(*_MAIL_PORTS))
        try:
            scene.build(self._world, self._ports)
        except scene.DemoCommandRefused as refused:
            self._say(f"The demo's commands are not loaded, so its mail runs nothing: {refused}")
        connections.close_all()
        self._introduce()

    def _introduce(self) -> None:
        """Say how a mail client reaches the first agent."""
        from config.demo import cast

        ports, olga = self._ports, cast.OLGA.address
        self._say(
            f"Demo mail: IMAP 127.0.0.1:{ports.imap} (STARTTLS) or :{ports.imaps} (TLS), "
            f"SMTP :{ports.smtp} (STARTTLS) or :{ports.smtps} (TLS)\n"
            f"  log in as {olga} with {self._world.password(olga)}, write to {cast.ADA.address};\n"
            f"  all mailboxes: {self._world.mail / 'mailboxes.json'}"
        )

    def _tell(self) -> None:
        """Post the sample mails, once in the life of this installation."""
        from config.demo.performance import StepTimedOut, first_passes_done, post_all, wait_for
        from mail.models import Message

        try:
            if not Message.objects.exists():
                wait_for("the first pass over every account", first_passes_done)
                post_all(self._world, self._ports)
                self._say("Seven sample mails were posted; look at the console.")
        except (StepTimedOut, OSError) as fault:
            self._say(f"The sample mails were not posted: {fault}")
        finally:
            connections.close_all()

    def _create_operator(self) -> None:
        users = get_user_model().objects
        if users.filter(is_superuser=True).exists():
            return
        password = secrets.token_urlsafe(12)
        users.create_superuser(username="operator", password=password)
        self._say(f"Your login (shown once): operator / {password}")

    def _say(self, line: str) -> None:
        self.stdout.write(line)
        self.stdout.flush()


def mcp_url(host: str, port: int) -> str:
    """Where this machine reaches the MCP server of its own web process."""
    reached = {"0.0.0.0": "127.0.0.1", "::": "[::1]", "": "127.0.0.1"}.get(host, host)  # noqa: S104
    named = f"[{reached}]" if ":" in reached and not reached.startswith("[") else reached
    return f"http://{named}:{port}/mcp"


def _require(*, demo: bool) -> None:
    absent = [f"{name} (Debian: {name})" for name in ("gpgv",) if shutil.which(name) is None]
    if demo:
        absent = prerequisites.missing()
    if absent:
        raise prerequisite_missing(f"Countersign needs {', '.join(absent)}.")


def _name_demo_owner() -> None:
    """Without an owner of commands, make the demo's, and start anew with it.

    It is named in .env too, for other commands, unless its key lies outside of this checkout.
    """
    if settings.OWNER_FINGERPRINT or settings.OWNER_HANDLE:
        return
    from config.demo.world import World

    named = World(Path(settings.DATA_DIR) / "demo").owner_settings()
    if Path(settings.DATA_DIR).is_relative_to(settings.BASE_DIR):
        setup.add_settings(settings.BASE_DIR / ".env", named)
    os.environ.update(named)
    sys.stdout.flush()
    os.execv(sys.executable, [sys.executable, *sys.argv])  # noqa: S606 (ourselves, as started)


def _stop_on_signal() -> threading.Event:
    stop = threading.Event()

    def ask(number: int, frame: FrameType | None) -> None:
        stop.set()

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, ask)
    return stop
