"""Messages between the clients of one NATS door, and the patterns that the node subscribes to for them."""

from __future__ import annotations

from collections import Counter
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from iris_py.doors.nats import inboxes as inboxes_module
from iris_py.doors.nats import routes as routes_module
from iris_py.doors.nats.encoder import Delivery
from iris_py.doors.nats.inboxes import Inboxes
from iris_py.doors.nats.routes import ENDED_AT_ONCE
from iris_py.doors.nats.session import SessionEnd
from iris_py.doors.nats.subjects import NatsSubject, read_pattern, read_subject
from iris_py.doors.nats.subscription import ClientSubscription, PatternKey
from iris_py.patterns.topic.names import TopicTrie
from tests.nats.lone_door import DoorConnection, LoneDoor

if TYPE_CHECKING:
    from iris_py.doors.nats.routes import InboxDelivery

QUIET = b'{"verbose":false,"pedantic":false}'


def messages(client: DoorConnection) -> Counter[bytes]:
    """Return the payloads that a client got, with their numbers."""
    lines = client.read().split(b"\r\n")[:-1]
    assert all(line.startswith(b"MSG ") for line in lines[::2])
    return Counter(lines[1::2])


def test_each_distinct_pattern_and_queue_group_is_one_subscription_of_the_node() -> None:
    door = LoneDoor()
    routes = door.clients.routes
    clients = [door.connect(QUIET) for _ in range(5)]
    for client in clients:
        client.session.receive(
            b"SUB a.* 1\r\nSUB a.* 2\r\nSUB a.* q 3\r\nSUB b@eu 4\r\nSUB _INBOX.x.* 5\r\nSUB $SYS.> 6\r\n", 0.0
        )
    keys = {PatternKey("a.*", ""), PatternKey("a.*", "q"), PatternKey("b@eu", "")}
    assert routes.changed == dict.fromkeys(keys, True)
    assert routes.joined == dict.fromkeys(keys), "of further clients"
    assert routes.patterns == 3
    routes.changed = {}
    for client in clients[1:]:
        door.clients.close(client.session)
    clients[0].session.receive(b"UNSUB 1\r\nUNSUB 3\r\n", 0.0)
    assert routes.changed == {PatternKey("a.*", "q"): False}
    assert routes.has_users(PatternKey("a.*", ""))


@pytest.mark.parametrize("has_headers", [False, True])
def test_messages_written_together_have_the_text_of_each(*, has_headers: bool) -> None:
    block = b"NATS/1.0\r\n\r\n"
    deliveries = [
        Delivery(b"a.b", reply, header_bytes, [block + b"%d" % number for number in range(count)])
        for reply in (b"", b"_INBOX.a.1")
        for header_bytes in (-1, 0, len(block))
        for count in (1, 3)
    ]
    written: list[bytes] = []
    client: Any = SimpleNamespace(has_headers=has_headers, write=written.append)
    pattern = read_pattern(b"a.*")
    assert isinstance(pattern, NatsSubject)
    subscription = ClientSubscription(client, b"7", pattern, b"")
    assert subscription.give_all(deliveries) == subscription.delivered == 2 * 3 * (1 + 3)
    texts = [each.text(b"7", has_headers=has_headers, count=len(each.contents)) for each in deliveries]
    assert written == [b"".join(texts)]


def test_a_message_comes_once_for_each_subscription_and_to_one_of_each_queue_group() -> None:
    door = LoneDoor()
    clients = [door.connect(QUIET) for _ in range(3)]
    for client in clients:
        client.send(b"SUB a.b 1\r\nSUB a.> 2\r\nSUB a.b one 3\r\nSUB a.* two 4\r\nSUB other 5\r\n")
    for number in range(30):
        clients[0].send(b"PUB a.b 2\r\n%02d\r\n" % number)
    got = [messages(client) for client in clients]
    assert sum(got, Counter()) == {b"%02d" % number: 3 * 2 + 2 for number in range(30)}
    assert {sum(each.values()) for each in got} == {30 * 2 + 20}


def test_a_subscription_ends_after_its_last_message_also_within_a_run() -> None:
    door = LoneDoor()
    client, sender = door.connect(QUIET), door.connect(QUIET)
    client.send(b"SUB a 1\r\nUNSUB 1 3\r\nSUB _INBOX.x 2\r\nUNSUB 2 1\r\n")
    sender.send(b"PUB a 1\r\nx\r\n" * 5 + b"PUB _INBOX.x 1\r\nr\r\n" * 2)
    assert messages(client) == {b"x": 3, b"r": 1}
    assert (client.session.subscriptions, door.clients.routes.count) == (0, 0)


