"""A hostile neighbour against a gateway that serves its own cloud and an honest neighbour (docs/security.md).

After each attack both are served as before, and what was done is counted.
"""

from __future__ import annotations

import asyncio
import os
import struct
import time
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

import iris_py as iris
from iris_py.federation import items, messages
from iris_py.federation.calls import Status
from iris_py.federation.connections import HANDSHAKES_MAX
from iris_py.federation.handshake import DEFAULT_OFFER, MAGIC, VERSION_MAX, VERSION_MIN
from iris_py.federation.neighbour import REFUSALS_BURST, REFUSALS_PER_S
from iris_py.federation.openings import OFFERS_MAX
from iris_py.gateway.publications import VIOLATIONS_MAX
from iris_py.link.handshake import FORMAT
from iris_py.link.lanes import TUNNEL, UNICAST
from iris_py.patterns.request import deduplication
from iris_py.patterns.tunnel.duplex import CREDIT, DONE, END, LAST, MORE, RESET
from iris_py.wire import packets
from iris_py.wire.headers import encode_headers
from iris_security import pair_id
from tests.attack.hostile import Reply, standing
from tests.integration.conftest import PATIENCE_S, until

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tests.attack.hostile import HostileLine, Stand
    from tests.integration.conftest import Loops

REQUEST, TUNNELS = messages.ALLOW_REQUEST, messages.ALLOW_TUNNEL
#: The memory that a gateway may take more after an attack: far below what the documents allow for a neighbour, for no attack
#: here sends so much at once.
GROWTH_BYTES_MAX = 96 * 1024 * 1024
#: Lines that a gateway logs of all that a neighbour is refused.
LINES_MAX = 100
TOTAL = struct.Struct(">Q")


async def check(stand: Stand, before_bytes: int = 0) -> None:
    """Fail unless others are served, and the memory is bounded."""
    await stand.check()
    if before_bytes:
        grown = stand.memory_bytes() - before_bytes
        assert grown < GROWTH_BYTES_MAX


# -- names


def test_what_is_not_exported_cannot_be_told_from_what_does_not_exist(loop: Loops, home: Path) -> None:
    exports = [
        {"cluster": "works", "allow": ["request"]},
        {"cluster": "many.>", "allow": ["request", "survey", "tunnel", "broadcast"]},
        {"cluster": "many.few", "allow": ["request"], "in_flight": 1},
        {"topic": "clicks.>"},
        {"topic": "orders.>", "allow": ["publish"]},
    ]

    async def main() -> None:
        async with standing(home, exports=exports) as stand:
            line = await stand.join()
            rules = {entry[2]: entry[0] for entry in await line.catalogue()}
            assert sorted(rules) == ["clicks.>", "many.>", "many.few", "orders.>", "works"]
            names = [
                "hidden",
                "absent",
                "iris.gateway",
                "iris.gateway.eu",
                "works@eu",
                "many",
                "orders.new",
                "x" * 255,
                "a b",
                "\n",
            ]
            outcomes = {await line.ask(name) for name in names}
            assert outcomes == {Reply(Status.NOT_EXPORTED, msgspec.msgpack.encode({}))}
            answers = set()
            asked = [(kind, name, rule) for kind in messages.NEEDED for name in names for rule in (*rules.values(), 999)]
            asked += [
                (messages.TUNNEL, "many.few", rules["many.>"]),
                (messages.SURVEY, "works", rules["many.>"]),
            ]  # wider rules
            asked += [(messages.TUNNEL, "works", rules["works"]), (messages.PUBLISH, "", rules["clicks.>"])]  # not for that
            asked += [(messages.SUBSCRIBE, "", rules["orders.>"]), (messages.SUBSCRIBE, "", rules["many.>"])]
            for channel, (kind, name, rule) in enumerate(asked):
                if name == "orders.new" and kind == messages.PUBLISH and rule == rules["orders.>"]:
                    continue
                line.control(line.opening(channel, kind, name, rule))
            await line.flush()
            assert (await line.ask("works"))[0] == Status.DONE
            await until(lambda: len(line.controls) > len(asked) - 2, "all are answered", lambda: f"{len(line.controls)}")
            for data in line.controls:
                if data[0] in (3, 4):
                    assert data[0] == 4
                    answers.add(msgspec.msgpack.decode(data[1:])[1])
            assert answers == {bytes((Status.NOT_EXPORTED,)) + msgspec.msgpack.encode({})}
            for name in names:
                line.control(messages.WatchCount(rules["works"], name, True))
                line.control(messages.WatchCount(rules["many.>"], "many.few", True))
            assert (await line.ask("works"))[0] == Status.DONE
            assert not [data for data in line.controls if data[0] == 6]
            assert stand.hidden.asked == []
            await check(stand)
            await until(lambda: "hidden" in stand.log.read_text(), "the log tells that it was tried")

    loop.run(main())


