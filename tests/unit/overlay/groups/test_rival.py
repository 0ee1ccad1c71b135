"""Two nodes that are both the root of a group, because one does not know the other as a neighbour."""

from __future__ import annotations

import heapq
import random
from collections import Counter
from itertools import count
from typing import TYPE_CHECKING

import pytest

from iris_overlay.events import Counters
from iris_overlay.groups.config import GroupConfig
from iris_overlay.groups.directory import Directory
from iris_overlay.groups.followers import FollowerKind
from iris_overlay.groups.io import AnswerTo, HandoverDone, Outbox, RouteTo
from iris_overlay.groups.layer import GroupLayer
from iris_overlay.groups.messages import (
    WATCHERS_MAX,
    Copy,
    GroupRegistration,
    Register,
    Unwatch,
    View,
    Watch,
    decode_group_message,
    encode_group_message,
)
from iris_overlay.groups.rival import ANSWER_S, ANSWERS_MAX, Rival
from iris_overlay.groups.root import GroupRoot
from iris_overlay.ids import GroupId, NodeId
from iris_overlay.node_info import NodeInfo
from iris_py.testing.cores.signer import TrustingSigner
from tests.unit.overlay.stub_ring import StubRing

if TYPE_CHECKING:
    from collections.abc import Iterator

    from iris_overlay.groups.messages import GroupMessage

# In the order of their distance to the group.
G = GroupId(bytes([40]) * 16)
NEAR, FAR, KEEPER, WATCHER, MEMBER, OTHER = (NodeInfo(NodeId(bytes([40 + step]) * 16), ()) for step in range(1, 7))
#: The way of a message between two nodes.
LATENCY_S = 0.001


class TwoRoots:
    """Two roots of one group, and the keeper of the copies of both; only one root knows the other.

    Attributes:
        layers: The groups of the three nodes, by node.
        sent: The messages of each kind, by their receiver.
    """

    def __init__(self) -> None:
        self.now = 1.0
        self.layers: dict[NodeId, GroupLayer] = {}
        self.sent: Counter[tuple[NodeId, type[GroupMessage]]] = Counter()
        self._infos = {info.id: info for info in (NEAR, FAR, KEEPER, WATCHER, MEMBER, OTHER)}
        self._numbers = count()
        self._queue: list[tuple[float, int, NodeId, NodeId, GroupMessage]] = []
        for info, neighbours in ((NEAR, [FAR, KEEPER]), (FAR, [KEEPER]), (KEEPER, [NEAR])):
            ring = StubRing()
            ring.neighbours, ring.is_mine = neighbours, info is not KEEPER
            layer = GroupLayer(info, GroupConfig(), random.Random(1), ring, Counters(), TrustingSigner(info.id))
            layer.activated(0.0)
            self.layers[info.id] = layer

    def tell(self, root: NodeInfo, source: NodeInfo, message: GroupMessage) -> None:
        self.layers[root.id].received(source, encode_group_message(message), self.now)

    def run(self, until: float) -> None:
        """Let time pass, and count the messages. Nodes other than the three are silent, but watch nothing."""
        self.sent.clear()
        for number in count():
            at, event = self._next()
            assert number < 10_000, f"a storm: {self.sent}"
            if at > until:
                break
            self.now = at
            if event is None:
                for layer in self.layers.values():
                    layer.handle_timeout(at)
            else:
                heapq.heappop(self._queue)
                _, _, to, source, message = event
                self.sent[to, type(message)] += 1
                if to in self.layers:
                    self.tell(self._infos[to], self._infos[source], message)
                elif isinstance(message, View):
                    self._post(to, source, Unwatch(to, [G]))
        self.now = until

    def _next(self) -> tuple[float, tuple[float, int, NodeId, NodeId, GroupMessage] | None]:
        """Return the next event, a message or a deadline, and its time."""
        for source, to, message in self._outputs():
            self._post(source, to, message)
        deadlines = (layer.deadline() for layer in self.layers.values())
        deadline = min(at for at in deadlines if at is not None)
        return (self._queue[0][0], self._queue[0]) if self._queue and self._queue[0][0] <= deadline else (deadline, None)

    def _outputs(self) -> Iterator[tuple[NodeId, NodeId, GroupMessage]]:
        for node, layer in self.layers.items():
            for output in layer.outputs_to_send():
                if isinstance(output, RouteTo):
                    to = NEAR.id if output.key == G else NodeId(output.key)
                elif isinstance(output, AnswerTo):
                    to = output.path[0]
                else:
                    assert not isinstance(output, HandoverDone)
                    to = output.info.id
                yield node, to, decode_group_message(output.payload)

    def _post(self, source: NodeId, to: NodeId, message: GroupMessage) -> None:
        heapq.heappush(self._queue, (self.now + LATENCY_S, next(self._numbers), to, source, message))


