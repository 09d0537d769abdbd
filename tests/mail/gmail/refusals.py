"""How tests of the exact reply say which refusal they expect."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from mail.exceptions import ProfileRefused


@contextmanager
def refused(reason: str, field: str | None = None) -> Iterator[None]:
    """Exactly this reason, and this field where one is given."""
    with pytest.raises(ProfileRefused) as caught:
        yield
    assert (caught.value.reason, caught.value.field) == (reason, field or caught.value.field)