def test_a_gateway_says_nothing_of_its_cloud_to_a_neighbour(loop: Loops, home: Path) -> None:
    exports = [
        {"cluster": "works", "as": "outside", "allow": ["request", "survey", "tunnel", "broadcast"]},
        {"topic": "clicks.>"},
        {"cluster": "nobody", "as": "empty", "allow": ["request", "survey", "tunnel", "broadcast"]},
    ]

    async def main() -> None:
        async with standing(home, exports=exports, imports=[{"cluster": ">"}, {"topic": ">"}]) as stand:
            line = await stand.join(("x", REQUEST))
            rules = {entry[2]: entry[0] for entry in await line.catalogue()}
            for payload in (b"x", b"fail"):
                await line.ask("outside", payload)
            stand.works.holds.clear()
            await line.ask("outside", b"hold", left_ms=50)
            stand.works.holds.set()
            await line.ask("empty")
            await line.ask("outside", require="nowhere")
            for channel, (kind, name) in enumerate(
                (
                    (messages.SURVEY, "outside"),
                    (messages.TUNNEL, "outside"),
                    (messages.SURVEY, "empty"),
                    (messages.TUNNEL, "empty"),
                )
            ):
                await line.open(channel, kind, name, rules[name])
            line.chunk(0, (LAST, b"\x01question"))
            line.chunk(1, (LAST, b"into the tunnel"))
            await line.open(8, messages.SUBSCRIBE, "", rules["clicks.>"], options=b"\0clicks.>")
            line.chunk(8, (LAST, items.encode_add(1, ["clicks.>"])))
            await line.flush()
            await until(lambda: len(line.chunks) >= 3, "streams are served")

            async def comes_through() -> bool:  # no word says when the gateway has subscribed in its own cloud
                await stand.own.publish("clicks.now", b"shown", headers={"size": 1})
                return any(b"shown" in data for _, data in line.chunks)

            await until_async(comes_through, "the topic comes through")
            with pytest.raises(iris.IrisError):
                await stand.own.request("x@mallory", b"ours", timeout=1.0)
            await line.ask("hidden")
            data = b"\n".join(line.heard)
            nodes = [stand.own.id, stand.far.id, stand.gateway_id]
            marks = (
                [each.encode() for each in nodes]
                + [bytes.fromhex(each) for each in nodes]
                + [each[:8].encode() for each in nodes]
            )
            marks += [stand.own.address.encode(), stand.own.address.rpartition(":")[2].encode(), stand.own.network.encode()]
            marks += [
                stand.secrets["us"].value,
                stand.secrets["us"].text.encode(),
                b"hidden",
                b"nobody",
                b"works@",
                b'"works"',
                b"127.0.0.1",
                stand.own.name.encode(),
            ]
            assert stand.own.name == "own-host/own-program"
            assert [mark for mark in marks if mark in data] == []

    loop.run(main())


# -- requests


