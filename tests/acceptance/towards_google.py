"""Leads the processes of an installation of a test to the Google of that test."""

from __future__ import annotations

import json
import os

from django.apps import AppConfig

#: A JSON object: the name of each host, and where it answers.
ORIGINS = "TEST_GOOGLE_ORIGINS"


class TowardsGoogle(AppConfig):
    """Stands after mail, which registers the real hosts."""

    name = "tests.acceptance"

    def ready(self) -> None:
        """Register a client of the test's own hosts."""
        from mail.gateways.google.client import GoogleClient
        from mail.gateways.google.http import Host, HttpWire
        from mail.registry import register_google

        given = json.loads(os.environ[ORIGINS])
        register_google(GoogleClient(HttpWire({Host[name]: at for name, at in given.items()})))
