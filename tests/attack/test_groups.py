"""A member of a group that lies, takes nothing, claims too much or sends what nobody asked for, beside honest members.

It holds the secret of the network, as every member of a group does. The nodes are real, and so are their links.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import AsyncExitStack
from functools import partial
from typing import TYPE_CHECKING

import iris_py as iris
from iris_overlay.groups.entries import FIXED, pack
from iris_py.patterns.topic.share_index import NODE_SHARES_MAX
from iris_py.peers.member import WEIGHT_MAX
from iris_py.wire import packets
from iris_py.wire.imported import ImportedHead
from iris_py.wire.shares import FIRST_WINDOW, FOREIGN, WINDOW_MAX, SharedNumber
from tests.attack.rogue_member import Rogue, encode_shared

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest

    from iris_py.observe.statistics import ShareStatistics
    from tests.integration.conftest import Loops

SECRET = bytes(range(32))
ORDERS = ("orders", ">")
JUMP = (1 << 31) - 1

#: Rounds of 100 messages, of which each honest member gets some 17. Of two drawn members the slower one gets none: after a slow
#: moment a member gets far fewer.
PUBLISH_ROUNDS = 200


class Scene(AsyncExitStack):
    """A publisher, honest members of the group ``workers``, and a rogue with the same secret."""

    def __init__(self, loop: Loops, honest: int = 3, weight: float = 1.0) -> None:
        super().__init__()
        self._until = loop.until
        self._honest, self._weight = honest, weight
        self.taken: list[list[iris.Message]] = []
        self.members: list[iris.Node] = []
        self.published = 0

    async def start(self) -> None:
        """Start all nodes; the honest members have subscribed."""
        self.publisher = await self._connect()
        for _ in range(self._honest):
            node = await self._connect(self.publisher.address)
            taken: list[iris.Message] = []
            await node.subscribe("orders.>", taken.append, group="workers", weight=self._weight)
            self.members.append(node)
            self.taken.append(taken)
        self.rogue_node = await self._connect(self.publisher.address)
        self.rogue = Rogue(self.rogue_node)
        self.tag = self.rogue.tag("workers")
        await self.publish(8)
        await self.until(lambda: len(self.all_taken()) == 8, "the honest members share")
        await self._until(lambda: self.knows("workers"), "the publisher learns the name of the group")

    async def _connect(self, *seeds: str) -> iris.Node:
        return await self.enter_async_context(iris.connect(secret=SECRET, discovery=False, seeds=seeds))

    async def until(self, condition: Callable[[], object], what: str) -> None:
        await self._until(condition, what, lambda: (self.share(), self.publisher.statistics().drops))

    async def join(self, weight: float = 1.0) -> None:
        """Let the rogue claim a share, and the publisher know."""
        self.rogue.claim([(ORDERS, self.tag, weight, False)])
        await self.until(lambda: self.share().members == self._honest + 1, "the publisher knows the rogue")

    async def publish(self, count: int, *, turns: bool = True) -> None:
        """Publish messages, each in a turn of its own or all at once, so that no member tells of the first before the last."""
        for _ in range(count):
            assert await self.publisher.publish("orders.new", b"%d" % self.published) == 1
            self.published += 1
            if turns:
                await asyncio.sleep(0)

    async def publish_until_all_take(self, count: int) -> None:
        """Publish until each honest member has taken so many messages; after a slow moment it gets fewer for a while."""
        for _ in range(PUBLISH_ROUNDS):
            if all(len(taken) >= count for taken in self.taken):
                return
            await self.publish(100)
            await self.settle()
        raise AssertionError(f"a member is starved: {[len(taken) for taken in self.taken]}")

    def share(self) -> ShareStatistics:
        """Return the counts of the group at the publisher."""
        return self.publisher.statistics().shares["workers"]

    def drops(self, reason: str, count: int = 1) -> bool:
        """Tell whether the publisher has counted so many drops."""
        return self.publisher.statistics().drops.get(reason, 0) >= count

    def knows(self, group: str) -> bool:
        """Tell whether the publisher knows a group, by its name or tag."""
        return group in self.publisher.statistics().shares

    def all_taken(self) -> list[int]:
        """Return the numbers of all messages that honest members have taken."""
        return [int(message.payload) for taken in self.taken for message in taken]

    def given_to_rogue(self) -> list[int]:
        """Return the numbers of all messages that the rogue got for the group."""
        return [int(payload) for payload in self.rogue.payloads[self.tag]]

    async def settle(self) -> None:
        """Wait until the honest members have taken all that the rogue was not given."""
        await self.until(lambda: len(self.all_taken()) + len(self.given_to_rogue()) == self.published, "all arrived")
        assert Counter(self.all_taken() + self.given_to_rogue()) == Counter(range(self.published))

    async def end_rogue(self) -> None:
        """Let the rogue go; the publisher accounts for all messages."""
        await self.rogue_node.close()
        await self.until(lambda: not self.share().outstanding, "nothing is outstanding")
        await self.publish(20)
        await self.settle()
        await self.until(lambda: not self.share().outstanding, "nothing is outstanding")
        share = self.share()
        assert (share.given, share.members) == (self.published, self._honest)
        assert share.given == share.taken + share.lost


def test_impossible_counts_of_a_member_change_no_account(loop: Loops, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with Scene(loop) as scene:
            await scene.start()
            await scene.join()
            while len(scene.given_to_rogue()) < 8:
                await scene.publish(100, turns=False)
                await scene.settle()
            rogue, tag, got = scene.rogue, scene.tag, len(scene.given_to_rogue())
            await scene.until(lambda: scene.share().outstanding == got, "the honest members have told")
            before, other = scene.share(), rogue.tag("elsewhere")
            rogue.given[other] = rogue.given[tag]
            name, count = rogue.given[tag].name, rogue.given[tag].end
            lies = [
                (tag, rogue.counts(tag, taken=1, received=count + 1)),
                (tag, rogue.counts(tag, taken=count + 1)),
                (tag, rogue.counts(tag, taken=-1)),
                (tag, rogue.counts(tag, taken=count, missed=1)),
                (tag, rogue.counts(tag, taken=0, missed=(1 << 32) - 1)),
                *[(tag, rogue.counts(tag, taken=count, name=name + step)) for step in (-2, -1, 1)],
                (other, rogue.counts(tag, taken=count)),
            ]
            for number, (of, lie) in enumerate(lies, start=1):
                rogue.tell(of, lie)
                drops = partial(scene.drops, "taken_invalid", number)
                await scene.until(drops, "refused")
            assert scene.share() == before
            rogue.tell(tag, rogue.counts(tag, taken=3))
            await scene.until(lambda: scene.share().taken == before.taken + 3, "what may be is believed")
            await scene.publish(100)
            await scene.settle()
            got = len(scene.given_to_rogue())
            await scene.end_rogue()
            assert scene.share().lost == got - 3
            assert f"the group 'workers' lost up to {got - 3} messages" in caplog.text

    loop.run(main())


def test_a_member_that_says_nothing_gets_a_first_window_and_what_it_had_is_reported(
    loop: Loops, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        async with Scene(loop) as scene:
            await scene.start()
            await scene.join(WEIGHT_MAX)
            await scene.publish(1_000)
            await scene.settle()
            got = len(scene.given_to_rogue())
            assert 0 < got <= FIRST_WINDOW
            await scene.end_rogue()
            assert scene.share().lost == got
            assert f"the group 'workers' lost up to {got} messages" in caplog.text

    loop.run(main())


def test_a_member_that_tells_an_empty_queue_and_takes_nothing_is_passed_over_after_a_while(
    loop: Loops, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        async with Scene(loop) as scene:
            await scene.start()
            await scene.join()
            scene.rogue.lie = (WINDOW_MAX, 0, 1, False)
            got = -1
            while got < len(scene.given_to_rogue()):
                got = len(scene.given_to_rogue())
                await scene.publish(100)
                await scene.settle()
                await asyncio.sleep(0.05)
            assert got
            await scene.end_rogue()
            assert scene.share().lost == got
            assert f"the group 'workers' lost up to {got} messages" in caplog.text

    loop.run(main())


def test_a_member_that_lies_about_its_load_gets_at_most_the_slices_that_it_is_drawn_for(loop: Loops) -> None:
    """Of four members it is among the two drawn for half of the slices, and wins each time."""

    async def main() -> None:
        async with Scene(loop) as scene:
            await scene.start()
            await scene.join()
            scene.rogue.lie = (WINDOW_MAX, 0, 1, True)
            await scene.publish(2_000)
            await scene.settle()
            got = len(scene.given_to_rogue())
            assert got <= 1_200, "half, and a chance of less than one in 10^15 for so many"
            await scene.publish_until_all_take(100)
            await scene.until(lambda: not scene.share().outstanding, "it said that it took them")
            await scene.end_rogue()
            assert scene.share().lost == 0

    loop.run(main())


def test_a_thousand_rows_weigh_no_more_than_the_largest_weight(loop: Loops) -> None:
    async def main() -> None:
        async with Scene(loop, weight=WEIGHT_MAX) as scene:
            await scene.start()
            patterns = [ORDERS, *[("orders", f"x{number}") for number in range(1_000)]]
            scene.rogue.claim([(pattern, scene.tag, WEIGHT_MAX, False) for pattern in patterns])
            await scene.until(lambda: scene.share().members == 4, "the publisher knows the rogue")
            scene.rogue.lie = (WINDOW_MAX, 0, 1, True)
            await scene.publish(2_000)
            await scene.settle()
            assert 0 < len(scene.given_to_rogue()) <= 1_200
            await scene.publish_until_all_take(100)
            await scene.end_rogue()

    loop.run(main())


def test_a_node_in_thousands_of_groups_crowds_out_nobody(loop: Loops) -> None:
    async def main() -> None:
        async with Scene(loop) as scene:
            await scene.start()
            for start in range(0, 10_000, 1_000):  # other groups each time: publishers remember some of those before
                scene.rogue.claim([((">",), start + number, WEIGHT_MAX, True) for number in range(1_000)])
                await scene.until(partial(scene.knows, f"{start + 999:013x}"), "the publisher knows")
            scene.rogue.claim([((">",), number, WEIGHT_MAX, False) for number in range(2 * NODE_SHARES_MAX)])
            await scene.until(lambda: scene.drops("shares_many"), "those beyond are refused")
            for _ in range(200):
                assert await scene.publisher.publish("orders.new", b"%d" % scene.published)
                scene.published += 1
                await asyncio.sleep(0)
            await scene.until(lambda: len(scene.all_taken()) == scene.published, "the honest members get everything")
            await scene.end_rogue()

    loop.run(main())


def test_rows_that_are_none_are_refused(loop: Loops) -> None:
    async def main() -> None:
        async with Scene(loop) as scene:
            await scene.start()
            kinds = [FIXED | kind << 29 | fields for kind in range(4) for fields in (0, 1, (1 << 29) - 1)]
            scene.rogue.claim_rows(pack({(0, kind, tag) for kind in kinds for tag in (0, 1, (1 << 64) - 1)}))
            await scene.until(lambda: scene.drops("invalid_entry"), "refused")
            await scene.publish(100)
            await scene.until(lambda: len(scene.all_taken()) == scene.published, "the honest members get everything")
            await scene.end_rogue()

    loop.run(main())


def hostile_bodies(tag: int, victim: bytes) -> tuple[list[bytes], list[bytes]]:
    """Return SHARED for a group that nobody asked for: the accepted ones, and the refused ones."""

    def shared(before: int, name: int = 7, group: int = tag, topic: str = "orders.new", payload: bytes = b"rogue") -> bytes:
        return encode_shared([SharedNumber(group, name, before)], 1, topic, payload)

    def foreign(before: int, origin: bytes, payload: bytes) -> bytes:
        numbers = [SharedNumber(tag, 7, before)]
        return encode_shared(numbers, 3, "orders.new", payload, flags=FOREIGN, before_topic=origin)

    origin = ImportedHead(victim, b"rule", 1, 0, "eu").encode()
    head = shared(21, payload=b"")[packets.MESSAGE_BYTES :]
    run = b"".join(packets.encode_run(head, [b"rogue"] * 3, (1 << 64) - 1, packets.SHARED))
    # The count of a name goes on, modulo 2^32: half of the numbers are later ones, and the others are late.
    later = [*[shared(before, 100) for before in (0, JUMP, 2 * JUMP, 5)], *[shared(9, name) for name in (2, (1 << 64) - 1, 2)]]
    late = [*[shared(before, 100, payload=b"late") for before in (0, (1 << 31) + 6, 4, 5)], shared(1 << 31, 3, payload=b"late")]
    invalid = [
        foreign(22, origin[:-3], b"late"),
        foreign(22, b"", b"late"),
        shared(30, topic="other.topic", payload=b"late"),
        shared(31, topic="orders.*", payload=b"late"),
        shared(32, topic="", payload=b"late"),
        shared(33, group=tag + 1, payload=b"late"),
        encode_shared([], 1, "orders.new", b"late"),
        encode_shared([SharedNumber(tag, 1, 0)] * 2, 1, "orders.new", b"late"),
        encode_shared([SharedNumber(group, 1, 0) for group in range(65)], 1, "orders.new", b"late"),
        shared(40)[:-20],
    ]
    return [*later, shared(0), foreign(20, origin, b"rogue"), run], [*late, *invalid]


def test_messages_for_a_group_that_nobody_asked_for_invent_nothing_under_another_name(
    loop: Loops, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        async with Scene(loop, honest=1) as scene:
            await scene.start()
            (member,), (taken,) = scene.members, scene.taken
            assert await scene.rogue_node.publish("orders.new", b"-1") == 1
            await scene.until(lambda: taken[-1].payload == b"-1", "the rogue has a link")
            rogue_name = taken[-1].source
            peer = scene.rogue.peer(member)
            follows, refused = hostile_bodies(scene.tag, bytes.fromhex(scene.publisher.id))
            for body in [*follows[:4], *refused[:5], *follows[4:], *refused[5:]]:
                scene.rogue.send_body(peer, body)
                await scene.publish(1)
            del scene.rogue_node._core.pubsub.shares.receive
            assert await scene.rogue_node.publish("orders.new", b"-2") == 1
            await scene.until(lambda: taken[-1].payload == b"-2", "all that was sent before was read")
            await scene.until(lambda: len([each for each in taken if each.payload.isdigit()]) == scene.published, "all arrived")
            honest = [message for message in taken if message.source != rogue_name and not message.cloud]
            assert [int(message.payload) for message in honest] == list(range(scene.published))
            assert {message.source for message in honest} == {honest[0].source}
            assert not any(message.gap for message in honest)
            others = [message for message in taken if message not in honest]
            assert Counter(message.payload for message in others) == {b"-1": 1, b"rogue": len(follows) + 2, b"-2": 1}
            assert {message.cloud for message in others if message.source != rogue_name} == {"eu"}, "of no node of this cloud"
            assert max(message.gap for message in others) <= JUMP
            assert "Traceback" not in caplog.text

    loop.run(main())
