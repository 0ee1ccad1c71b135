"""`iris demo --web` in Chromium: its own check, and the look of its page."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.browser.conftest import ROOT, SCREENSHOTS, Network, Pages
from tests.browser.test_dashboard import AXE

if TYPE_CHECKING:
    from collections.abc import Generator

    from playwright.sync_api import Browser, Page

COMMAND = [sys.executable, "-m", "iris_py.cli", "demo", "--web", "--json"]
WAIT_S = 180.0
CLAIMS = 6


def test_the_demo_checks_itself() -> None:
    done = subprocess.run([*COMMAND, "--check"], cwd=ROOT, capture_output=True, text=True, timeout=WAIT_S, check=False)
    line = json.loads(done.stdout)
    assert [finding for finding in line["findings"] if not finding["holds"]] == []
    assert len(line["findings"]) == CLAIMS
    assert (done.returncode, line["failed"]) == (0, 0)


@pytest.fixture(scope="module")
def demo() -> Generator[str]:
    """The link to the page of a running demo."""
    with subprocess.Popen(COMMAND, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        try:
            yield json.loads(process.stdout.readline())["url"]
        finally:
            process.terminate()


@pytest.fixture(scope="module")
def demo_pages(browser: Browser, demo: str) -> Generator[Pages]:
    """Pages of the demo, of which the first one has signed in."""
    pages = Pages(browser, Network(demo.partition("/#")[0], []))
    page = pages.open_signed_out()
    page.goto(demo)
    page.wait_for_selector("#prices tr")
    pages.keep_session(page)
    yield pages
    pages.close()


def show(page: Page, demo: str) -> None:
    """Open the page of the demo, use it, and wait for the results."""
    page.goto(demo.partition("#")[0])
    page.click("#ask button")
    page.wait_for_selector("#quotes li")
    page.fill("#text", "<img src=x onerror=alert(1)>")
    page.press("#text", "Enter")
    page.get_by_text("<img src=x").first.wait_for()
    page.wait_for_function("document.querySelector('#prices td').textContent")


@pytest.mark.parametrize(("scheme", "width"), [("light", 1280), ("dark", 1280), ("light", 360)])
def test_the_page_fits_and_is_readable(demo_pages: Pages, demo: str, scheme: str, width: int) -> None:
    page = demo_pages.open_signed_out(color_scheme=scheme, viewport={"width": width, "height": 900}, bypass_csp=True)
    show(page, demo)
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=SCREENSHOTS / f"demo-{scheme}-{width}.png", full_page=True)
    assert page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth") <= 0
    page.evaluate(AXE.read_text() + ";0")
    found = page.evaluate("axe.run().then(result => result.violations)")
    assert [each["id"] for each in found if each["impact"] in ("serious", "critical")] == []
    page.context.close()
    assert demo_pages.faults == []


def test_a_used_link_is_told(demo_pages: Pages, demo: str) -> None:
    page = demo_pages.open_signed_out()
    page.context.clear_cookies()
    page.goto(demo)
    page.get_by_text("This link was used").wait_for()
    page.context.close()
    demo_pages.faults.clear()  # Chromium reports the refusal


def test_a_check_without_chromium_says_so() -> None:
    environment = {**os.environ, "CHROMIUM": "/nowhere/chromium"}
    command = [*COMMAND, "--check"]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=WAIT_S, check=False)
    assert done.returncode == 2
    assert "needs Chromium. Install Debian's package chromium" in done.stderr
