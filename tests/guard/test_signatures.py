"""Signatures that are made and checked, counted: one for a link and a registration, none for a message on a link or a probe.

Signatures are counted by their purpose. Messages pass between two nodes in one process, on real sockets; probes between some
nodes of a simulated network.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, Final

import iris_py
from iris_py.testing import NodeSimulation, run
from iris_security import LinkDatagrams, Purpose, Secret, identity, keyring, signature
from iris_security.signature import SigningKey

if TYPE_CHECKING:
    import pytest

SECRET: Final = Secret(bytes(range(32)))
MESSAGES: Final = 200
#: What the overlay may sign by itself meanwhile, such as a renewal on a machine that takes minutes for this.
OWN_MAX: Final = 10
#: Nodes that probe each other; all are neighbours.
NODES: Final = 8
#: Virtual seconds until each node has probed every other one, and then for which probes are counted.
PROBED_S: Final = 30.0
INITIATOR, RESPONDER = Purpose.INITIATOR.value, Purpose.RESPONDER.value
OVERLAY, DATAGRAM = Purpose.OVERLAY.value, Purpose.DATAGRAM.value
#: Permits say by a number what they are for (docs/wire.md).
MEMBER, USER = b"permit of a member", b"permit of a user"
PERMITS: Final = {1: MEMBER, 2: USER}


class Signatures:
    """Counts signatures by their purpose.

    Attributes:
        made: By either node.
        checked: Likewise.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.made: Counter[bytes] = Counter()
        self.checked: Counter[bytes] = Counter()
        sign, verify = SigningKey.sign, signature.verify

        def count_made(key: SigningKey, label: bytes, data: bytes) -> bytes:
            self.made[_purpose(label, data)] += 1
            return sign(key, label, data)

        def count_checked(label: bytes, data: bytes, signed: bytes) -> bytes:
            self.checked[_purpose(label, data)] += 1
            return verify(label, data, signed)

        monkeypatch.setattr(SigningKey, "sign", count_made)
        for module in (identity, keyring):
            monkeypatch.setattr(module, "verify", count_checked)

    def clear(self) -> None:
        self.made.clear()
        self.checked.clear()


def _purpose(label: bytes, data: bytes) -> bytes:
    return PERMITS[data[1]] if label == b"permit" else label


class Echo(iris_py.Handler):
    """Answers, and takes broadcasts."""

    async def on_request(self, request: iris_py.Request) -> bytes:
        return request.payload

    async def on_broadcast(self, message: iris_py.Message) -> None:
        pass


def test_links_and_registrations_cost_one_signature_and_messages_none(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        signatures = Signatures(monkeypatch)
        async with (
            iris_py.connect(secret=SECRET, discovery=False) as caller,
            iris_py.connect(secret=SECRET, seeds=[caller.address], discovery=False) as member,
        ):
            for counts in (signatures.made, signatures.checked):
                assert (counts[INITIATOR], counts[RESPONDER]) == (1, 1), "each end signs, and checks the other"

            signatures.clear()
            await member.join("echo", Echo())
            assert (signatures.made[MEMBER], signatures.made[USER]) == (1, 1), "it registers, and watches the cluster"
            for permit in (MEMBER, USER):
                assert signatures.checked[permit] <= 2, "at the root, and at the other one if that keeps a copy"
            assert signatures.made[OVERLAY] <= 2, "of both, if they go through the ring"

            await member.subscribe("news", lambda _message: None)
            await use(caller, 1)
            signatures.clear()
            await use(caller, MESSAGES)
            for counts in (signatures.made, signatures.checked):
                del counts[DATAGRAM]
                assert counts.total() <= OWN_MAX, counts

    asyncio.run(main())


async def use(node: iris_py.Node, times: int) -> None:
    """Send each kind of message over the link, so many times."""
    for number in range(times):
        payload = b"%d" % number
        assert await node.request("echo", payload) == payload
        assert await node.publish("news", payload) == 1
        assert await node.broadcast("echo", payload) == 1


def test_probes_between_linked_nodes_cost_no_signatures(monkeypatch: pytest.MonkeyPatch) -> None:
    signatures, sealed = Signatures(monkeypatch), 0
    seal = LinkDatagrams.seal

    def count_sealed(datagrams: LinkDatagrams, sender: bytes, payload: bytes) -> bytes:
        nonlocal sealed
        sealed += 1
        return seal(datagrams, sender, payload)

    monkeypatch.setattr(LinkDatagrams, "seal", count_sealed)

    async def main() -> None:
        async with NodeSimulation(1) as simulation:
            first = await simulation.start_nodes(1, beacons=False)
            await simulation.start_nodes(NODES - 1, seeds=first, beacons=False)
            await asyncio.sleep(PROBED_S)
            before = sealed
            signatures.clear()
            await asyncio.sleep(PROBED_S)
            probes = sealed - before
            assert probes >= 2 * NODES * (PROBED_S - 1), "each node pings its neighbour each second, which answers"
            assert signatures.made[DATAGRAM] <= probes / 50, signatures.made
            assert signatures.checked[DATAGRAM] <= probes / 50, signatures.checked

    run(main(), limit_s=4 * PROBED_S)
