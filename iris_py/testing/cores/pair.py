"""Two link cores, or several node cores, wired together in memory: no socket, no event loop, and time is a number.

Modelled on quinn's ``Pair``: :meth:`LinkPair.step` runs exactly one event, :meth:`LinkPair.drive` continues until nothing is
under way, and both give up after a number of steps instead of running for ever.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from iris_overlay.events import DialRequested
from iris_py.link.config import LinkConfig
from iris_py.link.handshake import LinkHandshake
from iris_py.link.lanes import SEALED_KINDS
from iris_py.link.link import Link, LinkState
from iris_security import Identity
from iris_security.aead import NONCE_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable

    from iris_py.errors import IrisError
    from iris_py.link.events import LinkEvent
    from iris_py.node.core import NodeCore
    from iris_py.node.events import NodeEvent
    from iris_security import Keyring

#: Largest number of steps, more than any sensible test takes: a pair that has not come to rest by then never will.
STEPS_MAX = 100_000
#: Bytes taken from a link at once, as the driver does.
BUDGET_BYTES = 64 * 1024


class End:
    """One end of a connection: a link, its incoming bytes, and its events.

    Attributes:
        link: The protocol.
        events: All events of the link that :meth:`take` has taken.
        packets: All received packets: (type of the frame, key, nonce if present, the rest).
        written: Every chunk written by the link, for tests of the wire format.
        is_held: Whether incoming bytes are held back, as in a network that drops all packets.
        is_ended: Whether the connection has ended, so that nothing more is sent.
    """

    def __init__(self, link: Link) -> None:
        self.link = link
        self.events: list[LinkEvent] = []
        self.packets: list[tuple[int, bytes, bytes, bytes]] = []
        self.written: list[bytes] = []
        self.is_held = False
        self.is_ended = False
        self.inbox: deque[tuple[float, bytes | None]] = deque()  # (arrival, bytes; None for the end of the stream)
        self._buffer = bytearray()

    def receive(self, data: bytes | memoryview | None, now: float) -> None:
        """Pass received bytes to the link, and keep the bytes the link does not use yet. None ends the stream."""
        if data is None:
            self.link.receive_eof(now)
            return
        self._buffer += data
        is_left = True
        while is_left:
            with memoryview(self._buffer) as view:
                used = self.link.receive_data(view, now)
            del self._buffer[:used]
            is_left = self.link.has_unread

    def take(self) -> None:
        """Take the link's output into ``events`` and ``packets``. Packets are copied, as a node copies them by decryption."""
        self.packets += [
            (kind, key, data[start : start + NONCE_BYTES], data[start + NONCE_BYTES : stop])
            if kind in SEALED_KINDS
            else (kind, key, b"", data[start:stop])
            for kind, key, data, start, stop in self.link.packets_received()
        ]
        self.events += self.link.events_received()

    def arrives_at(self) -> float | None:
        """Return the arrival time of the next bytes; None if none are under way."""
        return self.inbox[0][0] if self.inbox and not self.is_held else None


