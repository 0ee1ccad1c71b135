"""Walks of a perfect ring, and of one where roots are silent or lie: whom they find, and with how many questions."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING

import pytest

from iris_overlay.events import RootLocated
from iris_overlay.ids import RING, NodeId, position
from iris_overlay.node_info import NodeInfo
from iris_py.api.introspection import LEAVES, SILENT_MAX, STEP_SHARE_MIN, STRANDS_MAX, draw, walk
from tests.unit.iris_py.observe.test_reports import PerfectRing

if TYPE_CHECKING:
    from collections.abc import Callable


class AskedRing:
    """A ring that answers at once."""

    def __init__(self, count: int) -> None:
        self.ring = PerfectRing(count, 1)
        self.infos = self.ring.infos
        self.asked = 0
        self.answer: Callable[[int, RootLocated], RootLocated | None] = lambda _root, told: told

    async def locate(self, key: bytes) -> RootLocated | None:
        self.asked += 1
        root, leaves = self.ring.neighbourhood(position(key))
        told = RootLocated(1, self.infos[root], key, (), (), tuple(self.infos[leaf] for leaf in leaves), None, None)
        return self.answer(root, told)

    def walk(self, size: int | None = None, found_max: int = 1_000_000) -> tuple[set[NodeId], bool]:
        local = 7 % len(self.infos)
        leaves = [self.infos[leaf] for leaf in self.ring.neighbourhood(self.ring.places[local])[1]]
        found, is_whole = asyncio.run(walk(self.locate, self.infos[local], leaves, size or len(self.infos), found_max))
        ids = {info.id for info in found}
        assert self.infos[local].id not in ids
        return ids | {self.infos[local].id}, is_whole

    @property
    def ids(self) -> set[NodeId]:
        return {info.id for info in self.infos}


@pytest.mark.parametrize(("count", "questions"), [(3, 0), (15, 0), (17, 4), (51, 10), (257, 45), (3_001, 430)])
def test_a_walk_finds_everybody_with_a_question_for_each_eight_nodes(count: int, questions: int) -> None:
    ring = AskedRing(count)
    assert ring.walk() == (ring.ids, True)
    assert ring.asked <= questions


@pytest.mark.parametrize("factor", [0.6, 1.6])
def test_a_walk_with_a_wrong_idea_of_the_size_finds_everybody(factor: float) -> None:
    ring = AskedRing(501)
    assert ring.walk(size=round(501 * factor)) == (ring.ids, True)


def test_a_walk_passes_silent_roots_and_says_so() -> None:
    ring = AskedRing(301)
    ring.answer = lambda root, told: None if root % 10 == 0 else told
    found, is_whole = ring.walk()
    assert not is_whole
    assert len(found) > 270, "their neighbours know them"


def test_a_walk_of_a_ring_that_does_not_answer_ends_soon() -> None:
    ring = AskedRing(3_001)
    ring.answer = lambda _root, _told: None
    found, is_whole = ring.walk()
    assert (len(found), is_whole) == (LEAVES + 1, False)
    assert ring.asked <= SILENT_MAX * STRANDS_MAX


def test_a_walk_stops_when_it_has_found_enough() -> None:
    ring = AskedRing(3_001)
    found, is_whole = ring.walk(found_max=100)
    assert not is_whole
    assert 100 <= len(found) < 100 + STRANDS_MAX * (LEAVES + 1)


@pytest.mark.parametrize("lie", ["itself", "everywhere", "nobody", "elsewhere"])
def test_no_lie_makes_a_walk_endless(lie: str) -> None:
    ring, rng = AskedRing(301), random.Random(1)

    def tell(_root: int, told: RootLocated) -> RootLocated:
        leaves: tuple[NodeInfo, ...] = ()
        root = told.root
        if lie == "itself":
            leaves = (root,) * 64
        elif lie == "everywhere":
            leaves = tuple(NodeInfo(NodeId(rng.randbytes(16)), ()) for _ in range(64))
        elif lie == "elsewhere":
            root = NodeInfo(NodeId(((position(root.id) + RING // 2) % RING).to_bytes(16, "big")), ())
            leaves = told.leaves
        return RootLocated(told.number, root, told.key, (), (), leaves, None, None)

    ring.answer = tell
    ring.walk()
    assert ring.asked <= 301 / 8 / STEP_SHARE_MIN + STRANDS_MAX


def test_a_draw_is_fair() -> None:
    ring, rng = AskedRing(201), random.Random(2)
    drawn = [0] * 201
    at = {info.id: number for number, info in enumerate(ring.infos)}
    for _ in range(150):
        result = asyncio.run(draw(ring.locate, ring.infos[0], 20, rng.randbytes))
        assert result is not None
        for info in result[0]:
            drawn[at[info.id]] += 1
    mean = sum(drawn) / 200
    assert drawn[0] == 0, "it does not draw itself"
    assert max(drawn[1:]) < 3 * mean, "one in 17 is drawn of nodes that have most of the room, too"
    roots = [0] * 201
    for _ in range(3_000):
        roots[ring.ring.neighbourhood(rng.randrange(RING))[0]] += 1
    assert max(roots) > 3 * sum(roots) / 201, "while roots themselves are not even"


def test_nobody_is_drawn_where_nobody_answers() -> None:
    ring = AskedRing(201)
    ring.answer = lambda _root, _told: None
    assert asyncio.run(draw(ring.locate, ring.infos[0], 20, random.Random(1).randbytes)) is None


@pytest.mark.long
def test_100_000_nodes_are_walked_with_an_eighth_as_many_questions_and_drawn_with_64() -> None:
    ring = AskedRing(100_001)
    assert ring.walk() == (ring.ids, True)
    assert ring.asked < 15_000
    ring.asked = 0
    asyncio.run(draw(ring.locate, ring.infos[0], 64, random.Random(1).randbytes))
    assert ring.asked == 64
