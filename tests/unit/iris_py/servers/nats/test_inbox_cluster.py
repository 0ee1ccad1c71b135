"""Replies for clients of other doors: in order, and together as far as they have one home."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from iris_py.doors.nats.inbox_messages import INBOXES, InboxReplies, decode_inbox_message, door_cluster_of
from iris_py.doors.nats.operations import PubLine
from iris_py.doors.nats.routes import Routes
from iris_py.doors.nats.session import InboxMessages
from iris_py.doors.nats.subjects import NatsSubject, read_subject
from iris_py.servers.nats import inbox_cluster
from iris_py.servers.nats.inbox_cluster import InboxCluster

HOME, OTHER = "1" * 32, "2" * 32


class Node:
    """Notes broadcasts, as long as it has room."""

    id = "0" * 32

    def __init__(self, room: int = 1000) -> None:
        self.room = room
        self.sent: list[tuple[str, list[bytes]]] = []
        self._runtime = SimpleNamespace(core=self, loop=SimpleNamespace(time=lambda: 0.0), wake=lambda: None)

    def broadcast(self, cluster: str, content: bytes, _now: float) -> int | None:
        """Note a broadcast; None without room."""
        if not self.room:
            return None
        self.room -= 1
        received = decode_inbox_message(content)
        assert isinstance(received, InboxReplies)
        self.sent.append((cluster, [each.subject for each in received.replies]))
        return 1


def replies(*found: tuple[bytes, str]) -> list[InboxMessages]:
    """Return replies to inboxes with their homes."""
    commands = []
    for inbox, home in found:
        subject = read_subject(inbox)
        assert isinstance(subject, NatsSubject)
        commands.append(InboxMessages(subject, PubLine(inbox, b"", -1, 10, b""), [bytes(10)], home))
    return commands


def cluster_of(node: Any) -> InboxCluster:
    return InboxCluster(node, Routes(10, 10))


def test_replies_to_one_home_are_one_message() -> None:
    node = Node()
    cluster = cluster_of(node)
    sent = replies((b"_INBOX.a.1", HOME), (b"_INBOX.b.1", HOME), (b"_INBOX.c.1", OTHER), (b"_INBOX.a.2", HOME))
    assert cluster.try_send(sent, 1) == 4
    assert node.sent == [
        (door_cluster_of(HOME), [b"_INBOX.a.1", b"_INBOX.b.1"]),
        (door_cluster_of(OTHER), [b"_INBOX.c.1"]),
        (door_cluster_of(HOME), [b"_INBOX.a.2"]),
    ]
    assert cluster.replies["home"] == 4


@pytest.mark.parametrize(("bound", "value"), [("GATHERED_BYTES_MAX", 25), ("REPLIES_MAX", 2)])
def test_a_message_has_a_bounded_number_and_size_of_replies(monkeypatch: pytest.MonkeyPatch, bound: str, value: int) -> None:
    monkeypatch.setattr(inbox_cluster, bound, value)
    node = Node()
    assert cluster_of(node).try_send(replies(*((b"_INBOX.a.%d" % number, HOME) for number in range(5))), 1) == 5
    assert [len(subjects) for _cluster, subjects in node.sent] == [2, 2, 1]


def test_what_has_no_room_waits_behind_what_was_sent() -> None:
    node = Node(room=1)
    sent = replies((b"_INBOX.a.1", HOME), (b"_INBOX.a.2", HOME), (b"_INBOX.c.1", OTHER), (b"_INBOX.a.3", HOME))
    assert cluster_of(node).try_send(sent, 1) == 2


def test_replies_for_unknown_homes_go_to_all_doors_one_by_one_and_at_a_bounded_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inbox_cluster, "CLIENT_PER_S", 2.0)
    node = Node()
    cluster = cluster_of(node)
    assert cluster.try_send(replies(*((b"_INBOX.a.%d" % number, "") for number in range(5))), 1) == 5
    assert node.sent == [(INBOXES, [b"_INBOX.a.0"]), (INBOXES, [b"_INBOX.a.1"])]
    assert (cluster.replies["all"], cluster.replies["lost"]) == (2, 3)
