"""Record what real nodes of a virtual network say to each other, and draw it: who to whom, in the order in which it arrives.

Each message is named by the class or constant that the code has for it. What keeps links alive and rings whole is left out.
"""

from __future__ import annotations

import contextlib
import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from drawing import line, text

from iris_overlay.groups.messages import decode_group_message
from iris_overlay.overlay import Overlay
from iris_overlay.ring.messages import Direct, Routed, decode_ring_message
from iris_py.api.runtime import runtime_of
from iris_py.node.inbound import Inbound
from iris_py.patterns.tunnel import duplex
from iris_py.patterns.tunnel.end import TunnelEnd
from iris_py.wire import packets

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from iris_py.api.node import Node

#: What the kinds of messages between members are called, by their number.
KINDS: Final = {getattr(packets, name): name for name in ("REQUEST", "REPLY", "TUNNEL_OPEN", "TUNNEL_ACCEPT")}
#: The frames of a tunnel likewise.
FRAMES: Final = {getattr(duplex, name): name for name in ("MORE", "LAST", "CREDIT", "END", "DONE", "RESET")}

#: What asks for something, drawn as such; everything else tells.
ASKS: Final = frozenset({"Watch", "REQUEST", "TUNNEL_OPEN", "MORE", "LAST", "END"})
#: Heights of a message and of a heading, and where the first one is.
ROW: Final = 24
HEADING: Final = 38
TOP: Final = 60
TIMES_RIGHT: Final = 74.0


@dataclass(frozen=True, slots=True)
class Arrival:
    """A message that has arrived.

    Attributes:
        time_s: When, in virtual seconds.
        source: The index of the node that sent it.
        target: The index of the node that got it.
        names: What it is: a message or several that came together.
        bytes: How large it is.
    """

    time_s: float
    source: int
    target: int
    names: tuple[str, ...]
    bytes: int


@contextlib.contextmanager
def recording(nodes: Sequence[Node]) -> Iterator[list[Arrival]]:
    """Record what arrives at nodes that know each other, while the block runs.

    Args:
        nodes: All nodes of the network; an arrival has indices of these.
    """
    found: list[Arrival] = []
    index = {bytes.fromhex(node.id): number for number, node in enumerate(nodes)}
    clock = runtime_of(nodes[0]).loop.time
    inbound = {id(node._core._inbound): number for number, node in enumerate(nodes)}
    receive_message, receive_body = Overlay.receive_message, Inbound._receive_body

    def hear_control(self: Overlay, peer: Any, data: bytes, now: float) -> None:  # noqa: ANN401 - as what it stands for
        message: object = decode_ring_message(data)
        if isinstance(message, Routed | Direct):
            message = decode_group_message(message.payload)
            found.append(Arrival(clock(), index[peer], index[self._local.id], (type(message).__name__,), len(data)))
        receive_message(self, peer, data, now)

    def hear_body(self: Inbound, receivers: Any, group: Any, peer: Any, body: bytes, offset: int, end: int, now: float) -> Any:  # noqa: ANN401
        found.append(Arrival(clock(), index[peer.id], inbound[id(self)], tuple(kinds_of(body, offset, end)), end - offset))
        return receive_body(self, receivers, group, peer, body, offset, end, now)

    def hear_frames(self: Any, data: bytes | memoryview, offset: int, end: int) -> None:  # noqa: ANN401
        source, target = index[self.peer.id], 1 - index[self.peer.id]
        found.append(Arrival(clock(), source, target, tuple(frames_of(data, offset, end)), end - offset))
        receive_frames(self, data, offset, end)

    receive_frames = TunnelEnd.receive_frames
    Overlay.receive_message, Inbound._receive_body = hear_control, hear_body  # type: ignore[method-assign]
    TunnelEnd.receive_frames = hear_frames  # type: ignore[method-assign]
    try:
        yield found
    finally:
        Overlay.receive_message, Inbound._receive_body = receive_message, receive_body  # type: ignore[method-assign]
        TunnelEnd.receive_frames = receive_frames  # type: ignore[method-assign]


def kinds_of(body: bytes, offset: int, end: int) -> Iterator[str]:
    """Return what the messages of a body are called."""
    while end - offset >= packets.MESSAGE_BYTES:
        kind, _flags, head, length, _id, _argument = packets.MESSAGE.unpack_from(body, offset)
        yield KINDS[kind]
        offset += packets.MESSAGE_BYTES + head + length


def frames_of(data: bytes | memoryview, offset: int, end: int) -> Iterator[str]:
    """Return what the frames of a chunk are called."""
    while end - offset >= duplex.FRAME.size:
        kind, length = duplex.FRAME.unpack_from(data, offset)
        yield FRAMES[kind]
        offset += duplex.FRAME.size + length


def draw_sequence(
    lanes: Sequence[tuple[float, str]],
    phases: Sequence[tuple[str, Sequence[Arrival]]],
    meanings: Mapping[str, str],
    right: float,
) -> tuple[list[str], int]:
    """Draw nodes as lines from the top to the bottom, and messages between them.

    Args:
        lanes: Of each node: where it is, and what it is called.
        phases: What is recorded, each part with a heading; its times count from its beginning.
        meanings: What a message says, by its name.
        right: Where the meanings stand.

    Returns:
        The shapes, and how far down they go.
    """
    parts, y = [], float(TOP)
    for heading, arrivals in phases:
        y += HEADING
        parts.append(text(14, y - 14, heading, "title", "start"))
        for arrival in arrivals:
            start, end = lanes[arrival.source][0], lanes[arrival.target][0]
            kind = "blue ask" if ASKS & {*arrival.names} else "green tell"
            parts.append(line((start, y), (end - 2 if end > start else end + 2, y), kind))
            parts.append(text(TIMES_RIGHT, y + 4, f"{arrival.time_s * 1000:.1f} ms", "small", "end"))
            words = ", ".join(meanings[name] for name in arrival.names)
            parts.append(text(right, y + 4, f"{', '.join(arrival.names)}: {words}", "small", "start"))
            y += ROW
    bottom = int(y)
    lines = [line((x, TOP - 12), (x, bottom - 8), "faint") for x, _ in lanes]
    names = [text(x, TOP - 22, name) for x, name in lanes]
    return [*lines, *names, *parts], bottom


def since(arrivals: Sequence[Arrival], begin_s: float) -> list[Arrival]:
    """Return arrivals with times that count from a moment."""
    return [dataclasses.replace(each, time_s=each.time_s - begin_s) for each in arrivals]