def test_wildcards_hear_no_replies() -> None:
    door = LoneDoor()
    client, sender = door.connect(QUIET), door.connect(QUIET)
    client.send(b"SUB > 1\r\nSUB *.x.1 2\r\n")
    sender.send(b"PUB _INBOX.x.1 1\r\nr\r\n")
    assert client.read() == b""
    assert door.lost == 1


def test_a_queue_group_at_an_inbox_gets_a_reply_once() -> None:
    door = LoneDoor()
    clients = [door.connect(QUIET) for _ in range(3)]
    for client in clients:
        client.send(b"SUB _INBOX.x.* q 1\r\n")
    clients[0].send(b"PUB _INBOX.x.1 1\r\nr\r\n")
    assert sum(map(messages, clients), Counter()) == {b"r": 1}


def replies(*found: tuple[bytes, bytes]) -> list[InboxDelivery]:
    """Return messages of another door to inboxes."""
    delivered = [(read_subject(inbox), Delivery(inbox, b"", 0, [content])) for inbox, content in found]
    return [(subject, delivery) for subject, delivery in delivered if isinstance(subject, NatsSubject)]


def test_replies_of_another_door_reach_each_client_in_order() -> None:
    door = LoneDoor()
    first, second = door.connect(QUIET), door.connect(QUIET)
    first.send(b"SUB _INBOX.a.* 1\r\n")
    second.send(b"SUB _INBOX.b.* 1\r\nSUB _INBOX.b.x 2\r\nUNSUB 2 1\r\n")
    routes = door.clients.routes
    sent = replies(
        (b"_INBOX.a.1", b"1"), (b"_INBOX.a.2", b"2"), (b"_INBOX.b.x", b"3"), (b"_INBOX.c.1", b"4"), (b"_INBOX.a.3", b"5")
    )
    assert [delivery.subject for _subject, delivery in routes.reply_all(sent)] == [b"_INBOX.c.1"]
    assert first.read() == b"".join(
        b"MSG _INBOX.a.%b 1 1\r\n%b\r\n" % each for each in ((b"1", b"1"), (b"2", b"2"), (b"3", b"5"))
    )
    assert messages(second) == {b"3": 2}
    assert (routes.count, routes.messages_out, routes.bytes_out) == (2, 5, 5)
    first.session.finish(SessionEnd.SLOW)
    assert routes.reply_all(sent[:2]) == sent[:2]


def test_remembered_subscriptions_to_inboxes_are_bounded_and_never_stale(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inboxes_module, "MATCHES_MAX", 3)
    door = LoneDoor()
    client, sender = door.connect(QUIET), door.connect(QUIET)
    for number in range(8):
        sender.send(b"PUB _INBOX.a.%d 1\r\nx\r\nPUB _INBOX.b%d.1 1\r\nx\r\n" % (number, number))
        assert len(door.clients.routes.inboxes._matches) <= 3
    for subscription, heard in ((b"SUB _INBOX.a.* 1", 1), (b"SUB _INBOX.a.7 2", 2), (b"UNSUB 1", 1), (b"UNSUB 2", 0)):
        client.send(subscription + b"\r\n")
        for _ in range(2):
            sender.send(b"PUB _INBOX.a.7 1\r\nx\r\n")
            assert messages(client) == ({b"x": heard} if heard else {})
    client.send(b"SUB _INBOX.a.7 3\r\n")  # the last token matters
    sender.send(b"PUB _INBOX.a.8 1\r\nx\r\nPUB _INBOX.a.7 1\r\ny\r\n")
    assert messages(client) == {b"y": 1}


