"""`make screenshots`: photographs the console into `docs/img/`: a running demo, and sample rows.

`python -m tests.screenshots [demo|sample]`. The demo plays no missions, which cost money: pages
of missions are photographed with the rows of tests/console/sample.py. Needs Chromium; nothing
leaves this machine.
"""

from __future__ import annotations

import re
import secrets
import sys
import tempfile
from pathlib import Path

from tests.acceptance.browser import Console, chromium, start_demo
from tests.servers import Installation

TARGET = Path(__file__).resolve().parent.parent / "docs" / "img"
#: The first row of a list.
ROW = "#result_list tbody a"
#: The demo brings its own owner; one in `.env` would be somebody else.
_NO_OWNER = {"OWNER_FINGERPRINT": "", "OWNER_HANDLE": "", "OWNER_KEY_FILE": ""}
LOOKS = {"light": (1400, False), "dark": (1400, True), "phone": (390, False)}


#: Makes the sample rows and an operator; `answer` is where the pages are.
_SAMPLE = """
from django.contrib.auth.models import User
from django.urls import reverse
from approvals.services import artifacts
from tests.console import sample
artifacts.ensure_key()
User.objects.create_superuser("operator", "", password)
made = sample.fill().missions
page = lambda name, row: reverse(f"admin:pipelines_{name}_change", args=[row.pk])
answer = {
    "mission-pipeline": page("pipeline", made.reviewed),
    "waiting-pipeline": page("pipeline", made.waiting),
    "mission": page("mission", made.ended),
    "costs": reverse("admin:pipelines_mission_costs"),
}
"""


def main(chosen: list[str]) -> int:
    """Each part, or those that are named."""
    parts = {"demo": photograph_demo, "sample": photograph_sample}
    for name in chosen or parts:
        parts[name]()
    return 0


def photograph_sample() -> None:
    """Three looks at pages that only sample rows can fill."""
    password = secrets.token_urlsafe(12)
    with (
        tempfile.TemporaryDirectory(prefix="cs-", dir="/tmp") as directory,
        Installation(Path(directory), **_NO_OWNER) as installation,
    ):
        paths = installation.python(_SAMPLE, password=password)
        _, address = installation.web()
        for look, (width, dark) in LOOKS.items():
            with chromium(address, width=width, dark=dark) as console:
                console.log_in("operator", password)
                console.find("li[data-need=tool-call]")
                console.photograph(TARGET / f"worker-needs-{look}.png", tallest=1300)
                for name, path in paths.items():
                    console.open(path)
                    console.find(".cs-page")
                    console.photograph(TARGET / f"{name}-{look}.png", tallest=2200)


def photograph_demo() -> None:
    """One demo, three looks, every page worth looking at."""
    with (
        tempfile.TemporaryDirectory(prefix="cs-", dir="/tmp") as directory,
        Installation(Path(directory), **_NO_OWNER) as installation,
    ):
        address, password = start_demo(installation)
        with chromium(address) as console:
            console.log_in("operator", password)
            console.open_until("/admin/pipelines/pipeline/?status__exact=completed", ROW)
        for look, (width, dark) in LOOKS.items():
            with chromium(address, width=width, dark=dark) as console:
                console.log_in("operator", password)
                photograph_all(console, look)
        for process in installation.processes:
            process.stop()  # in order: what it started may still write below the directory


def photograph_all(console: Console, look: str) -> None:
    """The pages of one look."""
    console.find("li[data-need=held-reply]")
    console.find("li[data-need=held-mail]", "without any permission")
    console.find("#cs-feed-state", "live")
    console.open("/admin/")
    console.find("#cs-feed-state", "live")
    console.photograph(TARGET / f"needs-you-{look}.png", tallest=1500)
    for name, path in pages_of(console).items():
        console.open(path)
        console.find(".cs-page, #changelist")
        console.photograph(TARGET / f"{name}-{look}.png", tallest=1500)


def pages_of(console: Console) -> dict[str, str]:
    """Where the demo's story can be read: addresses taken from the pages themselves."""
    bad = console.find("li[data-need=held-mail]", "The signature does not match")
    found = {
        "messages": "/admin/mail/message/",
        "message": path_in(console, bad.find_element("css selector", "a.cs-button")),
    }
    completed = "/admin/pipelines/pipeline/?status__exact=completed"
    found["pipeline"] = path_in(console, console.open_until(completed, ROW))
    console.open_until("/admin/approvals/hold/", ROW).click()
    review = console.driver.find_elements(
        "css selector", "form[action$='/open/'] button, a.cs-wide"
    )
    review[0].click()
    console.find(".cs-leaving")
    found["approval"] = path_in(console, None)
    return found


def path_in(console: Console, link: object) -> str:
    """The path of a link, or of the page itself."""
    address = console.driver.current_url if link is None else link.get_attribute("href")
    return re.sub(r"^https?://[^/]+", "", address)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
