"""A gateway whose neighbour is authentic and says anything, over connections that end at any time, while it does its own."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from iris_py.federation import messages
from iris_py.federation.calls import Call, call_head, encode_outcome
from iris_py.federation.events import ChannelOffer, ChannelOpened
from iris_py.federation.messages import LINE_GROUP, encode_message
from iris_py.federation.openings import ChannelRequest
from iris_py.link.lanes import TUNNEL
from iris_py.patterns.tunnel.duplex import Failure
from iris_py.wire import packets
from iris_py.wire.headers import NO_HEADERS
from tests.fuzz.source import Source
from tests.fuzz.target import Kind, Target
from tests.unit.iris_py.federation.pair import Gateway, Hall, one_each

STEPS_MAX: Final = 40
RULES: Final = ({"cluster": "db", "in_flight": 3}, {"cluster": "files.>", "allow": ["tunnel"]}, {"topic": "t.>"})
NAMES: Final = ("db", "files.a", "t.a", "", "a..b", "x" * 255, "\udc00".encode("utf-8", "replace").decode())


def control(source: Source) -> bytes:
    """Return a control message: most often one that can be, with any fields."""
    channel, name = source.number(0, 4), source.choose(NAMES)
    entries = tuple(
        messages.CatalogueEntry(
            source.number(0, 9), source.number(0, 2), source.choose(NAMES), source.byte(), float(source.byte()), 9
        )
        for _ in range(source.byte() % 4)
    )
    controls: tuple[messages.Control, ...] = (
        messages.Catalogue(1, entries),
        messages.Open(channel, source.number(0, 5), source.number(0, 4), source.number(0, 3), name, 1000, 1 << 20, b"", b""),
        messages.Opened(channel, source.number(0, 1 << 31)),
        messages.Refused(channel, source.choose((b"", b"\1\x80", b"\x63"))),
        messages.Withdrawn(channel),
        messages.WatchCount(source.number(0, 3), name, source.flag()),
        messages.Count(name, source.number(0, 1 << 31)),
        messages.Going(),
        messages.Quiet(),
        messages.Probe(source.number(0, 9)),
        messages.Echo(source.number(0, 9)),
    )
    message = source.choose(controls)
    if source.byte() > 240:
        return source.raw(source.byte() % 60)
    try:
        return messages.encode_control(message)
    except msgspec.MsgspecError:
        return b"\x63"


def body(source: Source) -> list[bytes]:
    """Return messages of requests, likewise."""
    parts: list[bytes] = []
    for _ in range(1 + source.byte() % 3):
        number, kind = source.number(0, 5), source.choose((packets.REQUEST, packets.CANCEL, packets.REPLY, source.byte()))
        payload: tuple[bytes, ...] = ()
        if kind == packets.REQUEST:
            payload = (call_head(Call(name=source.choose(NAMES)[:60])), b"x")
        elif kind == packets.REPLY:
            payload = (source.choose((b"", b"\0", b"\3\x80", b"\x0a", b"\xff")),)
        parts += encode_message(kind, number, source.number(0, 9000), source.raw(source.byte() % 3), payload)
    return parts if source.byte() < 248 else [source.raw(source.byte() % 60)]


def run_neighbour(data: bytes) -> None:
    """Let eu be asked and told anything by us; it keeps to its bounds, heals, and forgets everything in the end."""
    source = Source(data)
    hall, us, eu = one_each(exports=RULES)
    openings: list[Any] = []
    ends: list[Any] = []
    eu.serves = None
    for step in range(STEPS_MAX):
        if source.is_empty:
            break
        choice = source.byte()
        bundles = us.bundles("eu")
        links = [link for bundle in bundles for link in bundle.links if link is not None and link.is_open]
        if choice < 90 and links:
            link = links[0]
            link.send_control(control(source))
            us.write(link)
        elif choice < 150 and links:
            parts = body(source)
            link = source.choose(links)
            link.send_body(LINE_GROUP, parts, sum(map(len, parts)), is_ordered=False)
            us.write(link)
        elif choice < 160 and links:
            link = source.choose(links)
            number, chunk = source.number(0, 4) | source.choose((0, 1 << 63)), source.blob()
            link.send_tunnel(TUNNEL, number.to_bytes(8, "big"), (chunk,), len(chunk), hall.now)
            us.write(link)
        elif choice < 200:
            hall.advance(source.choose((0.01, 0.05, 0.3, 1.0, 4.0)))
        else:
            act(hall, us, eu, choice, source, openings, ends, step)
        check(eu)
    finish(hall, us, eu, openings, ends)


def act(
    hall: Hall, us: Gateway, eu: Gateway, choice: int, source: Source, openings: list[Any], ends: list[Any], step: int
) -> None:
    """Let the gateway do something of its own, or the network."""
    core, now = eu.core, hall.now
    bundles = eu.bundles("us")
    what = choice % 8
    if what == 0 and eu.requests:
        eu.reply(source.choose(eu.requests[:200]), encode_outcome(bytes(source.choose((0, 10, 100_000)))))
    elif what == 1:
        eu.ask("us", source.choose(NAMES), token=("asked", step), identity=source.choose((b"", b"i" * 16)))
    elif what == 2 and bundles:
        request = ChannelRequest(1, messages.TUNNEL, "files.a", NO_HEADERS)
        opening = core.openings.open(bundles[0], request, ("open", step), now + 2.0, now)
        openings.append(opening)
    elif what == 3 and openings:
        opening = source.choose(openings[:200])
        if opening is not None:
            core.openings.withdraw(opening, now)
    elif what == 4:
        for offer in eu.events_of(ChannelOffer):
            if source.flag():
                end = core.openings.accept(offer, now)
                ends += [] if end is None else [end]
            else:
                core.openings.refuse(offer, encode_outcome(b""), now)
    elif what == 5:
        gateway = source.choose((us, eu))
        for bundle in gateway.bundles("eu" if gateway is us else "us"):
            link = source.choose(bundle.links)
            if link is not None:
                link.abort("the network")
                gateway.core.link_received(link, now)
                gateway.transmit()
    elif what == 6:
        hall.forget([source.choose(hall.living())] if hall.living() and source.flag() else None)
    else:
        eu.is_stopped = True
        hall.advance(source.choose((0.3, 3.0, 12.0)))
        eu.resume()
    eu.transmit()


def check(eu: Gateway) -> None:
    """Look whether what is counted is what there is."""
    neighbour = eu.neighbour("us")
    held = [incoming for bundle in neighbour.bundles.values() for incoming in bundle.incoming.values()]
    assert neighbour.incoming == len(held)
    assert neighbour.export_limits[0].in_flight == len([each for each in held if each.name == "db"]) <= 3
    assert set(neighbour.offers) <= set(neighbour.bundles.values())
    assert all(not bundle.is_closed for bundle in neighbour.bundles.values())
    assert len(neighbour.bundles) <= 2


def finish(hall: Hall, us: Gateway, eu: Gateway, openings: list[Any], ends: list[Any]) -> None:
    """Let everything end, and both clouds join again."""
    for incoming in list(eu.requests):
        eu.reply(incoming, encode_outcome(b"done"))
    for opening in openings:
        if opening is not None:
            eu.core.openings.withdraw(opening, hall.now)
    for end in [*ends, *(event.end for event in eu.events_of(ChannelOpened))]:
        end.fail(Failure("the end"), is_told=True)
    eu.transmit()
    hall.advance(0.5)
    for bundle in us.bundles("eu"):
        us.core.lines.end_bundle(bundle, "the end", hall.now)
    us.core.handle_timeout(hall.now)
    us.transmit()
    hall.until(lambda: us.is_usable("eu") and eu.is_usable("us"), 40.0)
    hall.advance(20.0)
    check(eu)
    table = eu.core.openings
    assert not table._openings
    assert not table._offers
    assert table._budget.channels == 0
    assert table._budget.used_bytes == 0
    assert not eu.neighbour("us").incoming
    assert not len(eu.core._deadlines)
    assert all(not bundle.calls for bundle in eu.bundles("us"))
    assert len(eu.core.lines._lines) <= 8


TARGETS = (Target("gateway-neighbour", run_neighbour, Kind.NODE, (bytes(range(256)), bytes(range(255, 0, -3)) * 3), 1024),)
