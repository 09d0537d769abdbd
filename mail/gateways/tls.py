"""TLS by port (DES-023): what a context checks, and which ports are TLS from the first byte."""

from __future__ import annotations

import ssl

from mail.gateways.base import Endpoint

IMAPS = 993
SMTPS = 465


def context(endpoint: Endpoint) -> ssl.SSLContext:
    """A client context; certificates go unchecked only where the endpoint says that they may."""
    made = ssl.create_default_context()
    if not endpoint.checks_certificate:
        made.check_hostname = False
        made.verify_mode = ssl.CERT_NONE
    return made
