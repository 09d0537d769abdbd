"""What the console says of a command whose owner is another one by now."""

from __future__ import annotations

from pathlib import Path

import pytest
from django.test import Client
from django.urls import reverse

from pipelines.services import verification
from tests.keys import Keys

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