@pytest.mark.parametrize("watched_at", [NEAR, FAR])
def test_two_roots_do_not_outbid_each_other_all_the_time(watched_at: NodeInfo) -> None:
    roots = TwoRoots()
    roots.tell(NEAR, MEMBER, Register(MEMBER, [GroupRegistration(G, b"", 1)]))
    roots.tell(FAR, OTHER, Register(OTHER, [GroupRegistration(G, b"", 1)]))
    roots.tell(watched_at, WATCHER, Watch(WATCHER, 1, [(G, 0, b"")]))
    roots.run(2.0)
    for root in (NEAR, FAR):
        assert set(roots.layers[root.id].directory_of(G) or ()) == {MEMBER.id, OTHER.id}, "each has the members of both"
    assert sum(roots.sent.values()) < 40 * ANSWERS_MAX
    roots.run(2.0 + ANSWERS_MAX * ANSWER_S)  # the wait has begun
    for second in range(11, 15):
        roots.run(second * ANSWER_S)
        assert roots.sent[KEEPER.id, Copy] <= 8
        assert sum(roots.sent.values()) < 60


def test_answers_without_a_wait_come_back_one_at_a_time() -> None:
    rival = Rival()
    for now in (0.0, 100.0):
        assert [rival.may_answer(now) for _ in range(ANSWERS_MAX + 1)] == [True] * ANSWERS_MAX + [False]
        assert rival.ready_at == now + ANSWER_S
    assert not rival.may_answer(100.9)
    assert [rival.may_answer(101.5) for _ in range(2)] == [True, False]
    assert rival.ready_at == 102.0


def test_the_watchers_of_a_rival_are_bounded() -> None:
    rival = Rival()
    rival.hear(7, [NodeInfo(NodeId(number.to_bytes(16, "big")), ()) for number in range(WATCHERS_MAX + 1)])
    rival.hear(5, [])
    assert (rival.version, len(rival.watchers)) == (7, WATCHERS_MAX)


def test_a_rival_is_answered_later_and_only_if_it_is_still_ahead() -> None:
    root = GroupRoot(Directory(G, 1), NEAR, random.Random(1), Outbox())
    assert root.answer_at() is None
    assert not root.answer_rival(100.0, 0.0)
    root.rival = Rival()
    root.rival.ready_at = 5.0
    root.rival.hear(root.directory.version, [WATCHER])
    assert root.answer_at() == 5.0
    assert not root.answer_rival(100.0, 4.9)
    assert root.answer_rival(100.0, 5.0)
    assert (root.directory.version >> 32, list(root.followers.members[FollowerKind.WATCHER])) == (1, [WATCHER.id])
    assert root.answer_at() is None
    root.rival.hear(root.directory.version - 1, [])
    assert root.answer_at() is None
    root.rival.hear(root.directory.version, [])
    assert root.answer_at() == root.rival.ready_at
    assert root.answer_rival(100.0, 5.1, is_news=True), "new members do not wait"