def test_floods_of_requests_end_at_the_limits(loop: Loops, home: Path) -> None:
    exports = [{"cluster": "works", "allow": ["request"], "requests_per_s": 200, "in_flight": 64}]
    count = 5_000

    async def main() -> None:
        async with standing(home, exports=exports) as stand:
            line = await stand.join()
            before = stand.memory_bytes()
            stand.works.holds.clear()
            numbers = [line.request("works", b"hold", left_ms=60_000) for _ in range(count)]
            await line.flush()
            await until(lambda: len(line.replies) >= count - 64, "all but a few are answered", lambda: str(len(line.replies)))
            await stand.check()
            stand.works.holds.set()
            await until(lambda: len(line.replies) == count, "the rest is answered")
            statuses = [line.replies[number].status for number in numbers]
            assert stand.works.most <= 64 + 2  # and two of `check`
            assert statuses.count(Status.LIMITED) == count - statuses.count(Status.DONE)
            waits = [
                msgspec.msgpack.decode(reply.content)["retry_after_ms"]
                for reply in line.replies.values()
                if reply.status == Status.LIMITED
            ]
            assert min(waits) > 0
            # Cancelled at once, as many as come: they hold no place afterwards, and none runs for long.
            stand.works.holds.clear()
            for _ in range(2_000):
                number = line.request("works", b"hold")
                line.body(*messages.encode_message(packets.CANCEL, number, 0, b"", ()))
            await line.flush()

            async def is_served() -> bool:
                return (await line.ask("works")).status == Status.DONE

            async def are_forgotten() -> bool:
                (bundle,) = (await stand.status())["clouds"]["mallory"]["bundles"]
                return bool(bundle["requests_in"] == 0)

            await until_async(is_served, "the rule lets more requests pass")
            await until_async(are_forgotten, "the gateway has forgotten what was cancelled")
            await until(lambda: stand.works.running == 0, "the member has stopped what was cancelled")
            stand.works.holds.set()
            assert len(stand.log.read_text().splitlines()) < LINES_MAX
            await check(stand, before)

    loop.run(main())


def test_a_neighbour_does_not_push_out_remembered_replies(loop: Loops, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deduplication, "REMEMBERED_MAX", 16)

    async def main() -> None:
        async with standing(home) as stand:
            await stand.own.request("works", b"order 1", idempotent=True, key="order-1")
            line = await stand.join()
            for _ in range(40):
                assert (await line.ask("works", b"x", identity=os.urandom(16), is_anchored=True)).status == Status.DONE
            await stand.own.request("works", b"order 1", idempotent=True, key="order-1")
            assert [request.payload for request in stand.works.asked].count(b"order 1") == 1
            await check(stand)

    loop.run(main())


@pytest.mark.parametrize("use", ["request", "channel"])
def test_names_that_are_not_exported_cannot_be_tried_for_long(use: str, loop: Loops, home: Path) -> None:
    async def main() -> None:
        async with standing(home) as stand:
            before = stand.memory_bytes()
            line = await stand.join()
            for _ in range(3):  # and new lines do not give new chances
                for number in range(REFUSALS_BURST + REFUSALS_PER_S * 60):
                    if use == "request":
                        line.request("hidden", b"x")
                    else:
                        line.control(line.opening(2 * number, messages.TUNNEL, "hidden"))
                await line.flush()
                await line.wait_for_end()
                await check(stand, before)
                line = await stand.dial()
            assert (await stand.drops())["violation"] == 3

    loop.run(main())