class LinkPair:
    """Two links and a simulated wire between them, for tests of the link protocol.

    Args:
        responder_keyring: The secrets of the responder, if they differ from the initiator's.
        chunk_bytes: Returns the size of the next chunk; None to keep the written sizes.
        confirms: Whether both owners confirm every identified peer; otherwise the test does.
        hello: The hello of the initiator.

    Attributes:
        now: The time.
        identities: The identities of the initiator and of the responder.
        initiator: The end that dialled.
        responder: The end that accepted.
    """

    def __init__(
        self,
        keyring: Keyring,
        responder_keyring: Keyring | None = None,
        *,
        config: LinkConfig | None = None,
        latency_s: float = 0.0,
        chunk_bytes: Callable[[], int] | None = None,
        confirms: bool = True,
        hello: bytes = b"initiator",
    ) -> None:
        self.now = 0.0
        self.latency_s = latency_s
        self._chunk_bytes = chunk_bytes
        self._confirms = confirms
        config = config or LinkConfig()
        self.identities = Identity(b"\x01" * 32), Identity(b"\x02" * 32)
        self.initiator = End(
            Link(
                handshake=LinkHandshake(
                    initiator=True,
                    keyring=keyring,
                    identity=self.identities[0],
                    hello=hello,
                    ephemeral_private=b"\x01" * 32,
                    offer=config.offer,
                ),
                now=0.0,
                config=config,
            )
        )
        self.responder = End(
            Link(
                handshake=LinkHandshake(
                    initiator=False,
                    keyring=responder_keyring or keyring,
                    identity=self.identities[1],
                    hello=b"responder",
                    ephemeral_private=b"\x02" * 32,
                    offer=config.offer,
                ),
                now=0.0,
                config=config,
            )
        )

    def other(self, end: End) -> End:
        """Return the other end of the wire."""
        return self.responder if end is self.initiator else self.initiator

    def flush(self) -> None:
        """Put the output of both links on the wire, and close the connection at an end whose link has ended."""
        for end in (self.initiator, self.responder):
            self._take(end)
            if end.link.is_quiet and end.link.queued_bytes:
                end.link.wake(self.now)
            while not end.is_ended:
                data = b"".join(end.link.data_to_send(BUDGET_BYTES))
                self._take(end)
                if not data:
                    break
                self.send(end, data)
            if end.link.state is LinkState.CLOSED and not end.is_ended:
                end.is_ended = True
                self.other(end).inbox.append((self.now + self.latency_s, None))

    def send(self, end: End, data: bytes) -> None:
        """Put bytes on the wire as the output of one end."""
        end.written.append(data)
        inbox = self.other(end).inbox
        at = 0
        while at < len(data):
            cut = len(data) if self._chunk_bytes is None else max(1, self._chunk_bytes())
            inbox.append((self.now + self.latency_s, data[at : at + cut]))
            at += cut

    def step(self, until: float | None = None) -> bool:
        """Run the next event: an arrival or, with ``until``, a timer due by then. Return False if none is left."""
        self.flush()
        moments: list[tuple[float, int, End]] = []
        for order, end in enumerate((self.initiator, self.responder)):
            arrival, deadline = end.arrives_at(), end.link.deadline()
            if arrival is not None:
                moments.append((arrival, order, end))
            if until is not None and deadline is not None and deadline <= until:
                moments.append((deadline, order + 2, end))
        if not moments or (until is not None and min(moments)[0] > until):
            return False
        moment, order, end = min(moments, key=lambda each: each[:2])
        self.now = max(self.now, moment)
        if order < 2:
            _arrival, data = end.inbox.popleft()
            end.receive(data, self.now)
        else:
            end.link.handle_timeout(self.now)
        self._take(end)
        return True

    def drive(self, until: float | None = None) -> None:
        """Step until nothing is in transit. With ``until``, also run every timer up to that time.

        Raises:
            RuntimeError: The links do not come to rest.
        """
        for _ in range(STEPS_MAX):
            if not self.step(until):
                if until is not None:
                    self.now = max(self.now, until)
                return
        raise RuntimeError(f"two links did not come to rest in {STEPS_MAX} steps")

    def open(self) -> None:
        """Drive both links to the state OPEN, and discard the events so far."""
        self.drive()
        for end in (self.initiator, self.responder):
            assert end.link.state is LinkState.OPEN, end.events
            end.events.clear()
            end.written.clear()

    def _take(self, end: End) -> None:
        end.take()
        if self._confirms and end.link.state is LinkState.IDENTIFIED:
            end.link.confirm(self.now)
            end.take()


