"""The wildcards of a NATS client: few shapes for each first token, and few subscriptions to everything."""

from __future__ import annotations

from itertools import product

from iris_py.doors.nats.pattern_shapes import SHAPES_MAX, WILD_MAX, PatternShapes
from tests.nats.lone_door import LoneDoor

QUIET = b'{"verbose":false,"pedantic":false}'
REFUSED = b"-ERR 'Permissions Violation for Subscription to \"%b\"'\r\n"


def tokens(pattern: str) -> tuple[str, ...]:
    return tuple(pattern.split("."))


def test_few_shapes_have_room_for_each_first_token() -> None:
    shapes = PatternShapes()
    patterns = ["a.*", "a.>", "a.*.*", "a.*.>", "a.b.*", "a.b.>", "a.*.b", "a.*.b.*"]
    assert len(patterns) == SHAPES_MAX
    for pattern in patterns:
        assert shapes.has_room(tokens(pattern))
        shapes.add(tokens(pattern))
    assert not shapes.has_room(tokens("a.*.*.*"))
    assert shapes.has_room(tokens("a.c.*")), "a known shape"
    assert shapes.has_room(tokens("b.*.*.*"))
    assert shapes.has_room(tokens("a.b.c.d.e"))
    shapes.add(tokens("a.c.*"))
    shapes.remove(tokens("a.b.*"))
    assert not shapes.has_room(tokens("a.*.*.*"))
    shapes.remove(tokens("a.c.*"))
    assert shapes.has_room(tokens("a.*.*.*"))
    shapes.clear()
    assert shapes.has_room(tokens("a.*.c.*"))


def test_few_subscriptions_begin_with_a_wildcard() -> None:
    shapes = PatternShapes()
    for _ in range(WILD_MAX):
        assert shapes.has_room((">",))
        shapes.add((">",))
    assert not shapes.has_room((">",))
    assert not shapes.has_room(("*", "a"))
    assert shapes.has_room(("a", "*"))
    shapes.remove((">",))
    assert shapes.has_room((">",))


def test_a_client_with_everything_again_and_again_gets_a_message_few_times() -> None:
    door = LoneDoor()
    greedy, sender = door.connect(QUIET), door.connect(QUIET)
    said = greedy.ask(b"".join(b"SUB > %d\r\n" % number for number in range(1000)))
    assert said == REFUSED % b">" * (1000 - WILD_MAX)
    sender.send(b"PUB a 0\r\n\r\n")
    assert greedy.read().count(b"MSG a ") == WILD_MAX
    assert greedy.ask(b"UNSUB 0\r\nSUB > 2000\r\n") == b""
    greedy.ask(b"".join(b"UNSUB %d\r\n" % number for number in range(2001)))
    assert greedy.ask(b"".join(b"SUB * %d\r\n" % number for number in range(WILD_MAX))) == b""


def test_the_patterns_of_a_client_make_no_message_slow() -> None:
    door = LoneDoor()
    greedy = door.connect(QUIET)
    patterns = [".".join(("a", *middle, "z")) for middle in product("a*", repeat=12)]
    said = greedy.ask(b"".join(b"SUB %b %d\r\n" % (each.encode(), number) for number, each in enumerate(patterns)))
    assert greedy.session.subscriptions == SHAPES_MAX + 1
    assert said.count(b"-ERR") == len(patterns) - SHAPES_MAX - 1
    inboxes = [".".join(("_INBOX", "x", *middle, "z")) for middle in product("a*", repeat=6)]
    greedy.ask(b"".join(b"SUB %b i%d\r\n" % (each.encode(), number) for number, each in enumerate(inboxes)))
    assert greedy.session.subscriptions == 2 * (SHAPES_MAX + 1)
