"""Signatures that are made and checked, counted: one for a link and for a registration, none for a message on a link.

Two nodes in one process, on real sockets. Signatures are counted by their purpose, so that datagrams count apart, which are
signed one by one.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, Final

import iris_py
from iris_security import Purpose, Secret, identity, keyring, signature
from iris_security.signature import SigningKey

if TYPE_CHECKING:
    import pytest

SECRET: Final = Secret(bytes(range(32)))
MESSAGES: Final = 200
#: What the overlay may sign by itself meanwhile, such as a renewal on a machine that takes minutes for this.
OWN_MAX: Final = 10
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
