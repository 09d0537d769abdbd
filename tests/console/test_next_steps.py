"""What the console says after something was added that needs more to be of use."""

from __future__ import annotations

import pytest
from django.test import Client
from django.urls import reverse

from guards.models import Contact

pytestmark = pytest.mark.one_database

ADD = "admin:guards_contact_add"


def test_a_new_contact_is_opened_where_its_rights_are_set(console: Client):
    answer = console.post(reverse(ADD), {"address": "otto@house.example"}, follow=True)
    contact = Contact.objects.get()
    page = reverse("admin:guards_contact_change", args=[contact.pk])
    assert answer.redirect_chain == [(page, 302)]
    assert "set its rights for an identity, and pin its key" in answer.content.decode()


def test_adding_another_stays_at_the_form(console: Client):
    values = {"address": "otto@house.example", "_addanother": "1"}
    answer = console.post(reverse(ADD), values, follow=True)
    assert answer.redirect_chain == [(reverse(ADD), 302)]