def test_messages_of_the_node_to_several_topics_reach_each_subscription_in_order_and_up_to_its_number() -> None:
    door = LoneDoor()
    clients = [door.connect(QUIET) for _ in range(3)]
    clients[0].send(b"SUB a.* 1\r\n")
    clients[1].send(b"SUB a.* 2\r\nUNSUB 2 3\r\n")
    clients[2].send(b"SUB a.* 3\r\n")
    clients[2].session.finish(SessionEnd.SLOW)
    routes = door.clients.routes
    deliveries = [
        (("a", name), Delivery(b"a." + name.encode(), b"", 0, contents))
        for name, contents in (("x", [b"1", b"2"]), ("y", [b"33", b"44"]), ("x", [b"5"]))
    ]
    routes.receive_all(PatternKey("a.*", ""), deliveries)
    line = b"MSG a.%b %b %d\r\n%b\r\n"
    expected = [(b"x", b"1"), (b"x", b"2"), (b"y", b"33"), (b"y", b"44"), (b"x", b"5")]
    assert clients[0].read() == b"".join(line % (name, b"1", len(content), content) for name, content in expected)
    assert clients[1].read() == b"".join(line % (name, b"2", len(content), content) for name, content in expected[:3])
    assert (routes.count, routes.messages_out, routes.bytes_out) == (1, 5 + 3, 7 + 4)
    assert clients[0].session.report(0.0).messages_out == 5
    routes.receive_all(PatternKey("a.*", ""), [])
    routes.receive_all(PatternKey("gone", ""), deliveries)
    assert (clients[0].read(), routes.messages_out) == (b"", 8)


def test_topics_of_another_cloud_come_from_the_node_alone() -> None:
    door = LoneDoor()
    client = door.connect(QUIET)
    client.send(b"SUB a.>@eu 1\r\nSUB > 2\r\nPUB a.b@eu 1\r\nx\r\n")
    assert client.read() == b""
    assert [command.topic for command in door.published] == ["a.b@eu"]
    delivery = Delivery(b"a.b@eu", b"", 0, [b"y"])
    assert door.clients.routes.receive(PatternKey("a.>@eu", ""), ("a", "b"), delivery) == 1
    assert client.read() == b"MSG a.b@eu 1 1\r\ny\r\n"


def test_a_pattern_that_the_node_cannot_serve_ends_its_subscriptions() -> None:
    door = LoneDoor()
    client = door.connect(QUIET)
    client.send(b"SUB a@eu 1\r\nSUB a@eu 2\r\nSUB b 3\r\n")
    door.clients.routes.refuse(PatternKey("a@eu", ""))
    assert client.read() == b"-ERR 'Permissions Violation for Subscription to \"a@eu\"'\r\n" * 2
    assert client.session.subscriptions == 1
    assert door.clients.routes.receive(PatternKey("a@eu", ""), ("a",), Delivery(b"a", b"", 0, [b""])) == 0


def test_remembered_subscriptions_are_bounded_and_never_stale(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routes_module, "REMEMBERED_SUBJECTS_MAX", 5)
    monkeypatch.setattr(routes_module, "REMEMBERED_MATCHES_MAX", 12)
    door = LoneDoor()
    client, sender = door.connect(QUIET), door.connect(QUIET)
    routes = door.clients.routes
    for wanted in range(1, 8):
        client.send(b"SUB > %d\r\n" % wanted)
        for number in range(20):
            sender.send(b"PUB t.%d 1\r\nx\r\n" % number)
            assert len(routes._remembered) <= 5
            assert sum(len(each) for found in routes._remembered.values() for _client, each in found) <= 12
        assert messages(client) == {b"x": 20 * wanted}
    client.send(b"".join(b"UNSUB %d\r\n" % wanted for wanted in range(1, 8)))
    sender.send(b"PUB t.19 1\r\nx\r\n")
    assert client.read() == b""


