"""A person sends an exact reply by keyboard, and looks for one whose answer was lost."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.keys import Keys

from tests.acceptance.browser import Console, chromium
from tests.acceptance.gmail_house import (
    ADDRESS,
    NAME,
    PASSWORD,
    SENDER,
    GmailHouse,
    gmail_house,
)
from tests.servers.google import GoogleServer
from tests.servers.presence import require_binaries

#: The normal run asks the same pages without a browser (tests/mail/gmail/test_in_the_console).
pytestmark = [
    pytest.mark.acceptance,
    pytest.mark.browser,
    pytest.mark.timeout(600),
    pytest.mark.soak,
]

_LEAVES = """
from guards.models import Identity
Identity.objects.update(is_active=False)
answer = True
"""


@pytest.fixture
def house(google_server: GoogleServer) -> Iterator[GmailHouse]:
    """A Gmail mailbox whose credentials are imported and not verified yet."""
    require_binaries("chromium", "chromedriver")
    directory = Path(tempfile.mkdtemp(prefix="cs-", dir="/tmp"))
    with gmail_house(directory, google_server) as made:
        yield made
    shutil.rmtree(directory, ignore_errors=True)


def press_by_keyboard(console: Console, selector: str) -> None:
    """Walk with Tab until that button has the focus, see that it shows, and press Enter."""
    console.find(selector)
    for _ in range(120):
        ActionChains(console.driver).send_keys(Keys.TAB).perform()
        is_there = "return document.activeElement.matches(arguments[0])"
        if console.driver.execute_script(is_there, selector):
            break
    else:
        raise AssertionError(f"Tab never reaches {selector}")
    outline = "return getComputedStyle(document.activeElement).outlineStyle"
    assert console.driver.execute_script(outline) == "solid"
    ActionChains(console.driver).send_keys(Keys.ENTER).perform()


def fits_a_telephone(console: Console) -> bool:
    """Whether the page that is open is no wider than a telephone held upright."""
    small = {"width": 390, "height": 844, "deviceScaleFactor": 1, "mobile": True}
    console.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", small)
    left_over = console.width_left_over()
    wide = {"width": 1400, "height": 1000, "deviceScaleFactor": 1, "mobile": False}
    console.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", wide)
    return left_over == 0


def verify_the_pair(console: Console, house: GmailHouse) -> None:
    """On the account's page: two new connections, asked, and verified."""
    console.open(f"/admin/mail/account/{house.account}/change/")
    console.find("#cs-connections")
    button = console.find("form[action$='verify-connections/'] button", "Verify both")
    console.driver.execute_script("arguments[0].click()", button)
    console.find("div", f"Verified: read as {ADDRESS} and send as {ADDRESS}")


def open_review(console: Console, hold: str) -> None:
    """From the held draft to its review."""
    console.open(f"/admin/approvals/hold/{hold}/change/")
    press_by_keyboard(console, "form[action$='/open/'] button")
    console.find(".cs-leaving")


def test_an_exact_reply_by_keyboard_and_a_look_for_one_that_was_lost(house: GmailHouse):
    with chromium(house.address) as console:
        console.log_in(NAME, PASSWORD)
        verify_the_pair(console, house)
        assert fits_a_telephone(console)

        open_review(console, house.draft("Quarterly figures", Reply_To="other@evil.example"))
        assert fits_a_telephone(console)
        shown = console.text(".cs-leaving")
        for one in (ADDRESS, SENDER, "other@evil.example", "Re: Quarterly figures", "References"):
            assert one in shown
        assert console.find("#cs-clock", ":")
        press_by_keyboard(console, "button[value=approve]")
        console.find("[role=status]", "an independent look found exactly it")
        assert house.google.google.posts == 1

        open_review(console, house.draft("Another question"))
        house.google.fault("send.reset-after", times=1)
        press_by_keyboard(console, "button[value=approve]")
        console.find("a.cs-button", "Read what is known").click()
        console.find("#cs-known", "What is known")
        assert fits_a_telephone(console)
        press_by_keyboard(console, "form[action$='look-again/'] button")
        console.find(".cs-looks .cs-chip", "found among the sent")
        console.find("#cs-unknown", "Nobody can say whether it arrived")
        assert house.rows("SELECT phase FROM approvals_effect ORDER BY created_at") == [
            ("verified",),
            ("unknown",),
        ]
        assert house.google.google.posts == 2

        open_review(console, house.draft("A third one"))
        house.installation.python(_LEAVES)
        console.find("#cs-decide [role=alert]", "Whether the identity is active has changed")
        assert console.find("button[value=approve]").get_attribute("disabled")
        assert console.errors() == []


@pytest.mark.soak  # the test above looks at three of them so small
def test_the_pages_of_exact_replies_fit_a_telephone(house: GmailHouse):
    with chromium(house.address, width=390, height=844, dark=True) as console:
        console.log_in(NAME, PASSWORD)
        verify_the_pair(console, house)
        assert console.width_left_over() == 0
        console.open(f"/admin/mail/account/{house.account}/connect/")
        console.find("#id_refresh_token_ref")
        assert console.width_left_over() == 0
        hold = house.draft("A question with a long subject that goes on and on " * 2)
        house.google.fault("send.reset-after", times=1)
        open_review(console, hold)
        assert console.width_left_over() == 0
        press_by_keyboard(console, "button[value=approve]")
        console.find("a.cs-button", "Read what is known").click()
        console.find("#cs-known")
        assert console.width_left_over() == 0
        assert console.errors() == []
