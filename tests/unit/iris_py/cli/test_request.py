"""Tests of iris_py/cli/request.py: what it says of what it shows."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from iris_py.api.info import Member, Members
from iris_py.cli import request
from iris_py.cli.outcome import ExitCode
from iris_py.cli.settings import Settings

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


def run_members(
    monkeypatch: pytest.MonkeyPatch, cluster: str | None, found: tuple[Member, ...], total: int, *, as_json: bool
) -> int:
    """Run `iris members` at a node that sees some of so many."""

    async def wait() -> None:
        return None

    own = Member(id="f" * 32, address="10.0.0.2:7400", zone="eu")
    node = SimpleNamespace(
        id=own.id,
        network="lab",
        network_size=total + 1,
        unreached_seeds=dict,
        nodes=lambda: (own, *found),
        members=lambda name: Members(name, lambda: found, wait, lambda: total),
    )

    @asynccontextmanager
    async def visit(_settings: Settings, _config: object = None) -> AsyncIterator[Any]:
        yield node

    monkeypatch.setattr(Settings, "visit", visit)
    return asyncio.run(request.members(Settings(), cluster, as_json=as_json))


@pytest.mark.parametrize("as_json", [False, True])
@pytest.mark.parametrize(
    ("cluster", "total", "said"),
    [
        ("work", 40, "these are 32 of 40 members of 'work'"),
        (None, 40, "these are 32 of about 40 nodes of the network 'lab'"),
        ("work", 32, ""),
        (None, 32, ""),
    ],
)
def test_members_says_when_it_shows_a_part_and_of_how_many(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    cluster: str | None,
    total: int,
    said: str,
    as_json: bool,
) -> None:
    found = tuple(Member(id=f"{number:032x}", address="10.0.0.1:7400", zone="eu") for number in range(32))
    assert run_members(monkeypatch, cluster, found, total, as_json=as_json) == ExitCode.OK
    out, error = capsys.readouterr()
    lines = out.splitlines()
    if as_json:
        summary = json.loads(lines.pop())
        assert (summary["kind"], summary["shown"], summary["total"]) == ("summary", 32, total)
    assert len(lines) == 32
    assert said in error
    assert bool(error) is bool(said)


def test_stand_ins_are_shown_where_there_are_some(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    member, stand_in = (
        Member(id="01", address="host:1", zone="eu", name="web-1/a.py"),
        Member(id="02", address="host:2", zone="", is_stand_in=True),
    )
    for found, shown in (
        ((member,), "01  web-1/a.py  host:1  eu\n"),
        ((member, stand_in), "01  web-1/a.py  host:1  eu  member\n02  -           host:2  -   stand-in\n"),
    ):
        assert run_members(monkeypatch, "work", found, len(found), as_json=False) == ExitCode.OK
        assert capsys.readouterr().out == shown
