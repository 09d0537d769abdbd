"""Invariant 21: a GET of anything in the console changes nothing, and acts refuse it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

import pytest
from django.apps import apps
from django.contrib import admin
from django.test import Client
from django.urls import reverse

from guards.fronts.console import ConsoleAdmin
from tests.console.sample import Sample

HOUSE = ("guards", "approvals", "teams", "mail", "pipelines")
#: Looking at the console is what keeps a session from being idle: the one thing that it may move.
OF_SITTING_THERE = {"approvals.Root": {"idle_until"}}


def state_of_the_house() -> str:
    """A digest over every row of every table of ours."""
    total = hashlib.sha256()
    for label in HOUSE:
        for model in apps.get_app_config(label).get_models():
            moves = OF_SITTING_THERE.get(model._meta.label, set())
            columns = [one.attname for one in model._meta.concrete_fields]
            rows = model._default_manager.order_by("pk").values_list(
                *(column for column in columns if column not in moves)
            )
            for row in rows.iterator():
                values = [bytes(v) if isinstance(v, memoryview) else v for v in row]
                total.update(f"{model._meta.label}{values!r}".encode())
    return total.hexdigest()


def pages(rows: int = 1) -> Iterator[str]:
    """The list and some rows' pages of every registered model."""
    yield reverse("admin:index")
    for model in admin.site._registry:
        name = f"admin:{model._meta.app_label}_{model._meta.model_name}"
        yield reverse(f"{name}_changelist")
        for row in model._default_manager.order_by("pk")[:rows]:
            yield reverse(f"{name}_change", args=[row.pk])


def further_pages() -> Iterator[str]:
    """Every page that a model has beside these, of one of its rows where it is about one."""
    for model, model_admin in admin.site._registry.items():
        row = model._default_manager.order_by("pk").first()
        for pattern in model_admin.pages() if isinstance(model_admin, ConsoleAdmin) else ():
            wanted = set(pattern.pattern.converters)
            if not wanted:
                yield reverse(f"admin:{pattern.name}")
            elif wanted in ({"object_id"}, {"pk"}) and row is not None:
                yield reverse(f"admin:{pattern.name}", args=[row.pk])


def acts() -> Iterator[str]:
    """Every button of every model, on one of its rows (or on none)."""
    for model, model_admin in admin.site._registry.items():
        if not isinstance(model_admin, ConsoleAdmin):
            continue
        row = model._default_manager.first()
        for word in model_admin.acts():
            yield reverse(model_admin._name(word), args=[row.pk if row else "1"])


@pytest.mark.invariant(21)
@pytest.mark.parametrize(
    ("rows", "headed"),
    [(1, 0), pytest.param(3, 1, marks=pytest.mark.soak)],
    ids=["a row of each", "three rows of each"],
)
def test_no_page_changes_anything(console: Client, sample: Sample, rows: int, headed: int):
    before = state_of_the_house()
    for url in pages(rows):
        answer = console.get(url)
        assert answer.status_code in (200, 302), url
    for url in pages(headed):
        assert console.head(url).status_code in (200, 302), url
    assert state_of_the_house() == before


@pytest.mark.invariant(21)
def test_no_further_page_changes_anything(console: Client, sample: Sample):
    before = state_of_the_house()
    found = list(further_pages())
    assert (
        reverse("admin:approvals_approval_standing", args=[_first("approvals.Approval")]) in found
    )
    assert reverse("admin:mail_account_connect", args=[_first("mail.Account")]) in found
    for url in found:
        assert console.get(url).status_code in (200, 302, 404, 405), url
        assert console.head(url).status_code in (200, 302, 404, 405), url
    assert state_of_the_house() == before


def _first(label: str) -> object:
    return apps.get_model(label)._default_manager.order_by("pk").first().pk


@pytest.mark.one_database
@pytest.mark.invariant(21)
@pytest.mark.parametrize("method", ["get", "head"])
def test_every_act_refuses_to_be_looked_at(console: Client, sample: Sample, method: str):
    before = state_of_the_house()
    found = list(acts())
    assert len(found) > 10
    for url in found:
        assert getattr(console, method)(url).status_code == 405, url
    assert state_of_the_house() == before


@pytest.mark.invariant(21)
def test_the_measure_itself_sees_a_change(console: Client, sample: Sample):
    before = state_of_the_house()
    console.post(reverse("admin:mail_message_reveal", args=[sample.stranger.pk]))
    assert state_of_the_house() != before
