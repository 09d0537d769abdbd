"""`manage.py web`: the console, the API and the feed, served by daphne."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandParser


class Command(BaseCommand):
    """Serve HTTP and websockets until SIGTERM or SIGINT; on loopback unless told otherwise."""

    help = "Serve the console and the API. Example: manage.py web --port 8000"

    def add_arguments(self, parser: CommandParser) -> None:
        """Where to listen."""
        parser.add_argument("--host", default="127.0.0.1", help="address to listen on")
        parser.add_argument("--port", type=int, default=8000, help="port to listen on")

    def handle(self, *args: Any, **options: Any) -> None:
        """Run daphne in this process."""
        from daphne.endpoints import build_endpoint_description_strings
        from daphne.server import Server

        # Collected files may lie there; WhiteNoise warns of a folder that is missing.
        Path(settings.STATIC_ROOT).mkdir(parents=True, exist_ok=True)
        from config.asgi import application

        Server(
            application,
            endpoints=build_endpoint_description_strings(
                host=options["host"], port=options["port"]
            ),
            server_name="countersign",
            websocket_timeout=-1,
            websocket_handshake_timeout=10,
        ).run()
