"""A root that says that nobody is in a cluster with a secret of its own, though there is a member."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest

from iris_overlay.groups.messages import (
    Change,
    GroupMessage,
    Seen,
    View,
    decode_group_message,
    encode_group_message,
)
from iris_overlay.groups.second_opinions import LOOK_S, LOOKED_S
from iris_overlay.ring.messages import Direct, Returned, decode_ring_message, encode_ring_message, signed_part
from iris_py.errors import NoMembers
from iris_security import Secret
from tests.unit.iris_py.nodes import Net

if TYPE_CHECKING:
    from collections.abc import Callable

    from iris_overlay.ids import NodeId
    from iris_py.node.core import NodeCore
    from iris_py.patterns.request.registration import Registration

OWN = {f"vault{number}": Secret(bytes([number + 1]) * 32) for number in range(20)}


class Vault:
    """A member and a caller of a cluster whose root, and whose other keepers, are insiders."""

    def __init__(self, *, joins: bool = True) -> None:
        self.net = Net()
        self.member, self.caller = (self.net.add(clusters=OWN) for _ in range(2))
        self.insiders = [self.net.add() for _ in range(6)]
        self.cluster, self.root = self._choose()
        self.registration: Registration | None = self.net.join(self.member, self.cluster) if joins else None

    def _choose(self) -> tuple[str, NodeCore]:
        """Return a cluster whose root and copies are at insiders."""
        for name in OWN:
            group = self.caller.groups.make(name).id
            nodes = self.net.cores.nodes.values()
            distance = {node.info.id: abs(int.from_bytes(node.info.id, "big") - int.from_bytes(group, "big")) for node in nodes}
            ring = 1 << 128
            near = sorted(nodes, key=lambda node: min(distance[node.info.id], ring - distance[node.info.id]))
            if not {id(node) for node in near[:3]} & {id(self.member), id(self.caller)}:
                return name, near[0]
        raise AssertionError("no such cluster")

    def ask(self, *, timeout_s: float = 5.0, wait_s: float = 0.0) -> object:
        """Ask once, and let no time pass, or some; returns the outcome, or None."""
        self.net.request(self.caller, cluster=self.cluster, timeout_s=timeout_s)
        self.net.cores.drive_until(self.net.now + wait_s)
        self.net.serve(self.member)
        return self.net.outcomes(self.caller).get(None)

    def wrap(self, node: NodeCore, lie: Callable[[GroupMessage], GroupMessage | None]) -> None:
        """Let a function say what a node says about groups in place of what it would."""
        send, signer = node.overlay.messages_to_send, node.overlay._ring._ring.signer

        def lying() -> list[tuple[NodeId, bytes]]:
            sent = []
            for to, data in send():
                message = decode_ring_message(data)
                inner = decode_ring_message(message.payload) if isinstance(message, Returned) else message
                if isinstance(inner, Direct) and inner.source == node.info:
                    said = lie(decode_group_message(inner.payload))
                    if said is None:
                        continue
                    inner = Direct(inner.source, encode_group_message(said))
                    if isinstance(message, Returned):
                        message = msgspec.structs.replace(message, payload=encode_ring_message(inner))
                        data = encode_ring_message(
                            msgspec.structs.replace(message, signature=signer.sign(signed_part(message)))
                        )
                    else:
                        data = encode_ring_message(inner)
                sent.append((to, data))
            return sent

        node.overlay.messages_to_send = lying  # type: ignore[method-assign]

    def listen(self) -> list[GroupMessage]:
        """Return what the insiders say about groups from now on."""
        said: list[GroupMessage] = []

        def note(message: GroupMessage) -> GroupMessage:
            said.append(message)
            return message

        for node in self.insiders:
            self.wrap(node, note)
        return said


def nobody(message: GroupMessage) -> GroupMessage | None:
    """Say that nobody is there."""
    if isinstance(message, View | Change):
        return msgspec.structs.replace(message, members=[], size=0)
    return message


def nobody_at_all(message: GroupMessage) -> GroupMessage | None:
    """Say so to those who doubt it, too."""
    return msgspec.structs.replace(message, members=[]) if isinstance(message, Seen) else nobody(message)


def silent(message: GroupMessage) -> GroupMessage | None:
    """Say nothing to those who doubt."""
    return None if isinstance(message, Seen) else message


def test_a_root_that_lies_hides_no_member() -> None:
    vault = Vault()
    vault.wrap(vault.root, nobody)
    assert vault.ask() == b"re:question"
    assert vault.ask() == b"re:question"
    assert vault.caller.group(vault.cluster, vault.net.now).is_doubted
    vault.net.cores.drive_until(vault.net.now + 200.0)  # watches and registrations were renewed
    assert vault.ask() == b"re:question"


def test_members_that_an_honest_root_names_cost_no_second_question() -> None:
    vault = Vault()
    sent = vault.listen()
    assert vault.ask() == b"re:question"
    assert not vault.caller.group(vault.cluster, vault.net.now).is_doubted
    assert sent
    assert not [message for message in sent if isinstance(message, Seen)]


def test_an_honest_absence_is_certain_after_one_more_round_trip() -> None:
    vault = Vault(joins=False)
    sent = vault.listen()
    assert isinstance(vault.ask(), NoMembers)  # without any time that passed
    assert len([message for message in sent if isinstance(message, Seen)]) == 1
    assert isinstance(vault.ask(), NoMembers)
    assert len([message for message in sent if isinstance(message, Seen)]) == 1
    vault.net.cores.drive_until(vault.net.now + LOOKED_S + 0.1)
    assert isinstance(vault.ask(), NoMembers)
    assert len([message for message in sent if isinstance(message, Seen)]) == 2
    vault.net.join(vault.member, vault.cluster)
    assert vault.ask() == b"re:question"


def test_a_member_that_joins_while_the_root_lies_is_found_by_the_next_request() -> None:
    vault = Vault(joins=False)
    vault.wrap(vault.root, nobody)
    assert isinstance(vault.ask(), NoMembers)
    vault.net.join(vault.member, vault.cluster)
    vault.net.cores.drive_until(vault.net.now + LOOKED_S + 0.1)
    assert vault.ask() == b"re:question"


def test_a_member_that_leaves_is_gone_at_once() -> None:
    vault = Vault()
    assert vault.ask() == b"re:question"
    assert vault.registration is not None
    vault.member.leave(vault.registration, vault.net.now)
    vault.net.cores.drive()
    assert isinstance(vault.ask(), NoMembers)


def test_a_member_that_dies_while_the_root_lies_is_asked_no_more() -> None:
    vault = Vault()
    vault.wrap(vault.root, nobody)
    assert vault.ask() == b"re:question"
    vault.net.kill(vault.member)
    assert isinstance(vault.ask(wait_s=10.0), NoMembers)


@pytest.mark.parametrize("timeout_s", [0.5 * LOOK_S, 5.0])
def test_a_second_keeper_that_is_silent_leaves_the_word_of_the_root(timeout_s: float) -> None:
    vault = Vault()
    vault.wrap(vault.root, nobody)
    for node in vault.insiders:
        vault.wrap(node, silent)
    assert vault.ask(timeout_s=timeout_s) is None
    vault.net.cores.drive_until(vault.net.now + LOOK_S + 0.01)
    assert isinstance(vault.net.outcome(vault.caller), NoMembers)


def test_where_all_keepers_lie_nobody_is_found() -> None:
    vault = Vault()
    for node in vault.insiders:
        vault.wrap(node, nobody_at_all)
    assert isinstance(vault.ask(), NoMembers)
