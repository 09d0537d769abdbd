"""What hostile addresses ask of the console: columns that no list offers, rows that are not."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.contrib import admin
from django.contrib.auth.models import Permission as Right
from django.contrib.auth.models import User
from django.db import transaction
from django.test import Client, RequestFactory
from django.urls import reverse

from guards.fronts.console import ConsoleAdmin
from guards.models import CandidateKey, Contact, Permission
from tests.console.sample import Sample
from tests.console.test_get_is_safe import state_of_the_house

#: Ids that no row has.
NOBODY = ("abc", "999999", "9" * 30, "%00", "a/b", "00000000-0000-0000-0000-000000000000")


def houses_own() -> Iterator[tuple[str, ConsoleAdmin]]:
    for model, model_admin in admin.site._registry.items():
        if isinstance(model_admin, ConsoleAdmin):
            name = f"admin:{model._meta.app_label}_{model._meta.model_name}_changelist"
            yield reverse(name), model_admin


@pytest.mark.one_database
@pytest.mark.parametrize(
    ("model", "question"),
    [
        ("mail_message", "subject__startswith=You"),
        ("mail_message", "text__icontains=Click"),
        ("mail_message", "trust_level__regex=.*"),
        ("guards_apitoken", "digest__startswith=0"),
        ("mail_account", "secret_ref__startswith=file"),
        ("mail_thread", "subject__startswith=You"),
        ("pipelines_pipeline", "message__subject__startswith=You"),
    ],
)
def test_an_address_asks_only_what_the_lists_filters_ask(
    console: Client, sample: Sample, model: str, question: str
) -> None:
    assert console.get(f"{reverse(f'admin:{model}_changelist')}?{question}").status_code == 400


@pytest.mark.one_database
def test_the_lists_own_filters_still_answer(console: Client, sample: Sample) -> None:
    address = reverse("admin:mail_message_changelist")
    account = sample.stranger.account_id
    for question in (
        "trust_level__exact=untrusted",
        f"account__id__exact={account}",
        "received_at__year=2026",
        "q=lottery",
    ):
        assert console.get(f"{address}?{question}").status_code == 200, question
    pins = reverse("admin:guards_pinnedkey_changelist")
    assert console.get(f"{pins}?removed_at__isempty=1").status_code == 200
    between = "expires_at__gte=2026-01-01+00:00Z&expires_at__lt=2027-01-01+00:00Z"
    assert console.get(f"{pins}?{between}").status_code == 200


def is_answered(console: Client, address: str, question: str) -> None:
    status = console.get(f"{address}?{question}").status_code
    assert status in (200, 302, 400), (address, question)


def values_that_no_database_holds(model_admin: ConsoleAdmin) -> Iterator[str]:
    for entry in model_admin.list_filter:
        yield f"{entry}__exact={'9' * 40}"
        yield f"{entry}__isnull=x"
    if model_admin.date_hierarchy:
        yield from (f"{model_admin.date_hierarchy}__year={year}" for year in (0, "9" * 20))
    yield "q=%00"


def refusal(model_admin: ConsoleAdmin, user: User, question: str) -> type[Exception] | None:
    """What the list's query raises when it is asked this, without the page around it."""
    request = RequestFactory().get(f"/?{question}")
    request.user = user
    try:
        with transaction.atomic():
            len(model_admin.get_changelist_instance(request).result_list)
    except Exception as error:  # noqa: BLE001 - the first of each kind is asked of the page
        return type(error)
    return None


def test_no_filter_breaks_on_a_value_that_no_database_holds(
    console: Client, operator: User, sample: Sample
) -> None:
    """Each way in which a query takes it is answered by a page; every page: the long run."""
    answered = set()
    for address, model_admin in houses_own():
        for question in values_that_no_database_holds(model_admin):
            way = refusal(model_admin, operator, question)
            if way not in answered:
                is_answered(console, address, question)
                answered.add(way)
    assert None in answered and len(answered) > 2, answered


@pytest.mark.soak
def test_every_page_answers_a_value_that_no_database_holds(console: Client, sample: Sample) -> None:
    for address, model_admin in houses_own():
        for question in values_that_no_database_holds(model_admin):
            is_answered(console, address, question)


@pytest.mark.parametrize(
    "lists", [3, pytest.param(None, marks=pytest.mark.soak)], ids=["three lists", "every list"]
)
def test_no_page_number_order_or_key_breaks_a_list(
    console: Client, sample: Sample, lists: int | None
) -> None:
    for address, _ in list(houses_own())[:lists]:
        for question in ("p=-1", f"p={'9' * 30}", "o=9.-9.x", "pk=1"):
            is_answered(console, address, question)


def test_an_act_on_no_row_does_nothing_and_says_so(console: Client, sample: Sample) -> None:
    before = state_of_the_house()
    for address, model_admin in houses_own():
        words = sorted(set(model_admin.acts()) - model_admin.acts_on_all)
        for number, word in enumerate(words):
            # Which ids are none, a model says for all of its acts.
            for nobody in NOBODY if number == 0 else NOBODY[:2]:
                answer = console.post(f"{address}{nobody}/{word}/", {"reason": "none"})
                assert (answer.status_code, answer["Location"]) == (302, address), (word, nobody)
    assert state_of_the_house() == before


def browser_of(*rights: str) -> Client:
    user = User.objects.create_user("nina", password="nina-pass-1", is_staff=True)
    user.user_permissions.set(Right.objects.filter(codename__in=rights))
    browser = Client()
    browser.force_login(user)
    return browser


@pytest.mark.one_database
@pytest.mark.parametrize(("further", "status"), [((), 403), (("change_permission",), 302)])
def test_who_may_edit_the_address_book_may_not_grant_rights_by_it(
    sample: Sample, further: tuple[str, ...], status: int
) -> None:
    contact = Contact.objects.filter(is_pattern=False).earliest("pk")
    browser = browser_of("view_contact", "change_contact", *further)
    grant = reverse("admin:guards_contact_grant", args=[contact.pk])
    page = browser.get(reverse("admin:guards_contact_change", args=[contact.pk]))
    assert (grant in page.content.decode()) is bool(further)
    identity = sample.account.identity_id
    assert browser.post(grant, {"identity": identity, "rwx": "-w-"}).status_code == status
    granted = Permission.objects.filter(contact=contact, identity=identity).last()
    assert (str(granted.rwx if granted else "") == "-w-") is bool(further)


@pytest.mark.one_database
@pytest.mark.parametrize(("further", "status"), [((), 403), (("add_pinnedkey",), 302)])
def test_who_may_sort_candidate_keys_may_not_pin_one(
    sample: Sample, further: tuple[str, ...], status: int
) -> None:
    key = CandidateKey.objects.create(fingerprint="A" * 40, public_key=b"none", source="a test")
    browser = browser_of("change_candidatekey", *further)
    address = reverse("admin:guards_candidatekey_pin", args=[key.pk])
    contact = Contact.objects.filter(is_pattern=False).earliest("pk")
    assert browser.post(address, {"contact": contact.pk}).status_code == status
    pin = reverse("admin:guards_contact_pin", args=[contact.pk])
    assert browser.post(pin, {"text": "none"}).status_code == 403
