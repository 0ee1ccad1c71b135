"""The command `iris top`: when it is a screen, and what it says where it cannot be one."""

from __future__ import annotations

import asyncio
import os
import sys
from typing import Any

import pytest

from iris_py.cli.network import QueryOptions
from iris_py.cli.settings import Settings
from iris_py.cli.top import command
from iris_py.errors import ConfigurationError

USUAL: dict[str, Any] = {
    "sort": "name",
    "cluster": None,
    "node": None,
    "is_once": False,
    "query": QueryOptions(sample=64, interval_s=1.0, timeout_s=1.0),
    "limit": 40,
    "as_json": False,
}


class Stream:
    """A standard stream that is a terminal, or is none."""

    def __init__(self, *, is_terminal: bool) -> None:
        self._is_terminal = is_terminal

    def isatty(self) -> bool:
        return self._is_terminal


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("__stdin__", "__stdout__", "__stderr__"):
        monkeypatch.setattr(sys, name, Stream(is_terminal=True))
    monkeypatch.setenv("TERM", "xterm")


def show(**options: object) -> None:
    asyncio.run(command.top(Settings(), **{**USUAL, **options}))


def test_a_missing_extra_is_named_with_the_way_without_it(terminal: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "iris_py.cli.top.app", raising=False)
    monkeypatch.setitem(sys.modules, "textual.app", None)
    with pytest.raises(ConfigurationError, match=r"extra `tui`.*textual.*--once"):
        show()


def test_what_takes_a_minute_is_for_once_and_the_screen_begins_at_one_place(terminal: None) -> None:
    with pytest.raises(ConfigurationError, match=r"--once.*--sample"):
        show(query=QueryOptions(is_every=True))
    with pytest.raises(ConfigurationError, match="Leave one out"):
        show(cluster="upper", node="0123")


@pytest.mark.parametrize("name", ["__stdin__", "__stdout__", "__stderr__"])
def test_a_pipe_gets_no_screen(terminal: None, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    assert command._has_screen()
    for stream in (Stream(is_terminal=False), None):
        monkeypatch.setattr(sys, name, stream)
        assert not command._has_screen()


def test_a_terminal_without_a_cursor_gets_none_either(terminal: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(os.environ, "TERM", "dumb")
    assert not command._has_screen()
