"""A stand-in for the Messages API, and a broker in front of it with one mission's door."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.pipelines.brokers import Api, Desk, broker


@pytest.fixture
def api(settings) -> Iterator[Api]:
    with Api() as found:
        settings.CLAUDE_BASE_URL = f"{found.url}/gateway/"
        yield found


@pytest.fixture
def desk(api) -> Iterator[Desk]:
    with broker() as found:
        yield found
