"""The files of an outgoing message: listed on its page, and opened as downloads."""

from __future__ import annotations

import hashlib

import pytest
from django.test import Client
from django.urls import reverse

from approvals.services import holds
from guards.models import Identity
from guards.services import contacts, permissions
from guards.types import SYSTEM, Asker, Rwx, Subject
from mail.gateways import blobs
from mail.models import Account, Outbound, OutboundFile
from mail.services import outbound
from mail.types import Enclosure
from tests.console.sample import Sample

OLGA = Asker("operator", "olga")
CONTENT = b"<script>alert(1)</script>"


@pytest.fixture
def file(sample: Sample) -> OutboundFile:
    digest = hashlib.sha256(CONTENT).hexdigest()
    blobs.put_all({digest: CONTENT})
    return OutboundFile.objects.create(
        outbound=Outbound.objects.order_by("created_at")[0],
        position=1,
        name="rapport été.html",
        type="text/html",
        size=len(CONTENT),
        sha256=digest,
    )


def address(file: OutboundFile, position: int = 1) -> str:
    return reverse("admin:mail_outbound_file", args=[file.outbound_id, position])


@pytest.mark.one_database
def test_the_page_lists_them_with_a_way_to_open_each(console: Client, file: OutboundFile):
    page = console.get(reverse("admin:mail_outbound_change", args=[file.outbound_id]))

    html = page.content.decode()
    assert "rapport été.html" in html
    assert address(file) in html
    assert file.sha256[:12] in html


@pytest.mark.one_database
@pytest.mark.fault("attachments-01")
def test_a_file_is_a_download_of_no_type_whatever_it_is(onlooker: Client, file: OutboundFile):
    answer = onlooker.get(address(file))

    assert answer.content == CONTENT
    assert answer["Content-Type"] == "application/octet-stream"
    assert answer["Content-Disposition"].startswith("attachment")
    assert answer["X-Content-Type-Options"] == "nosniff"


@pytest.mark.one_database
def test_nobody_opens_one_without_permission_or_where_there_is_none(
    client: Client, console: Client, file: OutboundFile, django_user_model
):
    nobody = django_user_model.objects.create_user("nora", password="nora-pass-1", is_staff=True)

    assert console.get(address(file, 2)).status_code == 404
    assert console.post(address(file)).status_code == 405
    assert client.get(address(file)).status_code == 302
    client.force_login(nobody)
    assert client.get(address(file)).status_code == 403


@pytest.mark.one_database
def test_bytes_that_are_not_what_was_bound_are_not_shown(console: Client, file: OutboundFile):
    OutboundFile.objects.filter(pk=file.pk).update(sha256="0" * 64)

    assert console.get(address(file)).status_code == 404


@pytest.mark.one_database
def test_a_new_message_that_waits_shows_its_files_and_that_it_answers_nothing(
    console: Client, sample: Sample, operator
):
    account = Account.objects.exclude(smtp_host="").order_by("pk")[0]
    Identity.objects.filter(pk=account.identity_id).update(reply_policy="approve")
    contact = contacts.add_contact(address="bob@example.net", by=OLGA)
    permissions.grant(identity=account.identity, contact=contact, rwx=Rwx.parse("-w-"), by=OLGA)
    draft = outbound.draft_new(
        account=account,
        to="bob@example.net",
        subject="The chart",
        text="Here.\n",
        origin=Subject("pipelines.send", "17"),
        files=[Enclosure("chart.png", "image/png", b"png")],
    )
    held = outbound.submit(outbound_id=draft.pk, asker=SYSTEM)
    approval = holds.open_for_review(hold_id=held.hold_id, by=OLGA)

    pages = {
        name: console.get(reverse(f"admin:{name}", args=[key])).content.decode()
        for name, key in (
            ("mail_outbound_change", held.pk),
            ("approvals_hold_change", held.hold_id),
            ("approvals_approval_change", approval.pk),
        )
    }

    review = pages["approvals_approval_change"]
    assert "chart.png" in review
    assert hashlib.sha256(b"png").hexdigest()[:16] in review
    assert "The chart" in review and "bob@example.net" in review
    assert "chart.png" in pages["mail_outbound_change"]
    assert reverse("admin:pipelines_stage_change", args=[17]) in pages["mail_outbound_change"]
