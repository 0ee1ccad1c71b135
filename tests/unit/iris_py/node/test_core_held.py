"""Requests that an insider on their way through the ring holds up: those that are held for too long never run."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from iris_overlay.peers.dial_back import PACKET
from iris_overlay.ring.messages import Direct, Routed, decode_ring_message
from iris_py.errors import RequestTimeout
from iris_py.link.lanes import UNICAST
from iris_py.node.spare_links import LINK_IDLE_S
from iris_py.wire.packets import CLOCK_ANSWER, CLOCK_QUESTION
from tests.unit.iris_py.node.test_core_links import unlink, wall
from tests.unit.iris_py.nodes import Net

if TYPE_CHECKING:
    from iris_overlay.ids import NodeId


class Held:
    """A member, a caller that has no link to it, and the insider between them, which holds what it wants."""

    def __init__(self) -> None:
        self.net = Net(3)
        self.member, self.between, self.caller = self.net.cores.nodes.values()
        self.kinds: frozenset[int] = frozenset()
        self.held: list[tuple[NodeId, bytes]] = []
        net = self.net
        net.join(self.member)
        net.watch(self.caller)
        net.cores.drive_until(net.now + LINK_IDLE_S + 5.0)
        unlink(net, self.caller, self.member)
        wall(net, self.caller, self.member)
        self._send = self.between.overlay.messages_to_send
        self.between.overlay.messages_to_send = self._messages_to_send  # type: ignore[method-assign]

    def warm(self) -> None:
        """Ask once, so that each knows the way to the other, and the member the caller's clock."""
        assert self.ask(20.0, 10.0) == b"re:question"

    def ask(self, timeout_s: float, wait_s: float) -> object:
        """Ask, and wait whether the member answers; returns the outcome."""
        net = self.net
        net.request(self.caller, timeout_s=timeout_s)
        ends_at = net.now + wait_s
        while net.now < ends_at:
            net.cores.drive_until(net.now + 0.05)
            net.serve(self.member)
            outcomes = net.outcomes(self.caller)
            if outcomes:
                return outcomes[None]
        return None

    def release(self) -> None:
        """Let go of the first that is held, and drop what came behind it: that the caller has given up."""
        self.kinds, self.held = frozenset(), self.held[:1]
        self.between.handle_timeout(self.net.now)
        self.net.cores.drive_until(self.net.now + 0.1)

    def _messages_to_send(self) -> list[tuple[NodeId, bytes]]:
        messages = [*self.held, *self._send()]
        self.held = [each for each in messages if kind_of(each[1]) in self.kinds]
        return [each for each in messages if kind_of(each[1]) not in self.kinds]


def kind_of(data: bytes) -> int | None:
    """Return what a message of the ring carries between two nodes: the kind of a packet, or None."""
    message = decode_ring_message(data)
    if not isinstance(message, Routed):
        return None
    try:
        inner = decode_ring_message(message.payload)
    except Exception:  # it is of groups
        return None
    return inner.payload[1] if isinstance(inner, Direct) and inner.payload[:1] == PACKET else None


def test_a_request_that_is_not_held_runs() -> None:
    held = Held()
    held.warm()
    assert held.ask(1.0, 2.0) == b"re:question"
    assert held.member.drops == {}


@pytest.mark.parametrize("is_known", [False, True])
@pytest.mark.parametrize("held_s", [1.5, 20.0])
def test_a_request_that_is_held_longer_than_its_time_never_runs(is_known: bool, held_s: float) -> None:
    held = Held()
    held.warm()
    if not is_known:
        held.member._inbound._routed._clocks._clocks.clear()
    held.kinds = frozenset((UNICAST,))
    assert isinstance(held.ask(1.0, 2.0), RequestTimeout)
    assert held.held
    held.net.cores.drive_until(held.net.now + held_s)
    held.release()
    held.net.cores.drive_until(held.net.now + 10.0)
    assert not held.net.started(held.member)
    assert held.member.drops == {"request_without_caller": 1}
    assert held.ask(1.0, 2.0) == b"re:question"  # and what comes after it does


@pytest.mark.parametrize("kind", [CLOCK_QUESTION, CLOCK_ANSWER])
def test_a_held_question_or_answer_lets_nothing_run_late(kind: int) -> None:
    held = Held()
    held.warm()
    held.member._inbound._routed._clocks._clocks.clear()
    held.kinds = frozenset((kind,))
    assert held.ask(1.0, 0.5) is None
    assert len(held.member._inbound._routed) == 1
    held.kinds = frozenset((kind, UNICAST))  # that the caller gives up does not get there either
    held.net.cores.drive_until(held.net.now + 2.0)
    assert isinstance(held.net.outcome(held.caller), RequestTimeout)
    held.release()
    held.net.cores.drive_until(held.net.now + 10.0)
    assert not held.net.started(held.member)
    assert held.member.drops == {"request_without_caller": 1}
    assert held.ask(1.0, 2.0) == b"re:question"


def test_what_is_left_of_the_time_is_what_counts() -> None:
    held = Held()
    held.warm()
    held.kinds = frozenset((UNICAST,))
    assert held.ask(5.0, 2.0) is None
    held.release()
    (execution,) = held.net.started(held.member)
    assert execution.deadline <= held.net.now + 3.0


@pytest.mark.parametrize("seed", range(10))
def test_whatever_is_held_and_for_however_long_nothing_runs_after_its_time(seed: int) -> None:
    rng = random.Random(seed)
    held = Held()
    held.warm()
    net, asked, ran = held.net, {}, 0
    for number in range(60):
        held.held = rng.sample(held.held, len(held.held) * 2 // 3)
        held.kinds = frozenset(kind for kind in (UNICAST, CLOCK_QUESTION, CLOCK_ANSWER) if rng.random() < 0.4)
        payload, timeout_s = str(number).encode(), rng.choice((0.3, 1.0, 4.0))
        net.request(held.caller, payload, timeout_s=timeout_s, token=payload)
        asked[payload] = net.now + timeout_s
        net.cores.drive_until(net.now + rng.uniform(0.0, 2.0))
        for execution in net.started(held.member):
            ran += 1
            assert execution.deadline <= asked[execution.payload] + 0.002
            held.member.service.reply(execution, b"", net.now)
    assert ran > 5
