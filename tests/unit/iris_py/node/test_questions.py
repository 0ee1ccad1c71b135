"""Questions about nodes, sealed: who opens them, and what is dropped."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from iris_overlay.ids import NodeId
from iris_overlay.node_info import NodeInfo
from iris_py.node.questions import HEAD, NodeAnswered, NodeAsked, Questions
from iris_py.wire.packets import STATUS
from iris_security import Keyring, Secret

if TYPE_CHECKING:
    from collections.abc import Callable

ONE, TWO = NodeInfo(NodeId(b"1" * 16), ("10.0.0.1:1",)), NodeInfo(NodeId(b"2" * 16), ())
OLD, NEW = Secret(b"o" * 32), Secret(b"n" * 32)


class Side:
    """A node that asks or is asked."""

    def __init__(self, info: NodeInfo, keyring: Keyring) -> None:
        self.sent: list[bytes] = []
        self.events: list[NodeAsked | NodeAnswered] = []
        self.drops: list[str] = []
        overlay: Any = SimpleNamespace(send=lambda to, packet, now: self.sent.append(packet))
        self.questions = Questions(info.id, keyring, overlay, lambda now: None, self.events.append, self.drops.append)

    def take(self) -> bytes:
        (packet,) = self.sent
        self.sent.clear()
        assert packet[0] == STATUS
        return packet


def pair(one: Keyring | None = None, two: Keyring | None = None) -> tuple[Side, Side]:
    return Side(ONE, one or Keyring(OLD)), Side(TWO, two or Keyring(OLD))


def test_a_question_and_its_answer() -> None:
    one, two = pair()
    one.questions.ask(TWO, 77, b"how are you", 0.0)
    two.questions.receive(ONE, one.take())
    assert two.events == [NodeAsked(ONE, 77, b"how are you")]
    two.questions.answer(ONE, 77, b"well", 0.0)
    one.questions.receive(TWO, two.take())
    assert one.events == [NodeAnswered(TWO.id, 77, b"well")]
    assert one.drops == two.drops == []


def none_for(name: str) -> Secret:
    raise LookupError(name)


@pytest.mark.parametrize("settings", [{"strict": True}, {"clusters": none_for}], ids=["strict", "function"])
def test_what_a_program_says_of_its_clusters_closes_no_node_to_questions(settings: dict[str, Any]) -> None:
    one, two = pair(Keyring(OLD, **settings))
    one.questions.ask(TWO, 77, b"how are you", 0.0)
    two.questions.receive(ONE, one.take())
    assert two.events == [NodeAsked(ONE, 77, b"how are you")]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda packet: packet[:-1], "unauthentic"),
        (lambda packet: packet[: HEAD.size - 1], "malformed"),
        (lambda packet: packet[:1] + bytes(16) + packet[17:], "unknown_group"),
        (lambda packet: packet[:20] + b"\xff" + packet[21:], "unauthentic"),
    ],
)
def test_what_is_not_a_question_is_dropped_and_counted(change: Callable[[bytes], bytes], reason: str) -> None:
    one, two = pair()
    one.questions.ask(TWO, 77, b"how are you", 0.0)
    two.questions.receive(ONE, change(one.take()))
    assert (two.events, two.drops) == ([], [reason])


def test_a_question_counts_once_and_for_the_node_that_is_asked() -> None:
    one, two = pair()
    three = Side(NodeInfo(NodeId(b"3" * 16), ()), Keyring(OLD))
    one.questions.ask(TWO, 77, b"how are you", 0.0)
    packet = one.take()
    two.questions.receive(ONE, packet)
    two.questions.receive(ONE, packet)
    assert (len(two.events), two.drops) == (1, ["replayed"])
    three.questions.receive(ONE, packet)
    two.questions.receive(TWO, packet)
    assert three.drops == ["unauthentic"]
    assert two.drops == ["replayed", "unauthentic"]


def test_who_holds_another_secret_is_told_nothing() -> None:
    one, two = pair(Keyring(OLD), Keyring(NEW))
    one.questions.ask(TWO, 77, b"how are you", 0.0)
    two.questions.receive(ONE, one.take())
    assert (two.events, two.drops) == ([], ["unknown_group"])


def test_generations_of_a_secret_that_are_accepted_are_opened_and_no_nonce_comes_twice() -> None:
    one, two = pair(Keyring(OLD, accepted=[NEW]), Keyring(NEW, accepted=[OLD]))
    seen: set[bytes] = set()
    for keyring in (Keyring(NEW, accepted=[OLD]), Keyring(OLD, accepted=[NEW]), Keyring(NEW), Keyring(OLD, accepted=[NEW])):
        one.questions.ask(TWO, 77, b"how are you", 0.0)
        packet = one.take()
        assert packet[: HEAD.size] not in seen
        seen.add(packet[: HEAD.size])
        two.questions.receive(ONE, packet)
        one.questions.rekey(keyring)
    assert (len(two.events), two.drops) == (4, [])
