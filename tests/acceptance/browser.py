"""Chromium on the console of a running installation, as a person uses it."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.ui import WebDriverWait

from tests.servers import Installation
from tests.servers.presence import find_binary, free_port, wait_until

#: Seconds within which a page or an event has to be there.
PATIENCE = 30


_OWNER = """
from pathlib import Path
from django.conf import settings
from config.demo.world import World
answer = World(Path(settings.DATA_DIR) / "demo").owner_settings()
"""


class Console:
    """One browser that knows where the console is."""

    def __init__(self, driver: webdriver.Chrome, address: str) -> None:
        self.driver = driver
        self.address = address

    def open(self, path: str) -> None:
        self.driver.get(f"{self.address}{path}")

    def log_in(self, name: str, password: str) -> None:
        self.open("/admin/login/")
        self.find("input[name=username]").send_keys(name)
        self.find("input[name=password]").send_keys(password)
        self.find("button[type=submit]").click()
        self.find("#cs-live")

    def find(self, selector: str, text: str = "") -> WebElement:
        """The first visible element of that selector that holds the text, once it is there."""

        def look(driver: webdriver.Chrome) -> WebElement | None:
            return driver.execute_script(
                "return [...document.querySelectorAll(arguments[0])]"
                ".find(found => found.offsetParent !== null"
                " && found.innerText.includes(arguments[1])) || null",
                selector,
                text,
            )

        found = WebDriverWait(self.driver, PATIENCE, poll_frequency=0.1).until(
            look, f"{selector} with {text!r} on {self.driver.current_url}"
        )
        assert found is not None
        return found

    def open_until(self, path: str, selector: str) -> WebElement:
        """Open a page that does not refresh itself again and again, until the element is there."""

        def look() -> bool:
            self.open(path)
            return bool(self.driver.find_elements(By.CSS_SELECTOR, selector))

        wait_until(look, f"{selector} on {path}", 60)
        return self.find(selector)

    def text(self, selector: str = "body") -> str:
        return self.driver.find_element(By.CSS_SELECTOR, selector).get_attribute("innerText") or ""

    def errors(self) -> list[str]:
        """What the browser complained about: errors of scripts, refusals of the policy."""
        said = self.driver.get_log("browser")
        return [line["message"] for line in said if line["level"] == "SEVERE"]

    def width_left_over(self) -> int:
        """Pixels by which the page is wider than its window."""
        return int(
            self.driver.execute_script(
                "return document.documentElement.scrollWidth - document.documentElement.clientWidth"
            )
        )

    def show(self, *, width: int, height: int, dark: bool) -> None:
        """Another size of the page, in light or dark."""
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
        scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": scheme})

    def photograph(self, path: Path, *, tallest: int = 2000) -> None:
        """The page from its top, down to that many pixels."""
        size = self.driver.execute_script(
            "return [window.innerWidth, document.documentElement.scrollHeight]"
        )
        clip = {"x": 0, "y": 0, "width": size[0], "height": min(size[1], tallest), "scale": 1}
        shot = self.driver.execute_cdp_cmd(
            "Page.captureScreenshot",
            {"format": "png", "captureBeyondViewport": True, "clip": clip},
        )
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(base64.b64decode(shot["data"]))


@contextmanager
def chromium(
    address: str, *, width: int = 1400, height: int = 1000, dark: bool = False
) -> Iterator[Console]:
    """A browser of that width, in light or dark."""
    options = webdriver.ChromeOptions()
    options.binary_location = find_binary("chromium") or ""
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"):
        options.add_argument(argument)
    options.add_argument(f"--window-size={width},{height}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    service = webdriver.ChromeService(find_binary("chromedriver"))
    driver = webdriver.Chrome(options=options, service=service)
    try:
        console = Console(driver, address)
        console.show(width=width, height=height, dark=dark)
        yield console
    finally:
        driver.quit()


def start_demo(installation: Installation) -> tuple[str, str]:
    """Run `up --demo` until its mail is posted; its address and the operator's password."""
    port = free_port()
    owner = installation.python(_OWNER)  # named here, so that nothing is written into `.env`
    process = installation.start("up", "--demo", "--port", str(port), **owner)

    def is_told() -> bool:
        assert process.is_alive(), process.output()
        return "sample mails were posted" in process.output()

    wait_until(is_told, "the demo's mail", 90)
    login = re.search(r"operator / (\S+)", process.output())
    assert login is not None, process.output()
    return f"http://127.0.0.1:{port}", login[1]
