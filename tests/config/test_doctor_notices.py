"""What the doctor says about notices to the owner: how they leave, or why there are none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from config.doctor import house
from config.doctor.findings import Finding
from tests.keys import Key, Keys, public_key
from tests.mail.factories import AccountFactory

pytestmark = [pytest.mark.django_db, pytest.mark.one_database]


def found() -> Finding:
    (finding,) = dict(house.LOOKS)["owner notices"]()
    return finding


@pytest.fixture
def owner(keys: Keys, settings: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Key:
    monkeypatch.setenv("MAIL_SECRET", "x")
    AccountFactory()
    _name(keys.reader, settings, tmp_path)
    settings.OWNER_EMAIL = "reader@example.org"
    return keys.reader


def _name(key: Key, settings: Any, folder: Path) -> None:
    path = folder / "owner.asc"
    path.write_bytes(public_key(key, armor=True))
    settings.OWNER_FINGERPRINT, settings.OWNER_KEY_FILE = key.fingerprint, str(path)


def test_encrypted_notices_are_well_and_say_to_which_key(owner: Key) -> None:
    assert found().state == "ok"
    assert owner.fingerprint in found().detail
    assert "reader@example.org" in found().detail


def test_nobody_to_tell_is_no_fault(owner: Key, settings: Any) -> None:
    settings.OWNER_EMAIL = ""
    assert (found().state, found().detail) == (
        "ok",
        "off: what waits stands in the console only",
    )


def test_a_key_that_only_signs_is_a_warning_and_a_fault_where_notices_were_asked_for(
    owner: Key, keys: Keys, settings: Any, tmp_path: Path
) -> None:
    _name(keys.alice, settings, tmp_path)
    assert (found().state, "no valid part to encrypt to" in found().detail) == ("warning", True)
    settings.OWNER_NOTICES = "encrypted"
    assert found().state == "fault"


def test_bare_notices_are_warned_about(owner: Key, settings: Any) -> None:
    settings.OWNER_NOTICES = "bare"
    assert (found().state, "not encrypted" in found().detail) == ("warning", True)


def test_an_address_that_is_none_and_an_account_that_is_none_are_faults(
    owner: Key, settings: Any
) -> None:
    settings.OWNER_NOTICE_ACCOUNT = "nobody"
    assert (found().state, "OWNER_NOTICE_ACCOUNT" in found().detail) == ("fault", True)
    settings.OWNER_EMAIL = "nobody"
    assert (found().state, "not one plain address" in found().detail) == ("fault", True)


def test_a_mode_that_does_not_exist_is_refused_by_a_system_check(settings: Any) -> None:
    from mail import checks

    settings.OWNER_NOTICES = "plain"
    assert [message.id for message in checks.check_notices(None)] == ["mail.E002"]
    settings.OWNER_NOTICES = "encrypted"
    assert checks.check_notices(None) == []
