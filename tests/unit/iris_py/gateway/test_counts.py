"""Neighbours are told of the members of clusters: of the ordinary ones, only changes, and of so many names at most."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

from iris_py.errors import ConfigurationError
from iris_py.federation.events import WatchChanged
from iris_py.gateway import counts
from iris_py.gateway.counts import INTERVAL_S, Counts
from iris_py.testing import run

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    import pytest

    from iris_py.federation.bundle import Bundle


class World:
    """A gateway that has clusters and neighbours, and nothing else.

    Attributes:
        members: The ordinary members of each cluster, and its stand-ins; None where the view is not known.
        told: What neighbours were told: neighbour, name and members.
        refused: What was refused them.
    """

    def __init__(self) -> None:
        self.members: dict[str, tuple[int, int] | None] = {}
        self.told: list[tuple[str, str, int]] = []
        self.refused: list[tuple[str, str]] = []
        self.looks = 0
        port = SimpleNamespace(watch=self._group)
        driver = SimpleNamespace(wake=lambda: None)
        self.counts = Counts(cast("Any", port), cast("Any", self), cast("Any", driver))

    def _group(self, name: str, _now: float) -> Any:
        self.looks += 1
        if name == "bad":
            raise ConfigurationError("too many groups")
        found = self.members.get(name, (0, 0))
        if found is None:
            return SimpleNamespace(members=None)
        ordinary, others = [object()] * found[0], [object()] * found[1]
        size = max(found[0], 500 if found[0] > 100 else 0) + found[1]
        return SimpleNamespace(members=ordinary + others, targets=ordinary, higher=[others] if ordinary else [], size=size)

    def tell_count(self, bundle: Bundle, name: str, members: int, _now: float) -> None:
        self.told.append((bundle.alias, name, members))

    def note_refused(self, alias: str, name: str, _use: str, _reason: str) -> None:
        self.refused.append((alias, name))

    def take(self) -> list[tuple[str, str, int]]:
        told, self.told = self.told, []
        return told

    def watch(self, bundle: Bundle, outside: str, name: str = "", *, is_on: bool = True) -> None:
        self.counts.handle_watch(WatchChanged(bundle, outside, name or outside, is_on))


def a_bundle(alias: str = "us") -> Bundle:
    class Fake:
        """A bundle, of which only the neighbour is known."""

        def __init__(self) -> None:
            self.alias = alias

    return cast("Bundle", Fake())


def in_world(use: Callable[[World], Awaitable[None]]) -> None:
    async def main() -> None:
        world = World()
        await use(world)
        world.counts.abort()

    run(main(), limit_s=100)


def test_changes_are_told_and_nothing_else() -> None:
    async def use(world: World) -> None:
        bundle = a_bundle()
        world.members["local"] = 2, 1
        world.watch(bundle, "db", "local")
        await asyncio.sleep(0)
        assert world.take() == [("us", "db", 2)], "at once"
        await asyncio.sleep(10.0)
        assert not world.take()
        for members in (1, 3, 0):
            world.members["local"] = members, 1
            await asyncio.sleep(INTERVAL_S + 0.01)
            assert world.take() == [("us", "db", members)]
        for members in range(1, 40):
            world.members["local"] = members, 0
            await asyncio.sleep(INTERVAL_S / 10)
        assert len(world.take()) <= 4, "four a second"

    in_world(use)


def test_who_stands_in_does_not_count() -> None:
    async def use(world: World) -> None:
        world.members["db"] = 0, 3
        world.watch(a_bundle(), "db")
        await asyncio.sleep(1)
        assert world.take() == [("us", "db", 0)]
        world.members["db"] = 120, 3  # of a large cluster the view is a sample
        await asyncio.sleep(1)
        assert world.take() == [("us", "db", 500)]

    in_world(use)


def test_what_is_not_known_is_not_told() -> None:
    async def use(world: World) -> None:
        world.members["db"] = None
        world.watch(a_bundle(), "db")
        world.watch(a_bundle(), "bad")
        await asyncio.sleep(1)
        assert not world.take()
        world.members["db"] = 1, 0
        await asyncio.sleep(1)
        assert world.take() == [("us", "db", 1)]

    in_world(use)


def test_who_asks_again_is_told_again_and_who_asks_no_more_is_not() -> None:
    async def use(world: World) -> None:
        one, other = a_bundle(), a_bundle()
        world.members["db"] = 1, 0
        for bundle in (one, other, one):
            world.watch(bundle, "db")
            await asyncio.sleep(1)
            assert world.take() == [("us", "db", 1)]
        world.watch(one, "db", is_on=False)
        world.watch(one, "never", is_on=False)
        world.members["db"] = 2, 0
        await asyncio.sleep(1)
        assert world.take() == [("us", "db", 2)]
        world.counts.forget(other)
        world.members["db"] = 3, 0
        await asyncio.sleep(1)
        looks = world.looks
        await asyncio.sleep(10)
        assert (world.take(), world.looks) == ([], looks), "nobody counts for nobody"
        world.watch(one, "db")
        world.counts.clear()
        await asyncio.sleep(1)
        assert not world.take()

    in_world(use)


def test_names_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counts, "NAMES_MAX", 3)
    monkeypatch.setattr(counts, "ALL_NAMES_MAX", 5)

    async def use(world: World) -> None:
        bundles = [a_bundle("us"), a_bundle("us"), a_bundle("asia")]
        for bundle in bundles:
            for number in range(4):
                world.watch(bundle, f"{number}")
        assert world.refused == [("us", "3"), ("us", "3"), ("asia", "2"), ("asia", "3")]
        assert len(world.counts._watched) == 5
        world.watch(bundles[0], "0", is_on=False)
        world.watch(bundles[1], "0", is_on=False)
        world.watch(bundles[2], "2")
        assert len(world.counts._watched) == 5

    in_world(use)
