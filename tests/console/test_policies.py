"""What each part of the house may load."""

from __future__ import annotations

import pytest
from django.test import Client
from django.urls import reverse

from tests.console.sample import Sample


def policy(answer) -> dict[str, list[str]]:
    found = {}
    for directive in answer["Content-Security-Policy"].split(";"):
        name, *values = directive.split()
        found[name] = values
    return found


def test_pages_outside_the_console_are_strict(client: Client, db: None):
    for url in ("/healthz", "/api/v1/docs"):
        found = policy(client.get(url))
        assert "'unsafe-eval'" not in found["script-src"]
        assert "'unsafe-inline'" not in found["style-src"] + found["script-src"]


@pytest.mark.one_database
def test_the_console_gets_what_its_scripts_need_and_no_more(console: Client):
    found = policy(console.get(reverse("admin:index")))
    assert "'unsafe-eval'" in found["script-src"]
    assert "'unsafe-inline'" not in found["script-src"]
    assert found["style-src"] == ["'self'", "'unsafe-inline'"]
    assert found["frame-ancestors"] == ["'none'"]
    assert found["object-src"] == ["'none'"]


def test_the_login_page_has_the_consoles_policy(client: Client, db: None):
    assert "'unsafe-eval'" in policy(client.get(reverse("admin:login")))["script-src"]


@pytest.mark.one_database
def test_no_page_of_the_console_names_another_host(console: Client, sample: Sample):
    for name, args in (
        ("index", []),
        ("mail_message_change", [sample.html.pk]),
        ("approvals_approval_change", [sample.approval.pk]),
    ):
        html = console.get(reverse(f"admin:{name}", args=args)).content.decode()
        for attribute in ('src="http', 'src="//', 'href="http', "url(http", "<script>"):
            assert attribute not in html, (name, attribute)


@pytest.mark.one_database
def test_mail_html_has_a_policy_of_its_own_without_scripts(console: Client, sample: Sample):
    answer = console.get(reverse("admin:mail_message_html", args=[sample.html.pk]))
    found = policy(answer)
    assert found["default-src"] == ["'none'"]
    assert "script-src" not in found
    assert "sandbox" in found and found["sandbox"] == []
    assert found["img-src"] == ["data:"]
    assert found["frame-ancestors"] == ["'self'"]
    assert answer["X-Frame-Options"] == "SAMEORIGIN"


@pytest.mark.one_database
@pytest.mark.fault("injection-02")
def test_mail_html_is_cleaned(console: Client, sample: Sample):
    answer = console.get(reverse("admin:mail_message_html", args=[sample.html.pk]))
    html = answer.content.decode()
    assert "Minutes" in html
    assert "script" not in html and "alert(1)" not in html and "tracker.example" not in html


@pytest.mark.one_database
def test_covered_html_is_not_served(console: Client, sample: Sample):
    for name in ("mail_message_html", "mail_message_raw"):
        answer = console.get(reverse(f"admin:{name}", args=[sample.stranger.pk]))
        assert answer.status_code == 403


@pytest.mark.one_database
@pytest.mark.fault("attachments-01", "attachments-03")
def test_a_download_has_a_safe_name_and_no_type(console: Client, sample: Sample):
    answer = console.get(reverse("admin:mail_message_part", args=[sample.html.pk, "2"]))
    assert answer.content == b"%PDF-1.4 sample"
    assert answer["Content-Type"] == "application/octet-stream"
    assert answer["X-Content-Type-Options"] == "nosniff"
    assert answer["Content-Disposition"].startswith("attachment")
    assert "/" not in answer["Content-Disposition"] and ".." not in answer["Content-Disposition"]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("../../etc/passwd", "etc_passwd"),
        ("C:\\x\\y.exe", "C_x_y.exe"),
        ("a\r\nSet-Cookie: x", "a_Set-Cookie_ x"),
        ("invoice\u202efdp.exe", "invoice_fdp.exe"),
        (".htaccess", "htaccess"),
        ("--output=x", "output=x"),
        ("", "part-1.2.bin"),
        ("...", "part-1.2.bin"),
    ],
)
def test_names_from_mail_become_harmless(name: str, expected: str):
    from mail.admin.downloads import safe_name

    assert safe_name(name, "1.2").lstrip("_") == expected


def test_the_api_docs_load_only_from_here(client: Client, db: None):
    html = client.get("/api/v1/docs").content.decode()
    assert "http://" not in html and "https://" not in html and "//cdn" not in html