def test_a_subscription_makes_the_door_look_again_for_the_subjects_that_it_matches(monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[tuple[str, ...]] = []
    match = TopicTrie.match

    def look(trie: TopicTrie[ClientSubscription], tokens: tuple[str, ...]) -> list[ClientSubscription]:
        looks.append(tokens)
        return match(trie, tokens)

    monkeypatch.setattr(TopicTrie, "match", look)
    door = LoneDoor()
    sender, receiver = door.connect(QUIET), door.connect(QUIET)

    def publish() -> tuple[int, Counter[bytes]]:
        looks.clear()
        sender.send(b"PUB a.b 1\r\n1\r\nPUB c 1\r\n2\r\n")
        return len(looks), messages(receiver)

    receiver.send(b"SUB a.b 1\r\n")
    assert publish() == (2, {b"1": 1})
    assert publish() == (0, {b"1": 1})
    for line, found in (
        (b"SUB other 2", (0, {b"1": 1})),
        (b"SUB c 3", (1, {b"1": 1, b"2": 1})),
        (b"UNSUB 1", (1, {b"2": 1})),
        (b"SUB a.* 4", (2, {b"1": 1, b"2": 1})),
        (b"UNSUB 4", (2, {b"2": 1})),
        (b"UNSUB 2", (0, {b"2": 1})),
        (b"SUB > 5", (2, {b"1": 1, b"2": 2})),
    ):
        receiver.send(line + b"\r\n")
        assert publish() == found, line
    assert door.clients.routes._remembered_matches == 3


def test_the_homes_of_clients_of_other_doors_are_bounded_and_corrected() -> None:
    inboxes = Inboxes(homes_max=2)
    inboxes.note_home(b"_INBOX.a.1", "door1")
    inboxes.note_home(b"_INBOX.b.1", "door1")
    assert inboxes.home_of(("_INBOX", "a")) == "door1"
    inboxes.note_home(b"_INBOX.c.1", "door2")
    assert inboxes.home_of(("_INBOX", "b")) == ""
    inboxes.note_home(b"_INBOX.a.1", "door2")
    inboxes.forget(("_INBOX", "a"), "door1")
    assert inboxes.home_of(("_INBOX", "a")) == "door2"
    inboxes.forget(("_INBOX", "a"), "door2")
    assert inboxes.home_of(("_INBOX", "a")) == ""
    inboxes.note_home(b"_INBOX.a.2", "door2")  # the same client and door as the last time
    assert inboxes.home_of(("_INBOX", "a")) == "door2"
    inboxes.note_home(b"_INBOX.d", "door2")  # an inbox for a single request
    inboxes.note_home(b"_INBOX.e", "door2")
    assert inboxes.home_of(("_INBOX", "e")) == "door2"


def test_the_subscriptions_of_an_ended_client_hear_nothing_and_leave_the_tables_in_pieces() -> None:
    door, count = LoneDoor(), 10 * ENDED_AT_ONCE
    routes = door.clients.routes
    greedy, other, sender = (door.connect(QUIET) for _ in range(3))
    for number in range(count):
        greedy.send(b"SUB a.%d 1%d\r\nSUB b.%d q 2%d\r\n" % (number, number, number, number))
    keys = [PatternKey(f"a.{number}", "") for number in range(count)]
    door.clients.close(greedy.session)
    pieces = 1
    while routes.has_ended:
        assert routes.count == 2 * count - pieces * ENDED_AT_ONCE, "each piece is small"
        last = count - 1
        assert routes.receive(PatternKey(f"b.{last}", "q"), ("b", str(last)), Delivery(b"b", b"", 0, [b"x"])) == 0
        assert routes.choose(PatternKey(f"b.{last}", "q")) is None
        assert routes.count_members(PatternKey(f"b.{last}", "q"), 2) == 0
        sender.send(b"PUB a.%d 1\r\nx\r\n" % last)
        assert routes.messages_out == 0
        if pieces == 5:
            other.send(b"SUB a.%d 1\r\n" % last)
            sender.send(b"PUB a.%d 1\r\ny\r\n" % last)
            assert messages(other) == {b"y": 1}
            break
        routes.remove_ended()
        pieces += 1
    while routes.has_ended:
        routes.remove_ended()
    assert routes.count == routes.patterns == 1
    assert [routes.has_users(key) for key in keys] == [False] * (count - 1) + [True]


def _note(order: list[tuple[str, bytes]], name: str, data: bytes) -> None:
    order.append((name, data))


def test_a_client_with_many_subscriptions_gets_a_message_in_a_single_write_behind_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    door = LoneDoor()
    greedy, honest, sender = (door.connect(QUIET) for _ in range(3))
    order: list[tuple[str, bytes]] = []
    greedy.send(b"SUB > 1\r\nSUB a.* 2\r\nSUB a.b 3\r\n")
    honest.send(b"SUB a.b 1\r\n")
    for name, client in (("greedy", greedy), ("honest", honest)):
        monkeypatch.setattr(client.session, "write", partial(_note, order, name))
    sender.send(b"PUB a.b 1\r\nx\r\n")
    assert [name for name, _data in order] == ["honest", "greedy"]
    assert sorted(order[1][1].split(b"\r\n")[:-1:2]) == [b"MSG a.b %d 1" % sid for sid in (1, 2, 3)]