def test_headers_identities_and_zones_of_a_neighbour_are_its_own(loop: Loops, home: Path) -> None:
    async def main() -> None:
        async with standing(home) as stand:
            line = await stand.join()
            identity = os.urandom(16)
            reserved: dict[str, str | bytes | int] = {
                "iris-cloud": "eu",
                "iris-origin": b"x" * 16,
                "iris-op": "tunnel",
                "iris-name": "hidden",
                "iris-anything": 1,
            }
            headers = encode_headers({**reserved, "own": "kept", "traceparent": "00-1"}, is_internal=True).encoded
            assert (await line.ask("works", b"same", headers=headers, identity=identity)).status == Status.DONE
            request = stand.works.asked[-1]
            assert request.cloud == "mallory"
            assert dict(request.headers) == {"own": "kept"}
            assert request._execution.headers == {"own": "kept", "iris-cloud": "mallory"}
            assert request.source == stand.gateway_id
            assert request._execution.identity not in (b"", identity)
            # Whoever has guessed the identity of a request of another cloud is not given its reply.
            asked = len(stand.works.asked)
            assert (await line.ask("works", b"same", identity=identity)).status == Status.DONE
            assert len(stand.works.asked) == asked  # it is remembered, for this neighbour
            theirs = await stand.dial(cloud="eu")
            assert (await theirs.ask("works", b"of eu", identity=identity)).status == Status.DONE
            assert stand.works.asked[-1].cloud == "eu"
            assert stand.works.asked[-1].payload == b"of eu"
            assert len(stand.works.asked) == asked + 1
            assert stand.works.asked[-1]._execution.identity != request._execution.identity
            for garbage in (b"\xff" * 4000, b"\x00", os.urandom(500), encode_headers({"a": "b"}).encoded[:-1]):
                reply = await line.ask("works", b"x", headers=garbage)
                assert reply.status in (Status.DONE, Status.REMOTE_ERROR)
            await check(stand)

    loop.run(main())


# -- the protocol


def _raw(kind: int, value: Any) -> bytes:
    return bytes((kind,)) + msgspec.msgpack.encode(value)


ENDING: dict[str, Sequence[bytes]] = {
    "unknown type that is needed": [_raw(128, []), _raw(255, [1])],
    "too large": [_raw(1, [1, []]) + bytes(256 * 1024), bytes((1,)) + os.urandom(300_000)],
    "malformed": [b"\x01", b"\x02\xc1", _raw(2, [1]), _raw(2, []), _raw(1, {"a": 1}), b"\x03" + b"\x91" * 10_000],
    "a catalogue of too much": [_raw(1, [1, [[n, 0, f"c{n}", 1, 0.0, 1] for n in range(1025)]])],
    "a catalogue of nonsense": [
        _raw(1, [1, [[1, 0, "a.>.b", 1, 0.0, 1]]]),
        _raw(1, [1, [[1, 0, "", 1, 0.0, 1]]]),
        _raw(1, [1, [[1, 0, "a", 1, float("nan"), 1]]]),
        _raw(1, [1, [[1, 0, "a", 1, float("inf"), 1]]]),
        _raw(1, [1, [[1, 0, "a", 1, -1.0, 1]]]),
        _raw(1, [1, [[1, 0, "a", 1, 0.0, 1], [1, 0, "b", 1, 0.0, 1]]]),
        _raw(1, [-1, []]),
    ],
    "numbers of channels": [
        _raw(2, [1 << 63, 0, 3, 0, "works", 1, 1, b"", b""]),
        _raw(2, [-1, 0, 3, 0, "works", 1, 1, b"", b""]),
    ],
    "kinds of channels": [_raw(2, [1, 0, 99, 0, "works", 1, 1, b"", b""])],
}


def test_what_breaks_the_protocol_ends_the_bundle_and_nothing_else(loop: Loops, home: Path) -> None:
    async def main() -> None:
        async with standing(home) as stand:
            ended = 0
            for messages in ENDING.values():
                for message in messages:
                    line = await stand.join()
                    line.control(message)
                    await line.flush()
                    await line.wait_for_end()
                    ended += 1
            head = packets.MESSAGE
            bodies = [
                b"x",
                head.pack(packets.REQUEST, 0, 0, 100, 1, 1),  # cut off
                head.pack(packets.REQUEST, 0, 0xFFFF, 0, 1, 1),
                head.pack(packets.REQUEST, 0, 0, 0xFFFF_FFFF, 1, 1),
                head.pack(packets.REQUEST, 0, 0, 0, 1, 1),  # no call
                head.pack(packets.REQUEST, 0, 0, 8, 1, 1) + b"\x01\x02\0\0\0\0\0\0",  # asks for the status of the gateway
            ]
            for body in bodies:
                line = await stand.join()
                line.body(body)
                await line.flush()
                await line.wait_for_end()
                ended += 1
            line = await stand.join()
            stand.works.holds.clear()
            number = line.request("works", b"hold")
            line._number = number - 1
            line.request("works", b"hold")  # a number that is in use
            await line.flush()
            await line.wait_for_end()
            stand.works.holds.set()
            drops = await stand.drops()
            assert drops["violation"] == ended + 1
            await check(stand)

    loop.run(main())


