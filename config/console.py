"""The console's look: django-unfold's settings."""

from __future__ import annotations

from typing import Any

UNFOLD: dict[str, Any] = {
    "SITE_TITLE": "Countersign",
    "SITE_HEADER": "Countersign",
    "SITE_SYMBOL": "approval_delegation",
    "SHOW_HISTORY": False,
}
