"""Rows of guards as a house has them: an agent, a person who writes to it, what that person may."""

from __future__ import annotations

import factory

from guards import patterns
from guards.models import Contact, ContactAlias, Identity, Permission
from guards.types import Asker

OPERATOR = Asker("operator", "ada")


class IdentityFactory(factory.django.DjangoModelFactory):
    class Meta:
        model = Identity

    handle = factory.Sequence(lambda n: f"agent{n}")
    name = factory.LazyAttribute(lambda row: row.handle.title())
    email = factory.LazyAttribute(lambda row: f"{row.handle}@house.example")


class ContactFactory(factory.django.DjangoModelFactory):
    class Meta:
        model = Contact

    name = factory.Sequence(lambda n: f"Person {n}")
    address = factory.Sequence(lambda n: f"person{n}@example.org")
    is_pattern = factory.LazyAttribute(lambda row: patterns.is_pattern(row.address))


class AliasFactory(factory.django.DjangoModelFactory):
    class Meta:
        model = ContactAlias

    contact = factory.SubFactory(ContactFactory)
    address = factory.Sequence(lambda n: f"alias{n}@example.org")


class PermissionFactory(factory.django.DjangoModelFactory):
    class Meta:
        model = Permission

    identity = factory.SubFactory(IdentityFactory)
    contact = factory.SubFactory(ContactFactory)
    read = True
