"""Units, image, compose file and the commands that documents name: true as far as form goes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml
from django.core.management import get_commands

from tests.documents.paths import DOCS, ROOT

UNITS = sorted((ROOT / "deploy" / "systemd").glob("*.service"))
COMPOSE = yaml.safe_load((ROOT / "compose.yaml").read_text(encoding="utf-8"))
DOCKERFILE = (ROOT / "Dockerfile").read_text(encoding="utf-8")
OURS = {name: one for name, one in COMPOSE["services"].items() if name != "database"}
PAGES = [*ROOT.glob("*.md"), *DOCS.rglob("*.md")]


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_each_unit_starts_a_command_that_exists(unit: Path):
    started = re.findall(r"^ExecStart=.*manage\.py (\w+)", unit.read_text(), re.MULTILINE)
    assert len(started) == 1 and started[0] in get_commands()


@pytest.mark.parametrize("name", ["web", "worker", "watcher"])
def test_a_unit_is_stopped_by_its_main_process_and_writes_to_its_data_only(name: str):
    lines = (ROOT / "deploy" / "systemd" / f"countersign-{name}.service").read_text().splitlines()
    assert {"KillMode=mixed", "User=countersign", "ProtectSystem=strict"} <= set(lines)


@pytest.mark.parametrize("name", OURS)
def test_each_container_is_confined(name: str):
    service = OURS[name]
    assert service["command"][0] in get_commands()
    assert service["read_only"] is True and service["cap_drop"] == ["ALL"]
    assert service["init"] is True, "a signal has to reach the main process only"
    assert any(mount.startswith("/run/gnupg:mode=0700") for mount in service["tmpfs"])


def test_the_image_copies_what_exists_and_is_not_run_by_root():
    copied = re.findall(r"^COPY (.+) \S+$", DOCKERFILE, re.MULTILINE)
    missing = [name for line in copied for name in line.split() if not (ROOT / name).exists()]
    assert copied and missing == []
    assert re.findall(r"^USER (.+)$", DOCKERFILE, re.MULTILINE) == ["10001:10001"]


def test_documents_name_only_commands_that_exist():
    named = {
        (page.name, word)
        for page in PAGES
        for word in re.findall(r"manage\.py ([a-z][a-z_]+)", page.read_text(encoding="utf-8"))
    }
    assert len(named) > 20
    assert sorted((page, word) for page, word in named if word not in get_commands()) == []


def test_only_the_worker_may_make_the_namespaces_that_its_sandbox_needs():
    units = {unit.stem.removeprefix("countersign-"): unit.read_text() for unit in UNITS}
    allowed = re.findall(r"^RestrictNamespaces=(.+)$", units["worker"], re.MULTILINE)
    assert [set(line.split()) >= {"user", "mnt", "pid", "net", "ipc"} for line in allowed] == [True]
    assert "NoNewPrivileges=yes" in units["worker"]
    for covering in ("ProtectKernelTunables=", "ProtectProc=", "ProtectKernelLogs="):
        assert f"\n{covering}" not in units["worker"], f"{covering} covers /proc: bubblewrap fails"
    for name in ("web", "watcher"):
        assert "\nRestrictNamespaces=yes\n" in units[name]


def test_what_ci_installs_the_image_and_the_list_of_presence_agree_on_bubblewrap():
    assert "bubblewrap" in DOCKERFILE
    assert " bubblewrap " in (ROOT / ".ci" / "run").read_text()
