"""Write every generated page."""

from __future__ import annotations

import os

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")

import django

django.setup()

from tests import faults, invariants  # noqa: E402
from tests.documents import names_page, settings_page  # noqa: E402
from tests.documents.paths import DOCS  # noqa: E402

for name, page in (
    ("settings.md", settings_page.page()),
    ("names.md", names_page.page()),
    ("field-faults.md", faults.page()),
    ("invariants.md", invariants.page()),
):
    (DOCS / name).write_text(page, encoding="utf-8")
    print(f"wrote docs/{name}")
