"""The neighbours who report a death."""

from __future__ import annotations

from iris_overlay.groups.death_reports import ACCUSED_S, ENTRUSTED_MAX, REPEAT_S, DeathReports
from iris_overlay.groups.io import Outbox
from iris_overlay.groups.messages import Accuse, Accused, Entrust
from iris_overlay.ids import GroupId, NodeId
from iris_overlay.node_info import GROUPS_PER_NODE_MAX, NodeInfo

PEERS = [NodeInfo(NodeId(bytes([number]) * 16), ()) for number in range(1, 100)]
A, B = GroupId(b"a" * 16), GroupId(b"b" * 16)


def entrusted(reporters: DeathReports, source: NodeId, groups: list[GroupId], stamp: int = 1) -> None:
    reporters.entrust(source, Entrust(stamp, True, True, groups, []))


def test_neighbours_learn_changes_only() -> None:
    outbox = Outbox()
    reporters = DeathReports(outbox)
    assert not reporters.place(PEERS[:2], [A], 1)
    reporters.change(2, [B], [])
    assert not reporters.place(PEERS[:2], [A, B], 2)
    assert not reporters.place(PEERS[1:3], [A, B], 2)
    assert not reporters.place([], [], 3)
    whole = [Entrust(1, True, True, [A], []), Entrust(2, True, True, [A, B], [])]
    ends = [Entrust(2, False, True, [], []), Entrust(3, False, True, [], [])]
    change = Entrust(2, True, False, [B], [])
    assert outbox.posts == [
        (PEERS[0], whole[0]), (PEERS[1], whole[0]), (PEERS[0], change), (PEERS[1], change),
        (PEERS[0], ends[0]), (PEERS[2], whole[1]), (PEERS[1], ends[1]), (PEERS[2], ends[1]),
    ]  # fmt: skip


def test_entirely_new_neighbours_are_noticed() -> None:
    reporters = DeathReports(Outbox())
    assert not reporters.place(PEERS[:2], [A], 1)
    assert reporters.place(PEERS[2:4], [A], 1)


def test_a_dead_neighbour_is_accused_twice_and_told_when_it_comes_back() -> None:
    outbox = Outbox()
    reporters = DeathReports(outbox)
    dead = PEERS[0]
    entrusted(reporters, dead.id, [A], stamp=5)
    reporters.entrust(dead.id, Entrust(6, True, False, [B], [A]))
    reporters.peer_dead(dead.id, 10.0)
    accusation = (B, Accuse(dead.id, (1 << 32) - 1, B))
    assert outbox.posts == [accusation]
    assert reporters.deadline() == 10.0 + REPEAT_S
    reporters.handle_timeout(10.0 + REPEAT_S)
    assert outbox.posts == [accusation] * 2
    reporters.returned(dead)
    reporters.returned(dead)
    assert outbox.posts[2:] == [(dead, Accused(dead.id, (1 << 32) - 1))]
    assert len(reporters) == 0
    assert reporters.deadline() is None


def test_accusations_that_are_to_be_repeated_are_bounded() -> None:
    """Whoever has ever new ids trusts a neighbour with the groups of each, and says that it leaves."""
    outbox = Outbox()
    reporters = DeathReports(outbox)
    for peer in PEERS:
        entrusted(reporters, peer.id, [A])
        reporters.peer_dead(peer.id, 10.0)
    assert len(outbox.posts) == len(PEERS)
    assert reporters.deadline() == 10.0 + REPEAT_S
    reporters.handle_timeout(10.0 + REPEAT_S)
    repeated = [message.node for _, message in outbox.posts[len(PEERS) :] if isinstance(message, Accuse)]
    assert repeated == [peer.id for peer in PEERS[-ENTRUSTED_MAX:]]


def test_an_accusation_that_does_not_reach_the_accused_waits_for_it() -> None:
    outbox = Outbox()
    reporters = DeathReports(outbox)
    for stamp in (7, 5):
        reporters.keep_accusation(Accused(PEERS[0].id, stamp), 1.0)
    reporters.returned(PEERS[0])
    assert outbox.posts == [(PEERS[0], Accused(PEERS[0].id, 7))]
    for number, peer in enumerate(PEERS):
        reporters.keep_accusation(Accused(peer.id, number), 1.0)
    assert len(reporters) == ENTRUSTED_MAX
    reporters.keep_accusation(Accused(PEERS[0].id, 7), 1.1 + ACCUSED_S)
    assert len(reporters) == 1


def test_who_may_come_back_is_forgotten_after_a_while() -> None:
    reporters = DeathReports(Outbox())
    for peer, now in zip(PEERS, (1.0, ACCUSED_S), strict=False):
        reporters.keep_accusation(Accused(peer.id, (1 << 32) - 1), now)
    assert len(reporters) == 2
    reporters.keep_accusation(Accused(PEERS[2].id, (1 << 32) - 1), 2.0 + ACCUSED_S)
    assert len(reporters) == 2


def test_who_needs_nothing_is_not_accused() -> None:
    outbox = Outbox()
    reporters = DeathReports(outbox)
    entrusted(reporters, PEERS[0].id, [A])
    reporters.entrust(PEERS[0].id, Entrust(2, False, True, [], []))
    reporters.peer_dead(PEERS[0].id, 0.0)
    reporters.peer_dead(PEERS[1].id, 0.0)
    assert outbox.posts == []


def test_what_is_entrusted_is_bounded() -> None:
    reporters = DeathReports(Outbox())
    for peer in PEERS:
        entrusted(reporters, peer.id, [A])
    assert len(reporters) == ENTRUSTED_MAX
    for peer in PEERS:
        reporters.peer_dead(peer.id, 0.0)
    assert len(reporters) == 2 * ENTRUSTED_MAX


def test_a_neighbour_entrusts_no_more_groups_than_a_node_may_be_in() -> None:
    outbox = Outbox()
    reporters = DeathReports(outbox)
    groups = [GroupId(number.to_bytes(16, "big")) for number in range(3 * GROUPS_PER_NODE_MAX)]
    for start in range(0, len(groups), GROUPS_PER_NODE_MAX):
        reporters.entrust(PEERS[0].id, Entrust(1, True, False, groups[start : start + GROUPS_PER_NODE_MAX], []))
    reporters.entrust(PEERS[0].id, Entrust(2, True, False, [A], groups[:1]))  # one went, so there is room for another
    reporters.peer_dead(PEERS[0].id, 0.0)
    accused = [target for target, _ in outbox.posts]
    assert accused == [*groups[1:GROUPS_PER_NODE_MAX], A]
