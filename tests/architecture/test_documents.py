"""Pages that say what the code says: generated, and true."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests import faults, invariants
from tests.documents import names_page, settings_page
from tests.documents.paths import DOCS, ROOT


@pytest.mark.parametrize(
    ("name", "page"),
    [
        ("settings.md", settings_page.page),
        ("names.md", names_page.page),
        ("field-faults.md", faults.page),
        ("invariants.md", invariants.page),
    ],
)
def test_a_generated_page_is_current(name: str, page):
    assert (DOCS / name).read_text(encoding="utf-8") == page(), "run `make docs`"


def test_every_invariant_is_held_or_said_to_be_open():
    held = invariants.held()
    assert set(held) == set(invariants.SENTENCES) == set(range(1, 26))
    silent = [number for number, tests in held.items() if not tests]
    assert [number for number in silent if number not in invariants.OPEN] == []


def test_every_setting_has_a_meaning():
    rows = [row for row in settings_page.page().splitlines() if row.startswith("| `")]
    assert [row for row in rows if row.endswith("|  |")] == []


def test_env_example_names_only_settings_that_exist():
    text = (ROOT / ".env.example").read_text(encoding="utf-8")
    known = set(re.findall(r"\| `([A-Z_]+)` \|", settings_page.page()))
    named = set(re.findall(r"^#?([A-Z_]+)=", text, re.MULTILINE))
    assert named <= known


def _pages() -> list[Path]:
    return [*ROOT.glob("*.md"), *DOCS.rglob("*.md")]


def test_every_relative_link_leads_somewhere():
    broken = [
        f"{path.relative_to(ROOT)}: {target}"
        for path in _pages()
        for target in re.findall(r"\]\(([^)#]+)", path.read_text(encoding="utf-8"))
        if "://" not in target and not (path.parent / target).exists()
    ]
    assert broken == []


def test_the_readme_names_only_make_targets_that_exist():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z]+):", makefile, re.MULTILINE))
    used = set(re.findall(r"`make ([a-z]+)`", (ROOT / "README.md").read_text(encoding="utf-8")))
    assert used <= targets
