"""`iris demo --web`: a private network with a page of live prices, a chat and the dashboard, while members are killed.

The page uses the network through a door, as the page of a user's web application does.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from iris_py.cli.demo.keys import reading_keys
from iris_py.cli.demo.web_network import COMMAND, open_demo
from iris_py.cli.demo.web_report import announce, report
from iris_py.cli.join import ending_by_signal
from iris_py.cli.outcome import ExitCode
from iris_py.errors import ConfigurationError
from iris_py.extras import install_command

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from iris_py.cli.demo.findings import DemoFinding
    from iris_py.cli.demo.web_network import WebDemo

__all__ = ["demo_web"]


async def demo_web(*, member_count: int, is_check: bool, as_json: bool) -> int:
    """Run `iris demo --web` until a signal or the key q, or with `is_check` until Chromium has seen everything.

    Args:
        member_count: Number of simultaneous members.
        is_check: Whether to drive Chromium through the page and the dashboard.
        as_json: Print lines of JSON.

    Returns:
        The exit code; with `is_check` 0 only if everything held.

    Raises:
        ConfigurationError: The packages of the door are missing; with `is_check`, playwright or Chromium.
        MemberFailed: A member did not start.
    """
    try:
        from iris_py.cli.demo.web_page import open_page
    except ImportError as exc:
        raise ConfigurationError(f"`{COMMAND}` needs {exc.name}. Run: {install_command('web')}") from exc
    check = _find_check() if is_check else None
    async with ending_by_signal() as ended, open_demo(member_count) as demo, open_page(demo.door_node) as url:
        if check is None:
            announce(demo, url, as_json=as_json)

            def end() -> None:
                if not ended.done():
                    ended.set_result(ExitCode.OK)

            with reading_keys({"k": demo.begin_kill, "q": end}):
                return await ended
        checking = asyncio.create_task(check(demo, url))
        await asyncio.wait((checking, ended), return_when=asyncio.FIRST_COMPLETED)
        if not checking.done():
            checking.cancel()
            await asyncio.wait((checking,))
            return await ended
        return report(await checking, demo.market, as_json=as_json)


def _find_check() -> Callable[[WebDemo, str], Coroutine[Any, Any, list[DemoFinding]]]:
    """Return the function that looks at the page.

    Raises:
        ConfigurationError: Playwright or Chromium are missing.
    """
    try:
        import playwright.async_api  # noqa: F401 - used by the check

        from iris_py.cli.demo.web_check import check_page, find_browser
    except ImportError as exc:
        raise ConfigurationError(f"`{COMMAND} --check` needs {exc.name}. Run: {install_command('browser')}") from exc
    browser = find_browser()
    return lambda demo, url: check_page(demo, url, browser)
