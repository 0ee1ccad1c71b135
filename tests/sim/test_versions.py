"""Nodes of this version and of the next one in one network."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest

from iris_py.link.handshake import VERSION_MAX, Offer
from iris_py.link.lanes import LAST_KIND
from iris_py.peers.decrypted_message import PeerMessage
from iris_py.testing import NodeSimulation, run
from iris_py.wire import packets

if TYPE_CHECKING:
    import iris_py as iris
    from iris_overlay.ids import NodeId
    from iris_py.peers.peer import Peer

#: What only the next version knows: a frame, a message of the overlay, and a kind of message between members.
FRAME, OVERLAY_TAG, KIND = LAST_KIND + 1, 120, packets.KINDS + 1


async def echo(request: iris.Request) -> bytes:
    return request.payload


def make_newer(node: iris.Node) -> None:
    """Let a node speak the next version, too: it describes itself with fields that this one does not have."""
    peers = node._core.peers
    peers._config = msgspec.structs.replace(peers._config, offer=Offer(version_max=VERSION_MAX + 1))
    id_, addresses, zone, facts = (*msgspec.msgpack.decode(peers._hello), b"")[:4]
    facts += b"\xc8\x03new"  # of a type that this one does not have
    peers._hello = msgspec.msgpack.encode([id_, addresses, zone, facts, {"load": 0.5}, "of the next version"])


def say_new_things(node: iris.Node, peer: Peer, cluster: str) -> None:
    """Send a peer what only the next version knows."""
    link, group = peer.link, node._core.groups.find(cluster)
    assert link is not None
    assert group is not None
    link._lanes.add_signal(FRAME, b"something")
    link.send_control(msgspec.msgpack.encode([OVERLAY_TAG, b"something", 17]))
    now = node._runtime.loop.time()
    node._core._outbound.gather(PeerMessage(group, peer, KIND, 1, 0, b"something"), now)
    node._core._outbound.touch(link, now)
    node._runtime.wake()


@pytest.mark.parametrize("seed", range(3))
def test_a_network_of_two_versions_works_and_what_is_new_ends_no_link(seed: int) -> None:
    async def scenario() -> None:
        async with NodeSimulation(seed) as simulation:
            member = await simulation.start_node(beacons=False)
            await member.join("echo", echo)
            newer = []
            for _ in range(2):
                node = await simulation.start_node(seeds=[member], beacons=False)
                make_newer(node)
                newer.append(node)
            for node in newer:  # their links begin again, as those of the next version
                for link in node._core.peers.links():
                    link.abort("of this version still")
                    node._core._exchange.handle_link(link, node._runtime.loop.time())
            await newer[0].join("new", echo)
            for node in newer:
                assert await node.request("echo", b"1", timeout=10.0, idempotent=True) == b"1"
            assert await member.request("new", b"2", timeout=10.0, idempotent=True) == b"2"
            assert await newer[1].request("new", b"3", timeout=10.0, idempotent=True) == b"3"

            first, second = (node._core for node in newer)
            versions = {version_of(newer[0], member), version_of(newer[1], member)}
            assert versions == {VERSION_MAX}
            assert version_of(newer[0], newer[1]) == VERSION_MAX + 1
            peer = first.peers.find(member._core.info.id)
            assert peer is not None
            before = peer.link
            say_new_things(newer[0], peer, "echo")
            await simulation.until(lambda: {"unknown_frame", "unknown_kind"} <= member.statistics().drops.keys())
            assert member._core.overlay._ring.counters.messages_unknown == 1
            assert await newer[0].request("echo", b"4", timeout=10.0) == b"4"
            assert peer.link is before
            assert member._core.overlay.counters.messages_invalid == 0
            assert second.overlay.counters.messages_invalid == 0

    run(scenario(), limit_s=120)


def version_of(node: iris.Node, other: iris.Node) -> int:
    """Return the version of the link between two nodes."""
    peer_id: NodeId = other._core.info.id
    peer = node._core.peers.find(peer_id)
    assert peer is not None
    assert peer.link is not None
    return peer.link.version
