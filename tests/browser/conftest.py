"""Fixtures of the tests in Chromium: a network with a door, and pages that may reach nothing else."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from playwright.sync_api import Page, sync_playwright

if TYPE_CHECKING:
    from collections.abc import Generator

    from playwright.sync_api import Browser, BrowserContext, Dialog, Route

ROOT = Path(__file__).parent.parent.parent
SCREENSHOTS = ROOT / "build" / "screenshots"
#: A browser that looks for updates and reports would be refused by a machine without the internet.
ARGUMENTS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
TIMEOUT_MS = 20_000


class Network(msgspec.Struct):
    """A running network.

    Attributes:
        url: The address of its door.
        codes: One-time codes that are left.
        token: A token that may observe and subscribe to some topics.
    """

    url: str
    codes: list[str]
    token: str = ""


@pytest.fixture(scope="session")
def network() -> Generator[Network]:
    command = [sys.executable, "-m", "tests.browser.network"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdout is not None
        try:
            yield msgspec.json.decode(process.stdout.readline(), type=Network)
        finally:
            process.terminate()
            process.wait(20)


@pytest.fixture(scope="session")
def browser() -> Generator[Browser]:
    executable = os.environ.get("CHROMIUM", "/usr/bin/chromium")
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=executable, args=list(ARGUMENTS))
        yield running
        running.close()


class Pages:
    """Opens pages, and collects everything that goes wrong in them.

    Attributes:
        faults: Errors of scripts, reports of the content security policy, dialogs, and requests to other hosts.
    """

    def __init__(self, browser: Browser, network: Network) -> None:
        self.faults: list[str] = []
        self._browser = browser
        self._network = network
        self._contexts: list[BrowserContext] = []
        self._state: Any = None

    def open(self, **options: Any) -> Page:
        """Return a page that shows the dashboard, signed in."""
        page = self.open_signed_out(**options)
        if self._state is None:
            page.goto(f"{self._network.url}/#code={self._network.codes.pop()}")
            page.wait_for_selector(".tile")
            self.keep_session(page)
        else:
            page.goto(self._network.url)
            page.wait_for_selector(".tile")
        return page

    def open_signed_out(self, **options: Any) -> Page:
        """Return an empty page."""
        context = self._browser.new_context(storage_state=self._state, **options)
        context.set_default_timeout(TIMEOUT_MS)
        self._contexts.append(context)
        context.route("**/*", self._let_own_pass)
        context.add_init_script(
            "addEventListener('securitypolicyviolation', report => console.error('policy: ' + report.violatedDirective))"
        )
        page = context.new_page()
        page.on("pageerror", lambda error: self.faults.append(f"script: {error}"))
        page.on("dialog", self._dismiss)
        page.on("console", lambda message: self.faults.append(message.text) if message.type == "error" else None)
        return page

    def keep_session(self, page: Page) -> None:
        """Sign in further pages as this one."""
        self._state = page.context.storage_state()

    def close(self) -> None:
        """Close all pages."""
        for context in self._contexts:
            context.close()

    def _dismiss(self, dialog: Dialog) -> None:
        self.faults.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    def _let_own_pass(self, route: Route) -> None:
        if route.request.url.startswith(self._network.url):
            route.continue_()
        else:
            self.faults.append(f"another host: {route.request.url}")
            route.abort()


@pytest.fixture(scope="session")
def all_pages(browser: Browser, network: Network) -> Generator[Pages]:
    pages = Pages(browser, network)
    yield pages
    pages.close()


@pytest.fixture
def pages(all_pages: Pages) -> Pages:
    """The pages, without faults of earlier tests."""
    all_pages.faults.clear()
    return all_pages
