"""Names of the longest length, and longer ones, in every field of a client's operations: carried, or refused by an error that
the connection survives."""

from __future__ import annotations

import pytest

from iris_py.patterns.topic.names import TOPIC_BYTES_MAX
from tests.nats.lone_door import LoneDoor

QUIET = b'{"verbose":false,"pedantic":false}'
LONGEST = b"n" * TOPIC_BYTES_MAX
LONGER = LONGEST + b"n"
DEEPEST = b".".join([b"n"] * 16)
DEEPER = DEEPEST + b".n"
INBOX = b"_INBOX." + b"n" * (512 - len(b"_INBOX."))


@pytest.mark.parametrize("name", [LONGEST, DEEPEST, "é".encode() * 127 + b"n"], ids=["bytes", "tokens", "UTF-8"])
def test_the_longest_name_works_in_every_field(name: bytes) -> None:
    door = LoneDoor()
    client, other = door.connect(QUIET), door.connect(QUIET)
    assert client.ask(b"SUB %b %b\r\n" % (name, name)) == b""
    assert other.ask(b"PUB %b %b 2\r\nhi\r\n" % (name, name)) == b""
    assert client.read() == b"MSG %b %b %b 2\r\nhi\r\n" % (name, name, name)
    assert client.ask(b"UNSUB %b\r\n" % name) == b""
    other.ask(b"PUB %b 2\r\nhi\r\n" % name)
    assert client.read() == b""


@pytest.mark.parametrize("name", [LONGER, DEEPER, b"a\x01b", b"a\x7fb", b"a\xffb", b"iris.doors", b"a@", b"a@b.c"])
def test_a_name_that_iris_cannot_carry_is_refused_in_every_field_and_the_client_lives(name: bytes) -> None:
    door = LoneDoor()
    client = door.connect(QUIET)
    for said in (
        client.ask(b"SUB %b 1\r\n" % name),
        client.ask(b"PUB %b 0\r\n\r\n" % name),
        client.ask(b"PUB a %b 0\r\n\r\n" % name),
    ):
        assert said.startswith(b"-ERR 'Permissions Violation for ")
        assert said.endswith(b"'\r\n")
        assert said.count(b"\r\n") == 1
        assert said[:-2].translate(None, bytes(range(0x20)) + b"\x7f") == said[:-2], "no control character comes back"
    assert (door.published, client.session.subscriptions, client.end) == ([], 0, None)


def test_an_inbox_has_512_bytes_and_any_number_of_tokens() -> None:
    door = LoneDoor()
    client, other = door.connect(QUIET), door.connect(QUIET)
    for inbox in (INBOX, b"_INBOX" + b".n" * 250):
        assert client.ask(b"SUB %b 1\r\n" % inbox) == b""
        other.ask(b"PUB %b 1\r\nx\r\n" % inbox)
        assert client.ask(b"UNSUB 1\r\n") == b"MSG %b 1 1\r\nx\r\n" % inbox
    assert client.ask(b"SUB %bn 1\r\n" % INBOX).startswith(b"-ERR 'Permissions Violation for Subscription")
    assert other.ask(b"PUB %bn 0\r\n\r\n" % INBOX).startswith(b"-ERR 'Permissions Violation for Publish")


@pytest.mark.parametrize("queue", [b"q" * 5000, b"q" * 3000, b"q\xff", b"q\x01"])
def test_a_queue_group_that_iris_cannot_carry_is_refused(queue: bytes) -> None:
    client = LoneDoor().connect(QUIET)
    said = client.ask(b"SUB a %b 1\r\n" % queue)
    assert said.startswith((b"-ERR 'Permissions Violation for Subscription", b"-ERR 'maximum control line exceeded'"))
    assert client.session.subscriptions == 0
