"""A person in front of the console, with everything behind it running as in production."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.acceptance.browser import Console, chromium, start_demo
from tests.servers import Installation
from tests.servers.presence import require_binaries

pytestmark = [
    pytest.mark.acceptance,
    pytest.mark.browser,
    pytest.mark.timeout(240),
    pytest.mark.xdist_group("demo"),  # the demo's mail ports are always the same
]


@pytest.fixture(scope="module")
def demo() -> Iterator[tuple[str, str]]:
    """One demo for both: neither needs what the other changes."""
    require_binaries("chromium", "chromedriver", "gpg")
    directory = Path(tempfile.mkdtemp(prefix="cs-", dir="/tmp"))
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, directory, ignore_errors=True)
        installation = stack.enter_context(Installation(directory))
        yield start_demo(installation)
        installation.processes[-1].stop()


def read_why_the_signature_is_bad(console: Console) -> None:
    console.open("/admin/")
    row = console.find("li[data-need=held-mail]", "The signature does not match the text")
    console.driver.execute_script("arguments[0].querySelector('a.cs-button').click()", row)
    assert "does not match the text" in console.find("#cs-trust", "Untrusted").text
    assert "BADSIG" in console.text()
    assert "trust-too-low" in console.text()


def approve_the_held_reply(console: Console) -> None:
    console.open("/admin/")
    row = console.find("li[data-need=held-reply]", "Open for review")
    console.driver.execute_script("arguments[0].querySelector('button').click()", row)
    leaving = console.find(".cs-leaving", "References").text
    for field in ("From", "To", "Subject", "In-Reply-To", "Message-ID"):
        assert field in leaving
    assert console.find("#cs-clock", ":")
    console.find("button[value=approve]").click()
    console.find("[role=status]", "by operator:operator")


@pytest.mark.invariant(25)
@pytest.mark.fault("feed-04", "approval-02")
def test_an_operator_reads_why_and_approves_and_sees_it_leave(demo: tuple[str, str]):
    address, password = demo
    with chromium(address) as console:
        console.log_in("operator", password)
        read_why_the_signature_is_bad(console)

        console.open("/admin/")
        console.find("li[data-need=held-reply]", "Open for review")
        console.find("#cs-feed-state", "live")
        console.driver.execute_script("window.sameDocument = true")
        feed = console.driver.current_window_handle
        newest = int(console.find("#cs-feed > li").get_attribute("data-seq") or 0)

        console.driver.switch_to.new_window("tab")
        approve_the_held_reply(console)

        console.driver.switch_to.window(feed)
        arrived = console.find("#cs-feed > li[data-kind='effect.accepted'].cs-fresh")
        assert int(arrived.get_attribute("data-seq") or 0) > newest
        assert console.driver.execute_script("return window.sameDocument") is True
        console.driver.execute_script("document.activeElement.blur()")
        console.find("#cs-needs-box", "waiting")
        assert console.errors() == []


def test_the_console_fits_a_telephone_and_keeps_to_its_policy(demo: tuple[str, str]):
    address, password = demo
    with chromium(address, width=390, height=844, dark=True) as console:
        console.log_in("operator", password)
        console.find("li[data-need=held-mail]")
        for path in (
            "/admin/",
            "/admin/mail/message/",
            "/admin/mail/message/1/change/",
            "/admin/pipelines/pipeline/",
            "/admin/mail/account/add/",
            "/admin/approvals/hold/",
        ):
            console.open(path)
            assert console.width_left_over() == 0, path
        assert console.errors() == []
