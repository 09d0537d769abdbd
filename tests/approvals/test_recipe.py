"""The recipe for a new kind of act is whole, short, and does what it says."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from approvals import registry
from approvals.exceptions import ApprovalSuperseded
from approvals.models import Effect
from approvals.services import approvals, effects, holds
from approvals.types import Request
from guards.models import Identity
from guards.types import Subject
from tests.approvals import factories, publishing
from tests.approvals.publishing import CardKind
from tests.documents.paths import ROOT

SOURCE = Path(publishing.__file__).read_text(encoding="utf-8")


@pytest.fixture
def board(tmp_path: Path) -> Iterator[Path]:
    board = tmp_path / "board"
    board.mkdir()
    registry.register_kind(CardKind(board))
    yield board
    registry.forget_kind(CardKind.name)


@pytest.fixture
def ada(db: None) -> Identity:
    return Identity.objects.create(handle="ada", name="Ada", email="ada@house.example")


def intent(identity: Identity) -> Effect:
    wish = Request(CardKind.name, Subject("guards.identity", str(identity.pk)), factories.AGENT)
    held = holds.hold(request=wish, reason="cards are looked at")
    return factories.approve(holds.open_for_review(hold_id=held.pk, by=factories.OPERATOR))


@pytest.mark.one_database
def test_the_page_shows_exactly_this_code() -> None:
    page = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    assert f"```python\n{SOURCE}```\n" in page


@pytest.mark.one_database
def test_a_whole_kind_is_shorter_than_sixty_lines() -> None:
    assert len(SOURCE.splitlines()) < 60


def test_requested_approved_and_done_once(board: Path, ada: Identity) -> None:
    effect = intent(ada)
    assert list(board.iterdir()) == []
    for _ in range(3):
        done = effects.dispatch(effect_id=effect.pk)
        assert (done.phase, done.reason) == ("verified", "read-back")
        (board / "ada.txt").unlink(missing_ok=True)  # a second contact would write it again
    assert list(board.iterdir()) == []


@pytest.mark.one_database
def test_a_policy_may_say_yes_as_well(board: Path, ada: Identity) -> None:
    wish = Request(CardKind.name, Subject("guards.identity", str(ada.pk)), factories.AGENT)
    effect = approvals.approve_by_policy(request=wish, judgement=factories.ALLOWED)
    assert effects.dispatch(effect_id=effect.pk).phase == "verified"
    assert (board / "ada.txt").read_bytes() == b"Ada\n"


@pytest.mark.one_database
def test_what_drifted_is_named_and_nothing_is_done(board: Path, ada: Identity) -> None:
    wish = Request(CardKind.name, Subject("guards.identity", str(ada.pk)), factories.AGENT)
    held = holds.hold(request=wish, reason="cards are looked at")
    shown = holds.open_for_review(hold_id=held.pk, by=factories.OPERATOR)
    Identity.objects.filter(pk=ada.pk).update(name="Bob")
    with pytest.raises(ApprovalSuperseded) as refusal:
        factories.approve(shown)
    assert refusal.value.field == "name"
    effect = intent(ada)
    Identity.objects.filter(pk=ada.pk).update(name="Eve")
    done = effects.dispatch(effect_id=effect.pk)
    assert (done.phase, done.detail["field"]) == ("cancelled", "name")
    assert list(board.iterdir()) == []


@pytest.mark.one_database
def test_what_certainly_did_not_begin_has_failed(board: Path, ada: Identity) -> None:
    (board / "ada.txt").write_text("somebody else's")
    done = effects.dispatch(effect_id=intent(ada).pk)
    assert (done.phase, done.reason) == ("failed", "not-begun")
    assert (board / "ada.txt").read_text() == "somebody else's"


@pytest.mark.one_database
def test_what_may_have_begun_is_unknown(
    board: Path, ada: Identity, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    effect = intent(ada)
    monkeypatch.setattr(Path, "open", full)
    done = effects.dispatch(effect_id=effect.pk)
    assert (done.phase, done.reason) == ("unknown", "broke-off")
    monkeypatch.undo()
    assert effects.dispatch(effect_id=effect.pk).phase == "unknown"
    assert list(board.iterdir()) == []
