"""Tunnels of node cores: the ways they take, and what is lost on these."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from iris_overlay.events import LinkReleased, PeerDied
from iris_py.errors import IrisError, RequestTimeout
from iris_py.link.lanes import TUNNEL
from iris_py.node.spare_links import LINK_IDLE_S
from iris_py.patterns.request.registration import Registration
from iris_py.patterns.tunnel.ring_transport import HEADER, LINGER_S, PROBE, SILENCE_S
from iris_py.patterns.tunnel.table import TunnelChanged, TunnelOpened, TunnelStarted
from tests.unit.iris_py.nodes import Net

if TYPE_CHECKING:
    from collections.abc import Callable

    from iris_overlay.node_info import NodeInfo
    from iris_py.node.core import NodeCore
    from iris_py.patterns.tunnel.end import TunnelEnd

WINDOW_BYTES = 100_000
LARGE = random.Random(1).randbytes(1_000_000)


class Tunnelled:
    """A member, a node between, and a caller whose tunnels go to the member: through the ring if there is a wall."""

    def __init__(self, *, is_walled: bool) -> None:
        self.net = Net(3)
        self.member, self.between, self.caller = self.net.cores.nodes.values()
        net = self.net
        registration = Registration(self.member.group("cluster", net.now), 1, 0)
        registration.tunnels, registration.window_bytes = 2, WINDOW_BYTES
        self.registration = registration
        self.member.join(registration, net.now)
        net.watch(self.caller)
        net.cores.drive_until(net.now + LINK_IDLE_S + 5.0)
        if is_walled:
            self.caller._exchange.handle_overlay_event(LinkReleased(self.member.info.id), net.now)
            net.cores.drive()
            one, two = self.caller.info.addresses[0], self.member.info.addresses[0]
            net.cores.walls |= {(one, two), (two, one)}

    def open(self) -> tuple[TunnelEnd, TunnelEnd]:
        """Open a tunnel; returns the caller's end and the member's."""
        self.caller.open_tunnel("cluster", 20.0, WINDOW_BYTES, "token", self.net.now)
        self.net.cores.drive_until(self.net.now + 15.0)
        (opened,) = [event for event in self.events(self.caller) if isinstance(event, TunnelOpened)]
        (started,) = [event for event in self.events(self.member) if isinstance(event, TunnelStarted)]
        assert opened.token == "token"
        return opened.end, started.end

    def events(self, core: NodeCore) -> list[object]:
        """Take the events of a node that are about tunnels."""
        address = core.info.addresses[0]
        events, self.net.cores.events[address] = self.net.cores.events[address], []
        return [event for event in events if isinstance(event, TunnelOpened | TunnelStarted | TunnelChanged)]

    def transfer(self, source: TunnelEnd, target: TunnelEnd, data: bytes, limit_s: float = 60.0) -> bytes:
        """Send one message and take it as it comes; returns what has arrived."""
        cores = self.net.cores
        sent, received, deadline = 0, bytearray(), cores.now + limit_s
        while cores.now < deadline:
            if sent < len(data) and not source.is_ended and source.failure is None:
                sent += max(0, source.write(data[sent:], is_last=True))
            while (entry := target.take()) is not None:
                received += entry[0]
                if entry[1]:
                    return bytes(received)
            if source.failure is not None and target.failure is not None:
                break
            cores.drive()
            if not target.can_take:
                cores.drive_until(cores.now + 0.1)
        return bytes(received)

    def distort(self, distort: Callable[[bytes], list[bytes]]) -> None:
        """Let a function say what becomes of each packet of tunnels that is sent through the ring."""
        for core in (self.caller, self.member):
            overlay, send = core.overlay, core.overlay.send

            def lossy(info: NodeInfo, packet: bytes, now: float, send: Callable[..., None] = send) -> None:
                for each in distort(packet) if packet[0] == TUNNEL else [packet]:
                    send(info, each, now)

            overlay.send = lossy  # type: ignore[method-assign, assignment]

    def is_forgotten(self) -> bool:
        tables = [(core.tunnels._live, core.tunnels._ends, core.tunnels._links) for core in (self.caller, self.member)]
        return not any(table for each in tables for table in each) and not self.registration.tunnels_open


def finish(tunnelled: Tunnelled, ours: TunnelEnd, theirs: TunnelEnd) -> None:
    """End both directions cleanly."""
    ours.end()
    theirs.end()
    tunnelled.net.cores.drive_until(tunnelled.net.now + 5.0)
    assert ours.is_over
    assert theirs.is_over
    assert ours.is_taken
    assert theirs.is_taken
    tunnelled.member.tunnels.handler_done(theirs)
    tunnelled.net.cores.drive_until(tunnelled.net.now + LINGER_S + 1.0)
    assert tunnelled.is_forgotten()


@pytest.mark.parametrize("is_walled", [False, True])
def test_a_tunnel_carries_messages_both_ways(is_walled: bool) -> None:
    tunnelled = Tunnelled(is_walled=is_walled)
    ours, theirs = tunnelled.open()
    assert (tunnelled.caller.peers.find(tunnelled.member.info.id) is None) == is_walled
    for data in (b"", b"small", LARGE):
        assert tunnelled.transfer(ours, theirs, data) == data
        assert tunnelled.transfer(theirs, ours, data) == data
    finish(tunnelled, ours, theirs)
    assert tunnelled.caller.drops == tunnelled.member.drops == {}


def test_tunnels_are_made_when_a_node_first_requests_or_is_offered_one() -> None:
    tunnelled = Tunnelled(is_walled=False)
    cores = (tunnelled.caller, tunnelled.member)
    assert [core.patterns.tunnels for core in cores] == [None, None]
    tunnelled.caller.open_tunnel("cluster", 20.0, WINDOW_BYTES, "token", tunnelled.net.now)
    assert [core.patterns.tunnels is None for core in cores] == [False, True]
    tunnelled.net.cores.drive_until(tunnelled.net.now + 15.0)
    assert [core.patterns.tunnels is None for core in cores] == [False, False]


@pytest.mark.parametrize("seed", range(5))
def test_the_ring_may_lose_repeat_reorder_and_forge_packets(seed: int) -> None:
    tunnelled = Tunnelled(is_walled=True)
    ours, theirs = tunnelled.open()
    rng = random.Random(seed)
    held: list[bytes] = []

    def distort(packet: bytes) -> list[bytes]:
        fate = rng.random()
        if fate < 0.1:
            return []
        if fate < 0.2:
            return [packet, packet]
        if fate < 0.3:
            held.append(packet)
            return []
        if fate < 0.35 and len(packet) > HEADER.size:
            return [packet[:-1] + bytes((packet[-1] ^ 1,)), packet]
        late, held[:] = list(held), []
        return [packet, *late]

    tunnelled.distort(distort)
    assert tunnelled.transfer(ours, theirs, LARGE[:400_000], 300.0) == LARGE[:400_000]
    assert tunnelled.transfer(theirs, ours, LARGE[400_000:], 300.0) == LARGE[400_000:]
    ours.end()
    theirs.end()
    tunnelled.net.cores.drive_until(tunnelled.net.now + 60.0)
    assert ours.is_taken
    assert theirs.is_taken
    tunnelled.member.tunnels.handler_done(theirs)
    assert tunnelled.is_forgotten()


def test_a_ring_that_loses_everything_breaks_the_tunnel_at_both_ends() -> None:
    tunnelled = Tunnelled(is_walled=True)
    ours, theirs = tunnelled.open()
    tunnelled.net.cores.drive_until(tunnelled.net.now + 100.0)  # quiet, but not lost
    assert ours.failure is theirs.failure is None
    tunnelled.distort(lambda packet: [])
    tunnelled.net.cores.drive_until(tunnelled.net.now + SILENCE_S + 1.0)
    for end in (ours, theirs):
        assert end.failure is not None
        assert end.failure.reason == "no progress through the ring for 10 s"
    tunnelled.member.tunnels.handler_done(theirs)
    assert tunnelled.is_forgotten()


def test_a_dead_member_behind_the_ring_breaks_the_tunnel_at_once() -> None:
    tunnelled = Tunnelled(is_walled=True)
    ours, _theirs = tunnelled.open()
    tunnelled.caller._exchange.handle_overlay_event(PeerDied(tunnelled.member.info.id), tunnelled.net.now)
    assert ours.failure is not None
    assert not tunnelled.caller.tunnels._live


def test_a_tunnel_breaks_with_its_link_and_not_with_another() -> None:
    tunnelled = Tunnelled(is_walled=False)
    ours, theirs = tunnelled.open()
    addresses = [core.info.addresses[0] for core in (tunnelled.caller, tunnelled.between, tunnelled.member)]
    tunnelled.net.cores.cut(addresses[0], addresses[1])
    tunnelled.net.cores.drive()
    assert ours.failure is theirs.failure is None
    tunnelled.net.cores.cut(addresses[0], addresses[2])
    tunnelled.net.cores.drive()
    for end in (ours, theirs):
        assert end.failure is not None
        assert end.failure.reason == "the link to the other side ended: the connection broke"
    tunnelled.member.tunnels.handler_done(theirs)
    assert tunnelled.is_forgotten()


def test_an_opening_that_the_caller_forgot_holds_its_place_no_longer_than_the_time_it_came_with() -> None:
    tunnelled = Tunnelled(is_walled=False)
    net, caller, member = tunnelled.net, tunnelled.caller, tunnelled.member
    request_id = caller.open_tunnel("cluster", 2.0, WINDOW_BYTES, "token", net.now)
    pending = caller.requester._pending[request_id]
    for _ in range(20):
        net.cores.step()
        if tunnelled.registration.tunnels_open:
            break
    caller.requester._forget(request_id, pending)  # as if nothing of it were left
    net.cores.drive()
    assert tunnelled.registration.tunnels_open == 1
    assert not [event for event in tunnelled.events(member) if isinstance(event, TunnelStarted)]
    net.cores.drive_until(net.now + 2.5)
    assert tunnelled.is_forgotten()


def test_a_caller_that_gives_up_before_it_is_answered_frees_the_place_at_once() -> None:
    tunnelled = Tunnelled(is_walled=False)
    net, caller, member = tunnelled.net, tunnelled.caller, tunnelled.member
    peer = member.peers.known(caller.info.id)
    assert peer is not None
    request_id = caller.open_tunnel("cluster", 2.0, WINDOW_BYTES, "token", net.now)
    assert not member.tunnels.receive_cancel(peer, request_id), "there is none yet"
    for _ in range(20):
        net.cores.step()
        if tunnelled.registration.tunnels_open:
            break
    assert not member.tunnels.receive_cancel(peer, request_id + 1)
    assert tunnelled.registration.tunnels_open == 1
    assert member.tunnels.receive_cancel(peer, request_id)
    assert tunnelled.registration.tunnels_open == 0


def test_what_has_begun_is_not_given_up() -> None:
    tunnelled = Tunnelled(is_walled=False)
    ours, theirs = tunnelled.open()
    assert not tunnelled.member.tunnels.receive_cancel(theirs.peer, ours.id)
    assert theirs.failure is None


def test_a_second_opening_with_the_same_number_is_dropped() -> None:
    tunnelled = Tunnelled(is_walled=False)
    tunnelled.open()
    member = tunnelled.member
    peer = member.peers.known(tunnelled.caller.info.id)
    assert peer is not None
    member.tunnels.receive_open(member.group("cluster", 0.0), peer, 1, 1000, bytes(100), tunnelled.net.now)
    assert member.drops == {"repeated_tunnel": 1}


@pytest.mark.parametrize(("payload", "reason"), [(b"", "malformed"), (bytes(60), "unauthentic")])
def test_nonsense_opens_nothing(payload: bytes, reason: str) -> None:
    tunnelled = Tunnelled(is_walled=False)
    tunnelled.open()
    member = tunnelled.member
    peer = member.peers.known(tunnelled.caller.info.id)
    assert peer is not None
    member.tunnels.receive_open(member.group("cluster", 0.0), peer, 99, 1000, payload, tunnelled.net.now)
    member.tunnels.receive_sealed(peer, bytes(8), bytes(20))
    member.tunnels.receive_routed(peer, HEADER.pack(TUNNEL, 99, PROBE, 1), tunnelled.net.now)
    member.tunnels.receive_routed(peer, b"short", tunnelled.net.now)
    expected = {reason: 1, "unknown_tunnel": 2}
    expected["malformed"] = expected.get("malformed", 0) + 1
    assert member.drops == expected
    assert len(member.tunnels) == 1


def test_an_acceptance_that_cannot_be_opened_goes_to_another_member_or_nowhere() -> None:
    tunnelled = Tunnelled(is_walled=False)
    net, caller = tunnelled.net, tunnelled.caller
    receive = caller._inbound._tunnels.receive_accept

    def forged(group: object, peer: object, id_: int, payload: bytes, now: float) -> None:
        receive(group, peer, id_, payload[:-1] + bytes((payload[-1] ^ 1,)), now)  # type: ignore[arg-type]

    caller._inbound._tunnels.receive_accept = forged  # type: ignore[method-assign, assignment]
    caller.open_tunnel("cluster", 2.0, WINDOW_BYTES, "token", net.now)
    net.cores.drive_until(net.now + 10.0)
    ((token, error),) = net.cores.outcomes[caller.info.addresses[0]]
    assert token == "token"
    assert isinstance(error, IrisError)
    assert not isinstance(error, RequestTimeout)
    assert caller.drops == {"unauthentic": 1, "unknown_tunnel": 1}  # and the member says that it was not taken up
    assert tunnelled.is_forgotten()
