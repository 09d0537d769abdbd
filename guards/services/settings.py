"""Installation-wide values that commands change at run time: a closed list, each of one type."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from django.utils import timezone
from django.utils.dateparse import parse_datetime

from guards import selectors
from guards.exceptions import InvalidInput
from guards.models import Setting
from guards.services.authority import require_operator
from guards.services.units import unit_of_work
from guards.types import Asker, SettingName

EXECUTE_NOT_BEFORE = SettingName.EXECUTE_NOT_BEFORE


def _instant(value: object) -> str:
    moment = parse_datetime(value) if isinstance(value, str) else value
    if not isinstance(moment, datetime) or timezone.is_naive(moment):
        raise InvalidInput("a point in time with its zone is needed", field="value")
    return moment.isoformat()


_READERS: dict[str, Callable[[object], str]] = {EXECUTE_NOT_BEFORE: _instant}


def get(name: str) -> object:
    """The stored value as JSON (an instant is ISO text), or None where none was put."""
    _reader(name)
    return selectors.setting(SettingName(name))


def put(*, name: str, value: object, by: Asker) -> None:
    """Set a value; None takes it away. Operator only. InvalidInput for a wrong name or type."""
    require_operator(by=by, act="change a setting")
    read = _reader(name)
    with unit_of_work():
        if value is None:
            Setting.objects.filter(name=name).delete()
        else:
            Setting.objects.update_or_create(name=name, defaults={"value": read(value)})


def _reader(name: str) -> Callable[[object], str]:
    try:
        return _READERS[name]
    except KeyError:
        raise InvalidInput(
            f"there is no setting {name!r}: choose from {', '.join(sorted(_READERS))}",
            field="name",
        ) from None