class NodeCores:
    """Several node cores and the connections between them, for tests of nodes. Dials complete at once; datagrams are lost.

    Attributes:
        now: The time.
        nodes: The nodes by address.
        events: The events of each node, by address.
        outcomes: The outcomes of each node's requests, by address.
        records: The number of records written by each node, by address.
        walls: Dials that fail silently: (dialling node, dialled address).
    """

    def __init__(self) -> None:
        self.now = 0.0
        self.nodes: dict[str, NodeCore] = {}
        self.events: dict[str, list[NodeEvent]] = {}
        self.outcomes: dict[str, list[tuple[object, bytes | IrisError]]] = {}
        self.records: dict[str, int] = {}
        self.walls: set[tuple[str, str]] = set()
        self.connections: list[tuple[tuple[str, End], tuple[str, End]]] = []

    def add(self, node: NodeCore, seeds: tuple[str, ...] = ()) -> None:
        """Add a node, start it, and drive all nodes until they rest."""
        address = node.info.addresses[0]
        self.nodes[address] = node
        self.events[address], self.outcomes[address], self.records[address] = [], [], 0
        node.start(self.now, seeds, (), beacons=False, complete=True)
        self.drive()

    def connect(self, dialler: str, address: str) -> tuple[End, End] | None:
        """Make a connection; return both ends, or None if the dial fails."""
        node, other = self.nodes[dialler], self.nodes.get(address)
        if (dialler, address) in self.walls:
            node.dial_failed(address, self.now)
            return None
        accepted = other.accepted(dialler.partition(":")[0], self.now) if other is not None else None
        if accepted is None:
            node.dial_failed(address, self.now, is_refused=True)
            return None
        ends = End(node.dialled(address, self.now)), End(accepted)
        self.connections.append(((dialler, ends[0]), (address, ends[1])))
        return ends

    def cut(self, one: str, other: str) -> None:
        """Break every connection between two nodes. Bytes in transit are lost."""
        for ends in self.connections:
            if {address for address, _end in ends} == {one, other}:
                for _address, end in ends:
                    end.inbox.clear()
                    end.inbox.append((self.now, None))
                    end.is_ended = True

    def step(self) -> bool:
        """Flush every node, then deliver all bytes under way; return False if nothing moved."""
        moved = False
        for address, node in self.nodes.items():
            moved |= self._flush(address, node)
        for ends in list(self.connections):
            for address, end in ends:
                while end.arrives_at() is not None:
                    moved = True
                    end.receive(end.inbox.popleft()[1], self.now)
                    self.nodes[address].link_received(end.link, self.now)
            if all(end.is_ended and not end.inbox for _address, end in ends):
                self.connections.remove(ends)
        return moved

    def drive(self) -> None:
        """Step until nothing moves, without advancing the time.

        Raises:
            RuntimeError: The nodes do not come to rest.
        """
        for _ in range(STEPS_MAX):
            if not self.step():
                return
        raise RuntimeError(f"the nodes did not come to rest in {STEPS_MAX} steps")

    def drive_until(self, until: float) -> None:
        """Advance the time, and drive all nodes through every timer up to then."""
        for _ in range(STEPS_MAX):
            self.drive()
            deadlines = [deadline for node in self.nodes.values() if (deadline := node.deadline()) is not None]
            if not deadlines or min(deadlines) > until:
                self.now = max(self.now, until)
                return
            self.now = max(self.now, min(deadlines))
            for node in self.nodes.values():
                node.handle_timeout(self.now)
        raise RuntimeError(f"the timers did not reach {until} s in {STEPS_MAX} steps")

    def _flush(self, address: str, node: NodeCore) -> bool:
        node.flush(self.now)
        links = node.links_to_flush()
        for ends in list(self.connections):
            for (here, end), (_there, far) in (ends, ends[::-1]):
                if here == address and end.link in links:
                    self._write(address, node, end, far)
        node.datagrams_to_send()
        outcomes, events = node.outcomes_received(), node.events_received()
        self.outcomes[address] += outcomes
        self.events[address] += events
        for event in events:
            if isinstance(event, DialRequested):
                self.connect(address, event.address)
        return bool(links or outcomes or events)

    def _write(self, address: str, node: NodeCore, end: End, far: End) -> None:
        while not end.is_ended:
            sent = end.link.records()[1]
            data = end.link.data_to_send(BUDGET_BYTES)
            if not data:
                break
            self.records[address] += end.link.records()[1] - sent
            end.written += map(bytes, data)
            far.inbox.append((self.now, b"".join(data)))
        if end.link.events:
            node.link_received(end.link, self.now)
        if end.link.state is LinkState.CLOSED and not end.is_ended:
            end.is_ended = True
            far.inbox.append((self.now, None))
