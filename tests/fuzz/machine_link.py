"""A link after its handshake, whose peer is authentic and says any frames; and two links between two owners who do anything."""

from __future__ import annotations

from typing import Final

from iris_py.link.events import CloseReason
from iris_py.link.lanes import (
    CLOCK,
    CLOSE,
    CONTROL,
    FRAGMENT,
    FRAGMENT_END,
    FRAME,
    GENERATION,
    LAST_KIND,
    MULTICAST,
    PING,
    PONG,
    RANK,
    TAKEN,
    TUNNEL,
    TUNNEL_SEALED,
    UNICAST,
)
from iris_py.link.link import LinkState
from iris_py.testing.cores.pair import LinkPair
from iris_security import Keyring, Secret
from iris_security.administration import RANK_BYTES
from tests.fuzz.oracles import Memory, Turn, is_weighed
from tests.fuzz.source import Source
from tests.fuzz.target import Kind, Target

KEYRING = Keyring(Secret(bytes(range(32))), network="test")
STEPS_MAX: Final = 60
U64: Final = (1 << 64) - 1
#: The sizes that each frame may have; None for any.
SIZES: Final = {
    PING: range(5),
    PONG: (*range(5), 12),
    CLOSE: range(2),
    TAKEN: (8,),
    GENERATION: (25,),
    RANK: (RANK_BYTES,),
    CLOCK: (8,),
}
GROUP, NONCE = b"g" * 16, b"n" * 12


def frame(source: Source) -> bytes:
    """Return a frame: most often one that can be, with any content."""
    kind = source.byte() % (LAST_KIND + 3)
    if kind in (TAKEN, CLOCK):
        body = source.number(0, U64).to_bytes(8, "big")
    elif kind in SIZES and source.byte() < 240:
        body = source.raw(source.choose(list(SIZES[kind])))
    elif kind in (UNICAST, MULTICAST):
        body = GROUP + NONCE + source.blob()
    elif kind in (TUNNEL, TUNNEL_SEALED):
        body = source.raw(8) + source.blob()
    elif kind in (FRAGMENT, FRAGMENT_END):
        whole = source.choose((UNICAST, CONTROL, LAST_KIND + 1, PING, FRAGMENT))
        body = bytes((whole,)) + bytes(source.number(0, 70_000))
    else:
        body = source.blob()
    length = len(body) if source.byte() < 248 else source.number(0, (1 << 32) - 1)
    return FRAME.pack(kind, length) + body


def run_peer(data: bytes) -> None:
    """Let an authentic peer say any frames, in records as they come, while time passes and the owner does things."""
    source = Source(data)
    pair = LinkPair(KEYRING)
    pair.open()
    link, end, told = pair.responder.link, pair.responder, 0
    turn = Turn()
    sealer = pair.initiator.link._sealer
    assert sealer is not None
    for _ in range(STEPS_MAX):
        if source.is_empty:
            break
        choice = source.byte()
        if choice < 160:
            body = b"".join(frame(source) for _ in range(1 + choice % 4))[: 200 * 1024]
            record = sealer.seal(body)
            told += len(record)
            with turn:
                end.receive(len(record).to_bytes(4, "big") + record, pair.now)
        elif choice < 200:
            pair.now += source.pause()
            with turn:
                link.handle_timeout(pair.now, is_awaited=bool(choice & 1))
        else:
            command(pair, choice, source)
        end.take()
        end.packets.clear()
        while out := link.data_to_send(1 << 16):
            assert all(len(part) <= 256 * 1024 for part in out)
        due = link.deadline()
        assert due is None or link.state is not LinkState.CLOSED
    if is_weighed(data):
        end.events.clear()
        Memory(link, (KEYRING,)).check(told)


def command(pair: LinkPair, choice: int, source: Source) -> None:
    """Let the owner of the responder do something."""
    link = pair.responder.link
    what = choice % 8
    if what == 0:
        link.send_control(source.blob())
    elif what == 1 and link.is_open:
        link.wake(pair.now)
        link.send_packet(UNICAST, GROUP, NONCE, source.blob())
    elif what == 2:
        link.send_packet(MULTICAST, GROUP, NONCE, bytes(source.number(0, 200_000)))
    elif what == 3 and link.chunk_room:
        chunk = bytes(16), source.blob()
        link.send_tunnel(source.choose((TUNNEL, TUNNEL_SEALED)), source.raw(8), chunk, sum(map(len, chunk)), pair.now)
    elif what == 4:
        link.verify(pair.now)
    elif what == 5:
        link.ask_for_sign()
    elif what == 6 and link.is_open:
        link.proofs.claim(KEYRING.primary)
        link.proofs.offer(KEYRING.cluster("cluster"))
    elif choice > 250:
        link.close(source.choose(list(CloseReason)), pair.now)


def run_pair(data: bytes) -> None:
    """Let two owners send, close and wait; whatever happens on the wire, both links end cleanly or not at all."""
    source = Source(data)
    pair = LinkPair(KEYRING, chunk_bytes=lambda: 5000 + source.number(0, 70_000), latency_s=0.01)
    pair.open()
    for _ in range(STEPS_MAX):
        if source.is_empty:
            break
        end = source.choose((pair.initiator, pair.responder))
        choice = source.byte()
        link = end.link
        if choice < 120:
            size = source.number(0, 300_000)
            if link.state is LinkState.OPEN:
                link.wake(pair.now)
            kind = (CONTROL, UNICAST, MULTICAST)[choice % 3]
            body = bytes(16 + size)
            link.send_control(body) if kind == CONTROL else link.send_packet(kind, GROUP, NONCE, body)
        elif choice < 160:
            if link.chunk_room:
                size = 16 + source.number(0, link.chunk_room)
                link.send_tunnel(TUNNEL, bytes(8), (bytes(size),), size, pair.now)
        elif choice < 200:
            pair.drive(pair.now + source.pause())
        elif choice < 210:
            link.verify(pair.now)
        elif choice < 214:
            link.close(CloseReason.NORMAL, pair.now)
        else:
            pair.step()
        for each in (pair.initiator, pair.responder):
            each.packets.clear()
            each.written.clear()
    pair.drive()
    for end in (pair.initiator, pair.responder):
        assert all(getattr(event, "clean", True) for event in end.events), end.events


SEEDS = (bytes(range(256)), bytes(range(255, 0, -1)), b"".join(bytes((0, kind, 0, 20)) + bytes(30) for kind in range(16)))
TARGETS = (
    Target("link-frames", run_peer, Kind.MACHINE, SEEDS, 1500),
    Target("link-pair", run_pair, Kind.MACHINE, SEEDS, 600),
)
