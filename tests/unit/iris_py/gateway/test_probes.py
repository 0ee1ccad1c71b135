"""Probes of lines: who is asked for counts, for how long, and for how many names."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

from iris_py.federation.events import CountTold
from iris_py.gateway.probes import KEPT_S, NAMES_MAX, GatewayProbes
from iris_py.testing import run


class World:
    """Lines to two clouds, and stand-ins that watch some names.

    Attributes:
        lines: The lines, by cloud.
        probed: The clouds that echoes were sent to.
        watched: What gateways there were asked for: line, name, and whether to tell it.
        stand_ins: The names that stand-ins watch, with their counts.
    """

    def __init__(self) -> None:
        self.lines: Any = SimpleNamespace(
            neighbours={alias: SimpleNamespace(bundles={1: f"{alias}/1", 2: f"{alias}/2"}) for alias in ("eu", "asia")}
        )
        self.probed: list[str] = []
        self.watched: list[tuple[str, str, bool]] = []
        self.stand_ins: dict[tuple[str, str], int] = {}
        own = SimpleNamespace(
            watches=lambda bundle, name: (bundle, name) in self.stand_ins,
            members_told=lambda bundle, name: self.stand_ins.get((bundle, name)),
        )
        driver = SimpleNamespace(wake=lambda: None)
        self.probing = GatewayProbes(cast("Any", self), cast("Any", own), cast("Any", driver))

    def probe(self, alias: str, _now: float) -> None:
        self.probed.append(alias)

    def watch(self, bundle: Any, name: str, _now: float, *, is_on: bool) -> bool:
        if name == "secret":
            return False
        self.watched.append((bundle, name, is_on))
        return True

    def tell(self, bundle: str, name: str, members: int) -> bool:
        return self.probing.handle_count(CountTold(bundle.partition("/")[0], cast("Any", bundle), name, members))


def counts_of(world: World) -> dict[str, int | None]:
    """Return how many members of db each bundle of eu has told."""
    return {str(bundle): count for bundle, count in world.probing.members("eu", "db").items()}


def test_all_lines_or_those_of_one_cloud_are_probed() -> None:
    async def main() -> None:
        world = World()
        world.probing.probe("")
        assert world.probed == ["eu", "asia"]
        assert world.watched == []
        world.probing.probe("db@eu")
        assert world.probed == ["eu", "asia", "eu"]
        assert world.watched == [("eu/1", "db", True), ("eu/2", "db", True)]
        world.probing.probe("db@mars")
        world.probing.probe("@")
        world.probing.abort()

    run(main())


def test_counts_are_kept_for_a_while_and_told_anew_to_who_asks_again() -> None:
    async def main() -> None:
        world = World()
        world.probing.probe("db@eu")
        assert counts_of(world) == {"eu/1": None, "eu/2": None}
        assert world.tell("eu/1", "db", 3)
        assert not world.tell("eu/1", "files", 3), "nobody asked for that"
        assert not world.tell("asia/1", "db", 3)
        assert counts_of(world) == {"eu/1": 3, "eu/2": None}
        await asyncio.sleep(KEPT_S - 1)
        world.probing.probe("db@eu")
        assert counts_of(world) == {"eu/1": None, "eu/2": None}
        await asyncio.sleep(KEPT_S - 1)
        assert world.tell("eu/1", "db", 2)
        assert counts_of(world) == {"eu/1": 2, "eu/2": None}
        await asyncio.sleep(2)
        assert world.watched[4:] == [("eu/1", "db", False), ("eu/2", "db", False)]
        assert not world.tell("eu/1", "db", 4)

    run(main())


def test_what_stand_ins_watch_goes_on_being_told() -> None:
    async def main() -> None:
        world = World()
        world.stand_ins["eu/1", "db"] = 5
        world.probing.probe("db@eu")
        assert counts_of(world) == {"eu/1": 5, "eu/2": None}
        await asyncio.sleep(KEPT_S + 1)
        assert world.watched[2:] == [("eu/2", "db", False)]

    run(main())


def test_a_line_that_has_ended_is_asked_for_nothing_more() -> None:
    async def main() -> None:
        world = World()
        world.probing.probe("db@eu")
        world.probing.forget(cast("Any", "eu/1"))
        await asyncio.sleep(KEPT_S + 1)
        assert world.watched[2:] == [("eu/2", "db", False)]

    run(main())


def test_so_many_names_at_most_are_counted_and_lines_are_probed_all_the_same() -> None:
    async def main() -> None:
        world = World()
        for number in range(NAMES_MAX + 10):
            world.probing.probe(f"db{number}@eu")
        assert len({name for _bundle, name, _is_on in world.watched}) == NAMES_MAX
        assert len(world.probed) == NAMES_MAX + 10
        world.probing.probe("secret@asia")
        world.probing.abort()
        await asyncio.sleep(KEPT_S + 1)
        assert all(is_on for _bundle, _name, is_on in world.watched), "nothing happens after the end"

    run(main())