def test_what_may_be_of_a_newer_version_is_counted_and_skipped(loop: Loops, home: Path) -> None:
    async def main() -> None:
        async with standing(home) as stand:
            line = await stand.join()
            for kind in (0, 50, 100, 127):
                line.control(_raw(kind, [1, 2, 3]))
                line.control(bytes((kind,)))
            for number in range(100):
                line.body(*messages.encode_message(packets.REPLY, number, 0, b"", (b"\x00forged",)))
                line.body(*messages.encode_message(packets.CANCEL, 10_000 + number, 0, b"", ()))
                line.body(*messages.encode_message(99, number, 0, b"", (b"unknown",)))
                line.control(messages.Opened(number, 1 << 20))
                line.control(messages.Refused(number, b"\x06"))
                line.control(messages.Withdrawn(number))
                line.control(messages.Echo(number))
                line.chunk(number, (LAST, b"to nobody"))
                line.link.send_packet(UNICAST, os.urandom(16), os.urandom(12), b"sealed by nobody")
            await line.flush()
            assert (await line.ask("works")).status == Status.DONE
            drops = await stand.drops()
            assert drops["unknown_control"] == 8
            assert drops["late_reply"] == drops["unknown_kind"] == 100
            assert drops["unknown_channel"] == 300
            await check(stand)

    loop.run(main())


def test_lies_in_a_hello_open_nothing(loop: Loops, home: Path) -> None:
    async def main() -> None:
        async with standing(home) as stand:
            good = await stand.join()
            gateway = bytes(16)
            lies: list[dict[str, Any]] = [
                {"index": 4, "count": 4},
                {"index": 9, "count": 10},
                {"count": 1_000},
                {"count": 0},
                {"name": "new\nline"},
                {"name": "\x1b[31mred"},
                {"zone": "\x00"},
                {"name": "x" * 65},
                {"gateway": b"short"},
                {"bundle": b"long" * 100},
                {"max_message_bytes": -1},
                {"index": 1, "count": 2},  # of a bundle that is none
                {"filling": "x" * 3000},
            ]
            for lie in lies:
                line = await stand.dial(stand.hello(**lie))
                await line.wait_for_end()
            # The connections of a bundle of somebody else.
            bundle = os.urandom(8)
            main_line = await stand.dial(stand.hello(gateway=gateway, bundle=bundle, count=2))
            assert not main_line.is_over
            for lie in ({"gateway": os.urandom(16), "index": 1}, {"gateway": gateway, "index": 2, "count": 3}):
                line = await stand.dial(stand.hello(**{"bundle": bundle, "count": 2} | lie))
                await line.wait_for_end()
            line = await stand.dial(stand.hello(bundle=bundle))  # the name of a bundle, again
            await line.wait_for_end()
            assert (await main_line.ask("works")).status == Status.DONE
            assert (await good.ask("works")).status == Status.DONE
            # More bundles than a cloud has gateways.
            lines = [await stand.dial() for _ in range(80)]
            await check(stand)
            await until(lambda: sum(line.is_over for line in lines) >= 80 - 64, "those that are too many have ended")
            text = stand.log.read_text()
            assert "\x1b[31m" not in text
            assert "x" * 65 not in text

    loop.run(main())


