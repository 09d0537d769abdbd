"""What the console says of commands that do not run, and which of them it lets go."""

from __future__ import annotations

from pathlib import Path

import pytest
from django.test import Client
from django.urls import reverse

from guards.types import Asker
from pipelines.models import Command
from pipelines.services import commands, verification
from teams.models import Event
from tests.keys import Keys
from tests.pipelines.factories import cli

pytestmark = [pytest.mark.django_db, pytest.mark.one_database]


def test_a_command_of_a_former_owner_is_not_called_good(
    desk, owner, keys: Keys, admin_client: Client, settings, tmp_path: Path
):
    command = owner.install("greet")
    page = reverse("admin:pipelines_command_change", args=[command.pk])
    row = reverse("admin:pipelines_command_changelist")
    assert "The owner signed exactly this." in admin_client.get(page).content.decode()
    assert "does not run" not in admin_client.get(row).content.decode()
    other = tmp_path / "other.pgp"
    other.write_bytes(keys.mallory.public)
    settings.OWNER_FINGERPRINT, settings.OWNER_KEY_FILE = keys.mallory.fingerprint, str(other)
    verification.forget()
    shown = admin_client.get(page).content.decode()
    assert "would not run now" in shown and "has not made it" in shown
    assert "The owner signed exactly this." not in shown
    assert "does not run" in admin_client.get(row).content.decode()


def test_a_refused_file_is_on_its_page_and_can_be_taken_away(desk, owner, admin_client: Client):
    refused = owner.write(cli("stray"), "")
    commands.load_file(refused, by=Asker("operator", "test"))
    commands.load_file(refused, by=Asker("operator", "test"))
    command = Command.objects.get(name="stray")
    page = admin_client.get(reverse("admin:pipelines_command_change", args=[command.pk]))
    assert "Remove it" in page.content.decode()
    assert "A command file was refused" in page.content.decode()

    admin_client.post(reverse("admin:pipelines_command_remove", args=[command.pk]))

    assert not Command.objects.filter(name="stray").exists()
    assert Event.objects.filter(kind="command.removed", subject_id=str(command.pk)).exists()


def test_a_command_that_was_signed_once_stays(desk, owner, admin_client: Client):
    command = owner.install("greet")
    page = admin_client.get(reverse("admin:pipelines_command_change", args=[command.pk]))
    assert "Remove it" not in page.content.decode()

    answer = admin_client.post(
        reverse("admin:pipelines_command_remove", args=[command.pk]), follow=True
    )

    assert "was signed once" in answer.content.decode()
    assert Command.objects.filter(pk=command.pk).exists()
