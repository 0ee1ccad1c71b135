"""examples/browser_notifications in Chromium: two users, the state at the beginning, and a restart of the door."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from tests.browser.conftest import SCREENSHOTS, Network, Pages
from tests.notes_example import NotesExample

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

    from playwright.sync_api import Browser, Page


@pytest.fixture
def example(tmp_path: Path) -> Generator[NotesExample]:
    own = {"XDG_CONFIG_HOME": str(tmp_path / "config"), "XDG_STATE_HOME": str(tmp_path / "state")}
    with NotesExample({key: value for key, value in os.environ.items() if not key.startswith("IRIS_")} | own) as example:
        yield example


@pytest.fixture
def user_pages(browser: Browser, example: NotesExample) -> Generator[Pages]:
    pages = Pages(browser, Network(example.url, []))
    yield pages
    pages.close()


def numbers(page: Page) -> list[int]:
    """Return the numbers of the notes that a page shows."""
    return [int(text.partition(":")[0]) for text in page.locator("#notes li").all_inner_texts()]


def log_in(page: Page, example: NotesExample, user: str) -> None:
    page.goto(example.url)
    page.fill("#name", user)
    page.press("#name", "Enter")
    page.get_by_text("connected").wait_for()
    page.locator("#notes li").first.wait_for()


def test_users_see_their_own_notes_and_are_told_after_a_restart(user_pages: Pages, example: NotesExample) -> None:
    pages: dict[str, Page] = {}
    for user in ("ann", "bob"):
        pages[user] = user_pages.open_signed_out()
        log_in(pages[user], example, user)
    for user, page in pages.items():
        page.wait_for_function("() => document.querySelectorAll('#notes li').length >= 5")
        texts = page.locator("#notes li").all_inner_texts()
        assert all(f" of {user} " in text for text in texts)
        shown = numbers(page)
        assert shown == [*range(shown[0], shown[0] - len(shown), -1)], "none is missing between the notes of a page"
        assert page.inner_text("#missed") == ""
    last = numbers(pages["ann"])[0]
    # Chromium reports what is refused meanwhile.
    assert [fault for fault in user_pages.faults if "401" not in fault] == []
    example.stop_app()
    pages["ann"].get_by_text("connecting again").wait_for()
    example.start_app()
    for page in pages.values():
        page.get_by_text("notes may have been missed here, so the list was loaded anew").wait_for()
        page.wait_for_function("last => Number.parseInt(document.querySelector('#notes li').textContent) > last", arg=last + 5)
        shown = numbers(page)
        assert shown == [*range(shown[0], shown[0] - len(shown), -1)], "also none of those that came during the restart"
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    pages["ann"].screenshot(path=SCREENSHOTS / "notifications.png")


def test_a_page_opens_with_the_newest_note(user_pages: Pages, example: NotesExample) -> None:
    first = user_pages.open_signed_out()
    log_in(first, example, "ann")
    first.wait_for_function("() => document.querySelectorAll('#notes li').length >= 3")
    known = numbers(first)[0]
    user_pages.keep_session(first)
    second = user_pages.open_signed_out()
    second.goto(example.url)
    second.locator("#notes li").first.wait_for()
    assert numbers(second)[-1] >= known, "it shows the newest, not those before"
    assert second.locator("#login").is_hidden()