def test_handshakes_that_never_end_leave_room_for_others(loop: Loops, home: Path) -> None:
    """With the name of a pair of keys that it knows a stranger costs a gateway more than without, and not much more."""

    async def main() -> None:
        async with standing(home) as stand:
            pair = pair_id(stand.key.public, stand.public)
            first = MAGIC + bytes((FORMAT, VERSION_MIN, VERSION_MAX, DEFAULT_OFFER.mask, DEFAULT_OFFER.preferred)) + pair
            before = stand.memory_bytes()
            readers, writers = [], []
            for number in range(HANDSHAKES_MAX + 100):
                reader, writer = await asyncio.open_connection(stand.host, stand.port)
                writer.write([first, first[:5], b"", first + b"\x00\x30" + os.urandom(48)][number % 4])
                readers.append(reader)
                writers.append(writer)
            await until(
                lambda: all(reader.at_eof() or reader.exception() for reader in readers[3::4]),
                "the gateway has ended those that showed no key",
            )
            assert "another key" not in stand.log.read_text(), "each of them named a pair"
            line = await stand.join()
            assert (await line.ask("works")).status == Status.DONE
            await check(stand, before)
            for writer in writers:
                writer.transport.abort()

    loop.run(main())


# -- channels


def test_channels_that_nobody_reads_feeds_or_accepts_are_bounded(loop: Loops, home: Path) -> None:
    exports = [{"cluster": "works", "allow": ["request", "survey", "tunnel"], "tunnels": 4}, {"topic": "clicks.>"}]
    count = 3_000

    async def main() -> None:
        async with standing(home, exports=exports, imports=[{"cluster": ">"}, {"topic": ">"}]) as stand:
            line = await stand.join(("x", TUNNELS | REQUEST))
            rules = {entry[2]: entry[0] for entry in await line.catalogue()}
            with pytest.raises(iris.RequestTimeout):  # which the hostile side never accepts
                async with stand.own.tunnel("x@mallory", timeout=1.0):
                    pass
            before = stand.memory_bytes()
            kinds = [(messages.TUNNEL, "works", rules["works"], b""), (messages.SURVEY, "works", rules["works"], b"")]
            kinds += [(messages.SUBSCRIBE, "", rules["clicks.>"], b"\0clicks.>")]
            for kind, name, rule, options in kinds:
                await line.close()
                line = await stand.join()
                line.controls.clear()
                for channel in range(count * kind, count * (kind + 1)):
                    line.control(line.opening(channel, kind, name, rule, options=options))
                await line.flush()
                await wait_for_answers(line, count)
                opened = sum(data[0] == 3 for data in line.controls)
                assert opened <= (4 if kind == messages.TUNNEL else OFFERS_MAX)
                await check(stand, before)
            assert await stand.channels() <= OFFERS_MAX
            await line.close()
            await until_async(lambda: _has_no_channels(stand), "channels are gone with their line")
            await check(stand, before)

    loop.run(main())


async def wait_for_answers(line: HostileLine, count: int) -> None:
    """Return when so many questions for channels are answered."""

    def is_answered() -> bool:
        return sum(data[0] in (3, 4) for data in line.controls) == count

    await until(is_answered, "all are answered", lambda: f"({len(line.controls)} messages came)")


async def _has_no_channels(stand: Stand) -> bool:
    return await stand.channels() == 0


async def until_async(condition: Any, what: str) -> None:
    """Poll a question until it is answered by yes."""
    deadline = time.monotonic() + PATIENCE_S
    while not await condition():
        assert time.monotonic() < deadline, what
        await asyncio.sleep(0.05)


