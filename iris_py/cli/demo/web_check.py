"""The check of `iris demo --web`: Chromium opens the page in two tabs and the dashboard, and a member is killed meanwhile."""

from __future__ import annotations

import os
import shutil
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

from iris_py.cli.demo.findings import DemoFinding, note_finding
from iris_py.cli.demo.web_market import CLUSTER
from iris_py.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from playwright.async_api import BrowserContext, ConsoleMessage, Page

    from iris_py.cli.demo.web_network import WebDemo

__all__ = ["check_page", "find_browser"]

#: The names of Chromium's program, Debian's first. The environment variable ``CHROMIUM`` names another path.
PROGRAMS: Final = ("chromium", "chromium-browser", "google-chrome")
#: Time for each thing to show (milliseconds): longer than the replacement of a member on a busy machine.
TIMEOUT_MS: Final = 60_000
#: Prices that a tab has to receive after the first ones, and requests after a kill: some seconds of load.
PRICES_MIN: Final = 20
REQUESTS_MIN: Final = 50
#: Chromium looks for nothing by itself, and root may start it.
ARGUMENTS: Final = ("--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update")
_HEARD: Final = "least => Number(document.getElementById('count').textContent) >= least"
_MEMBERS: Final = (
    "count => [...document.querySelectorAll('.tile')].some(tile => tile.textContent === `members${count}`)"
    " && document.querySelectorAll('main table tbody tr').length === count"
)
_POLICY: Final = "addEventListener('securitypolicyviolation', report => console.error('policy: ' + report.violatedDirective))"


def find_browser() -> str:
    """Return the path of Chromium.

    Raises:
        ConfigurationError: There is none.
    """
    found = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, PROGRAMS)), None)
    if not found or not os.access(found, os.X_OK):
        raise ConfigurationError(
            "`iris demo --web --check` needs Chromium. Install Debian's package chromium, or name the program: CHROMIUM=/path"
        )
    return found


async def check_page(demo: WebDemo, url: str, browser: str) -> list[DemoFinding]:
    """Look at the page and the dashboard in Chromium, and return the findings.

    Args:
        demo: The running demo.
        url: The link to the page.
        browser: The path of Chromium.

    Raises:
        ConfigurationError: Chromium does not start.
    """
    async with _open_context(browser) as context:
        visit = _Visit(demo, context, url)
        for claim, step in (
            ("prices move in two tabs", visit.look_at_prices),
            ("a chat message reaches the other tab, and a new one", visit.chat),
            (f"the button asks {CLUSTER!r}", visit.ask),
            ("the dashboard shows a killed member and its successor", visit.kill),
            ("requests go on", visit.look_at_requests),
            ("the browser reports no error", visit.look_at_faults),
        ):
            await visit.note(claim, step)
    return visit.findings


@asynccontextmanager
async def _open_context(browser: str) -> AsyncIterator[BrowserContext]:
    from playwright.async_api import Error, async_playwright  # of an extra that most machines do without

    async with async_playwright() as playwright:
        try:
            # Signals are the command's own, which ends the browser itself.
            running = await playwright.chromium.launch(
                executable_path=browser, args=list(ARGUMENTS), handle_sigint=False, handle_sigterm=False, handle_sighup=False
            )
        except Error as exc:
            raise ConfigurationError(f"{browser} does not start: {exc.message.splitlines()[0]}. Start it by hand.") from exc
        try:
            yield await running.new_context()
        finally:
            await running.close()


class _Visit:
    """A visit to the page. A step returns the texts that it saw, or raises an `AssertionError` or an error of playwright."""

    def __init__(self, demo: WebDemo, context: BrowserContext, url: str) -> None:
        self.findings: list[DemoFinding] = []
        self._demo = demo
        self._context = context
        self._url = url
        self._page_url = url.partition("#")[0]
        self._faults: list[str] = []
        self._tabs: list[Page] = []
        self._answered = 0

    async def note(self, claim: str, step: Callable[[], Awaitable[str]]) -> None:
        """Take a step, and note the finding about a claim."""
        from playwright.async_api import Error

        await note_finding(self.findings, claim, step, Error)

    async def look_at_prices(self) -> str:
        """Open two tabs, and wait for prices in both."""
        self._tabs = [await self._open(self._url), await self._open(self._page_url)]
        prices: list[list[str]] = []
        for least in (1, PRICES_MIN):
            for tab in self._tabs:
                await tab.wait_for_function(_HEARD, arg=least)
                prices.append(await tab.locator("#prices td:nth-child(2)").all_inner_texts())
        for first, later in zip(prices[:2], prices[2:], strict=True):
            assert first != later, f"the prices stay at {', '.join(later)}"
        counts = [await tab.inner_text("#count") for tab in self._tabs]
        return f"{counts[0]} and {counts[1]} messages, the last prices {', '.join(prices[-1])}"

    async def chat(self) -> str:
        """Say something in the first tab, and read it in the second one and in a third one."""
        first, second = self._tabs
        text = "hello from the first tab"
        await first.fill("#text", text)
        await first.press("#text", "Enter")
        await second.locator("#chat li", has_text=text).wait_for()
        third = await self._open(self._page_url)
        await third.locator("#chat li", has_text=text).wait_for()
        entry = await second.locator("#chat li").last.inner_text()
        await third.close()
        return f"{entry!r} in the second tab, and in a third one that was opened later"

    async def ask(self) -> str:
        """Press the button."""
        await self._tabs[0].click("#ask button")
        entry = self._tabs[0].locator("#quotes li").last
        await entry.wait_for()
        found: str = await entry.inner_text()
        assert "from member" in found, found
        return found

    async def kill(self) -> str:
        """Kill a member, and look at the dashboard."""
        count = len(self._demo.members)
        dashboard = await self._open(f"{self._page_url}iris/#/cluster/{CLUSTER}")
        await dashboard.wait_for_function(_MEMBERS, arg=count)
        self._demo.begin_kill()
        await dashboard.wait_for_function(_MEMBERS, arg=count - 1)
        self._answered = self._demo.market.answered
        await dashboard.wait_for_function(_MEMBERS, arg=count)
        return f"{count} members, then {count - 1}, then {count}"

    async def look_at_requests(self) -> str:
        """Wait for requests after the kill, and press the button again."""
        market = self._demo.market
        await self.ask()
        await self._tabs[1].wait_for_function(_HEARD, arg=int(await self._tabs[1].inner_text("#count")) + PRICES_MIN)
        count = market.answered - self._answered
        assert count >= REQUESTS_MIN, f"only {count} requests were answered since the kill"
        assert market.failed == 0, f"{market.failed} requests failed"
        return f"{count:,} requests answered since the kill, none failed"

    async def look_at_faults(self) -> str:
        """Tell errors of scripts, and reports of the content security policy."""
        assert not self._faults, "; ".join(self._faults)
        return "no error of a script, and no report of the content security policy"

    async def _open(self, url: str) -> Page:
        page = await self._context.new_page()
        page.set_default_timeout(TIMEOUT_MS)
        await page.add_init_script(_POLICY)
        page.on("pageerror", lambda error: self._faults.append(f"script: {error}"))
        page.on("console", self._note_message)
        await page.goto(url)
        return page

    def _note_message(self, message: ConsoleMessage) -> None:
        if message.type == "error":
            self._faults.append(message.text)
