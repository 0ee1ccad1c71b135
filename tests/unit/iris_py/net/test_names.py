"""Looking names up, with an end."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from iris_py.net.names import resolve

if TYPE_CHECKING:
    import pytest


def test_a_number_is_not_looked_up() -> None:
    assert asyncio.run(resolve("127.0.0.1", 0.0)) == ("127.0.0.1",)
    assert asyncio.run(resolve("2001:DB8::1", 0.0)) == ("2001:db8::1",)


def test_a_name_of_this_machine_is_known() -> None:
    assert set(asyncio.run(resolve("localhost", 60.0))) <= {"127.0.0.1", "::1"}


def test_what_is_no_name_has_no_address() -> None:
    assert asyncio.run(resolve("a" * 300, 60.0)) == ()


def test_a_name_server_that_is_silent_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    async def look_up(*_arguments: object, **_values: object) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(asyncio.BaseEventLoop, "getaddrinfo", look_up)
    assert asyncio.run(resolve("db1.example.org", 0.01)) == ()