def test_lies_about_credit_and_storms_of_resets_end_channels_alone(loop: Loops, home: Path) -> None:
    async def main() -> None:
        async with standing(home) as stand:
            line = await stand.join()
            (rule,) = [entry[0] for entry in await line.catalogue()]
            before = stand.memory_bytes()
            big = os.urandom(30_000)
            attacks: list[list[list[tuple[int, bytes]]]] = [
                [[(CREDIT, TOTAL.pack((1 << 64) - 1))]],
                [[(CREDIT, TOTAL.pack(0))]],
                [[(CREDIT, b"short")]],
                [[(DONE, TOTAL.pack(1 << 40))]],
                [[(MORE, big)]] * 100,  # over its window, and no end of the message
                [[(LAST, b"")] * 3_000] * 20,  # pieces of nothing
                [[(END, b"")], [(LAST, b"after the end")]],
                [[(MORE, b"x"), (END, b"")]],
                [[(77, b"unknown")]],
                [[(RESET, os.urandom(2_000))], [(RESET, b"")], [(LAST, b"after it")]],
            ]
            for channel, chunks in enumerate(attacks):
                opened = await line.open(channel, messages.TUNNEL, "works", rule)
                assert opened[0] == 3, (channel, opened)
                for chunk in chunks:
                    line.chunk(channel, *chunk)
                line.link.send_tunnel(TUNNEL, channel.to_bytes(8, "big"), (b"\x01\xff\xff\xff\xff", b" cut off"), 13, 0.0)
                line.link.send_tunnel(TUNNEL, channel.to_bytes(8, "big"), (b"\x01",), 1, 0.0)
                await line.flush()
                assert (await line.ask("works")).status == Status.DONE
            for channel in range(1_000, 3_000):
                line.control(line.opening(channel, messages.TUNNEL, "works", rule))
                line.chunk(channel, (RESET, b""))
                line.control(messages.Withdrawn(channel))
                if not channel % 100:
                    await line.flush()
            await line.flush()
            assert (await line.ask("works")).status == Status.DONE
            await until_async(lambda: _has_no_channels(stand), "no channel is left")
            assert (await line.open(9_999, messages.TUNNEL, "works", rule))[0] == 3  # and no place is taken
            await check(stand, before)
            line.control(line.opening(9_999, messages.TUNNEL, "works", rule))  # a number that is in use
            await line.flush()
            await line.wait_for_end()
            await check(stand, before)

    loop.run(main())


# -- what is used of it


def test_hostile_catalogues_cost_little(loop: Loops, home: Path) -> None:
    """1,024 patterns, made so that a name matches none and all of them nearly, told again and again."""

    async def main() -> None:
        async with standing(home) as stand:
            line = await stand.join()
            before = stand.memory_bytes()
            deep = [".".join("*" if n >> bit & 1 else "a" for bit in range(10)) + ".*" * 5 + ".b" for n in range(1024)]
            name = ".".join(["a"] * 16)
            for version in range(1, 20):
                line.control(_raw(1, [version, [[n, 0, pattern, 127, 0.0, 1] for n, pattern in enumerate(deep)]]))
            await line.flush()
            await check(stand, before)
            assert not line.is_over
            # Of processor time, of the gateway and of this process: how long it took is a matter of what else runs.
            began_s = stand.cpu_s() + time.process_time()
            for _ in range(100):
                with pytest.raises(iris.NotExported):
                    await stand.own.request(f"{name}@mallory", b"")
            assert stand.cpu_s() + time.process_time() - began_s < 5.0
            for _ in range(10):  # and new lines do not give new chances
                for version in range(20, 60):
                    line.control(_raw(1, [version, [[n, 0, pattern, 127, 0.0, 1] for n, pattern in enumerate(deep)]]))
                await line.flush()
                await line.wait_for_end()
                await check(stand, before)
                line = await stand.dial()
            assert (await stand.drops())["violation"] == 10

    loop.run(main())


