"""`/api/v1` as a whole: its document, its docs page, its one error shape."""

from __future__ import annotations

import pytest
from django.test import Client


@pytest.mark.one_database
def test_the_document_names_what_can_be_read(client: Client, db: None):
    document = client.get("/api/v1/openapi.json").json()
    paths = " ".join(document["paths"])
    for noun in ("messages", "decisions", "pipelines", "events", "approvals"):
        assert f"/api/v1/{noun}" in paths


@pytest.mark.one_database
def test_every_operation_asks_for_a_token(client: Client, db: None):
    document = client.get("/api/v1/openapi.json").json()
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            assert operation.get("security"), f"{method} {path}"


@pytest.mark.one_database
def test_without_a_token_every_list_is_refused_in_the_one_shape(client: Client, db: None):
    for noun in ("messages", "decisions", "pipelines", "events", "approvals"):
        answer = client.get(f"/api/v1/{noun}")
        assert answer.status_code == 401, noun
        assert set(answer.json()) == {"code", "message", "field", "rule"}


def test_a_session_of_the_console_is_no_token(console: Client):
    assert console.get("/api/v1/messages").status_code == 401
