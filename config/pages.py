"""The admin as this house starts it: its pages are looked for with the addresses, not before.

A worker, a watcher and most commands never show a page, and start without importing one.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any

from django.apps import AppConfig
from django.conf import settings
from django.contrib.admin.apps import SimpleAdminConfig
from django.contrib.admin.checks import check_admin_app, check_dependencies
from django.core.checks import CheckMessage, Tags, register


class PagesConfig(SimpleAdminConfig):
    """django.contrib.admin without its search for pages, which `config.urls` begins."""

    def ready(self) -> None:
        """Have the pages checked, all of them."""
        register(check_dependencies, Tags.admin)
        register(check_pages, Tags.admin)


def check_pages(app_configs: Sequence[AppConfig] | None, **options: Any) -> list[CheckMessage]:
    """Django's own check of every page, once the pages are there."""
    import_module(settings.ROOT_URLCONF)
    return check_admin_app(app_configs, **options)