def test_answers_of_nonsense_become_errors_that_say_so(loop: Loops, home: Path) -> None:
    deep = b"\x91" * 5_000
    facts: list[tuple[bytes, type[iris.IrisError]]] = [
        (b"\x04" + msgspec.msgpack.encode({"text": "x" * 1_000_000, "type": "T"}), iris.RemoteError),
        (b"\x04" + deep, iris.RemoteError),
        (b"\x04" + os.urandom(1_000), iris.RemoteError),
        (b"\x04" + msgspec.msgpack.encode({"member": "../../etc/passwd"}), iris.RemoteError),
        (b"\x08" + msgspec.msgpack.encode({"retry_after_ms": float("inf")}), iris.RemoteError),
        (b"\x08" + msgspec.msgpack.encode({"retry_after_ms": -1}), iris.RemoteError),
        (b"\x01" + msgspec.msgpack.encode({"elsewhere": 1 << 60}), iris.RemoteError),
        (b"\x02", iris.RemoteError),
        (b"\x06" + msgspec.msgpack.encode({}), iris.NotExported),
    ]

    async def main() -> None:
        async with standing(home) as stand:
            line = await stand.join(("x", REQUEST))
            for content, error in facts:
                asking = asyncio.ensure_future(stand.own.request("x@mallory", b"", timeout=10.0))
                await until(lambda: line.asked, "the request comes")
                number, _payload = line.asked.popitem()
                line.body(*messages.encode_message(packets.REPLY, number, 0, b"", (content,)))
                await line.flush()
                with pytest.raises(error) as raised:
                    await asking
                line.body(*messages.encode_message(packets.REPLY, number, 0, b"", (b"\0again",)))
                await line.flush()
                assert len(str(raised.value)) < 10_000
            assert (await stand.drops())["late_reply"] == len(facts)
            for status in (b"", b"\x63"):  # no status, and one that is none
                await line.close()
                line = await stand.join(("x", REQUEST))
                asking = asyncio.ensure_future(stand.own.request("x@mallory", b"", timeout=10.0))
                await until(lambda line=line: line.asked, "the request comes")  # type: ignore[misc]
                number, _payload = line.asked.popitem()
                line.body(*messages.encode_message(packets.REPLY, number, 0, b"", (status,)))
                await line.flush()
                with pytest.raises(iris.MemberLost):
                    await asking
                await line.wait_for_end()
            await check(stand)

    loop.run(main())


def test_a_neighbour_that_does_not_read_holds_a_bounded_amount(loop: Loops, home: Path) -> None:
    size = 200_000

    async def main() -> None:
        async with standing(home) as stand:
            line = await stand.join(("x", REQUEST))
            before = stand.memory_bytes()
            line.reads.clear()
            payload = bytes(size)
            outcomes = await asyncio.gather(
                *(stand.own.request("x@mallory", payload, timeout=4.0) for _ in range(800)), return_exceptions=True
            )
            kinds = {type(outcome) for outcome in outcomes}
            assert kinds <= {iris.RequestTimeout, iris.Overloaded, iris.CloudUnavailable, iris.MemberLost, iris.NotExported}
            await stand.check()
            assert stand.memory_bytes() - before < 256 * 1024 * 1024

    loop.run(main())


# -- topics


def test_who_publishes_without_a_rule_is_put_out(loop: Loops, home: Path) -> None:
    exports = [
        {"cluster": "works", "allow": ["request"]},
        {"cluster": "loud", "allow": ["broadcast"]},
        {"topic": "orders.new", "allow": ["publish"]},
        {"topic": "clicks.>"},
    ]

    async def main() -> None:
        async with standing(home, exports=exports) as stand, stand.own.subscribe(">") as received:
            line = await stand.join()
            rules = {entry[2]: entry[0] for entry in await line.catalogue()}
            for channel, rule in enumerate(("clicks.>", "works")):
                assert (await line.open(channel, messages.PUBLISH, "", rules[rule]))[0] == 4
            assert (await line.open(2, messages.PUBLISH, "", rules["orders.new"], options=b"orders.new"))[0] == 3
            line.chunk(2, (LAST, items.encode_items(items.SAY, [items.Item("orders.new", [b"fine"], 1, b"o" * 16, b"strm")])))
            await line.flush()
            message = await anext(received)
            assert (message.topic, message.payload, message.cloud) == ("orders.new", b"fine", "mallory")
            await stand.check()
            wrong = ["clicks.now", "payroll", "iris.gateway", "orders.new.more", "works", "hidden"]
            for number in range(VIOLATIONS_MAX + 10):
                item = items.Item(
                    wrong[number % len(wrong)], [b"forged"], number + 2, b"o" * 16, b"strm", flags=number % 2 * items.BROADCAST
                )
                line.chunk(2, (LAST, items.encode_items(items.SAY, [item])))
            await line.flush()
            await line.wait_for_end()
            await check(stand)
            assert stand.works.heard == stand.hidden.heard == []
            await stand.own.publish("end", b"")
            assert (await anext(received)).topic == "end"

    loop.run(main())
