"""Finding out whether this node is reached: whether datagrams come back, and whether others can dial it.

Nobody needs that for traffic: it is for the owner who looks for a fault. An **echo** is a datagram of a chosen size that comes
back as it was, so it shows whether datagrams pass in both directions, and whether large ones do. A **dial check** asks a node,
through the ring or over a link, to dial the addresses of this one although there is a link already, and to say what came of it:
only who is elsewhere can tell what a firewall, or an address that others cannot use, makes of a dial.

::

    Echo       [68, number, sender, target, padding]    a datagram
    EchoReply  [69, number, responder, padding]         a datagram, no larger than what it answers

What goes through the ring begins with a byte of its own, as in `dial_back`: CHECK_DIAL and nothing else, and the answer
DIAL_CHECKED with a list of an address and an outcome each.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Annotated, Final, TypeAlias

import msgspec
from msgspec import Meta

from iris_overlay.errors import MessageError
from iris_overlay.events import DialChecked, DialOutcome, DialRequested, EchoReturned
from iris_overlay.ids import ID_BYTES, NodeId
from iris_overlay.messages import ADDRESS_LENGTH_MAX, DATAGRAM_BYTES_MAX, NodeInfo
from iris_overlay.peers.addresses import canonical_address
from iris_overlay.peers.liveness import is_loopback

if TYPE_CHECKING:
    from iris_overlay.counters import Counters
    from iris_overlay.events import Event
    from iris_overlay.peers.vantage import Vantage
    from iris_overlay.ring.pastry import Pastry

#: The smallest echo: a number, two ids, and their headers.
ECHO_BYTES_MIN: Final = 64

#: The largest: as the largest beacon, which is the largest datagram that a node sends.
ECHO_BYTES_MAX: Final = DATAGRAM_BYTES_MAX

#: Addresses of one node that are dialled for it. Too small: a node with many networks learns of few. Too large: an insider
#: makes others dial as many addresses of its choice.
ADDRESSES_CHECKED_MAX: Final = 4

#: Nodes that are dialled for at once; who asks beyond it is not answered. Too small: many who look for faults at once wait in
#: vain. Too large: dials, four of each.
CHECKS_MAX: Final = 8

#: Nodes that are dialled for within a second. Too small: likewise. Too large: an insider, who may take on any number of ids,
#: makes others hammer an address of its choice; without a bound, as often as dials to it are refused.
CHECKS_PER_S_MAX: Final = 8

#: After so long a check whose dials the owner never reported on makes room. More than every time-out of a dial.
CHECK_FORGOTTEN_S: Final = 15.0

#: Answers to a check that was not asked for are ignored; checks whose answer is waited for are remembered up to here.
ASKED_MAX: Final = 64

NUMBER_MAX: Final = (1 << 32) - 1

# The first byte of what is sent through the ring; see `dial_back` for the others.
CHECK_DIAL: Final = b"\x02"
DIAL_CHECKED: Final = b"\x03"

_NodeId: TypeAlias = Annotated[NodeId, Meta(min_length=ID_BYTES, max_length=ID_BYTES)]
_Number: TypeAlias = Annotated[int, Meta(ge=0, le=NUMBER_MAX)]
_Padding: TypeAlias = Annotated[bytes, Meta(max_length=ECHO_BYTES_MAX)]


class Echo(msgspec.Struct, frozen=True, array_like=True, tag=68, gc=False):
    """Ask for a datagram of the same size."""

    number: _Number
    """Repeated in the reply."""
    sender: _NodeId
    """The node that asks."""
    target: _NodeId
    """The node that is asked. Another process may have its address by now, and must not answer for it."""
    padding: _Padding
    """Repeated in the reply."""


class EchoReply(msgspec.Struct, frozen=True, array_like=True, tag=69, gc=False):
    """Answer an echo."""

    number: _Number
    """That of the echo."""
    responder: _NodeId
    """The node that answers."""
    padding: _Padding
    """That of the echo."""


class _Outcome(msgspec.Struct, frozen=True, array_like=True):
    address: Annotated[str, Meta(min_length=1, max_length=ADDRESS_LENGTH_MAX, pattern=r"\A[!-~]+\Z")]
    outcome: DialOutcome


EchoMessage: TypeAlias = Echo | EchoReply

_ENCODER = msgspec.msgpack.Encoder()
_DECODER: msgspec.msgpack.Decoder[EchoMessage] = msgspec.msgpack.Decoder(EchoMessage)
_OUTCOMES_DECODER = msgspec.msgpack.Decoder(Annotated[list[_Outcome], Meta(max_length=ADDRESSES_CHECKED_MAX)])
_TAGS: Final = frozenset((68, 69))

# Besides its own errors, the decoder lets through what Python raises for bad UTF-8 (a ValueError) and for deep nesting.
_DECODE_ERRORS = (msgspec.MsgspecError, ValueError, RecursionError)


class _Check(msgspec.Struct):
    """A node that this one dials for it to know what comes of that."""

    begun_at: float
    outcomes: dict[str, DialOutcome | None]
    """By address; None while its dial is under way."""


def is_echo(data: bytes) -> bool:
    """Return whether an authentic datagram is an echo or its reply; it may be malformed nevertheless."""
    return len(data) > 1 and data[1] in _TAGS


def encode_echo(message: EchoMessage) -> bytes:
    """Write a datagram."""
    return _ENCODER.encode(message)


def decode_echo(data: bytes) -> EchoMessage:
    """Read a datagram.

    Raises:
        MessageError: The bytes are no such datagram, or break a bound.
    """
    if len(data) > ECHO_BYTES_MAX:
        raise MessageError(f"an echo of {len(data)} bytes exceeds {ECHO_BYTES_MAX}")
    try:
        return _DECODER.decode(data)
    except _DECODE_ERRORS as exc:
        raise MessageError(f"no valid echo: {exc}") from exc


class Reachability:
    """Ask others to answer by datagram and to dial, and do both for others.

    Attributes:
        datagrams: Those to send, each with its address, for the owner to take.
        requests: Dials to make, likewise.
        events: What happened, likewise.
    """

    def __init__(self, local: NodeInfo, ring: Pastry, counters: Counters, vantage: Vantage) -> None:
        """Know nobody.

        Args:
            local: The node itself.
            ring: Carries questions and answers.
            counters: Where to count what is dropped.
            vantage: Chooses among the addresses of a node.
        """
        self.datagrams: list[tuple[tuple[str, int] | None, bytes]] = []
        self.requests: list[DialRequested] = []
        self.events: list[Event] = []
        self._local = local
        self._ring = ring
        self._counters = counters
        self._vantage = vantage
        self._number = 0
        self._asked: dict[NodeId, None] = {}
        self._second_began = -inf
        self._begun = 0  # within that second
        self._checks: dict[NodeId, _Check] = {}  # by the node that asked, the oldest first

    # Commands

    def echo(self, info: NodeInfo, size: int) -> int | None:
        """Send a datagram that comes back; `EchoReturned` follows, or nothing.

        Args:
            info: The node to ask.
            size: Bytes before sealing, ECHO_BYTES_MIN to ECHO_BYTES_MAX; or a byte less.

        Returns:
            The number of the event; None if the node has no numeric address.
        """
        address = self._vantage.datagram_address(info)
        if address is None:
            return None
        self._number = number = (self._number + 1) & NUMBER_MAX
        empty = len(encode_echo(Echo(number, self._local.id, info.id, b"")))
        room = min(size, ECHO_BYTES_MAX) - empty
        padding = bytes(max(0, room - (room > 0xFF)))  # a long one has a longer header
        self.datagrams.append((address, encode_echo(Echo(number, self._local.id, info.id, padding))))
        return number

    def check_dial(self, peer: NodeId, now: float) -> None:
        """Ask a node to dial this one. `DialChecked` follows, or nothing."""
        self._asked.pop(peer, None)
        self._asked[peer] = None
        if len(self._asked) > ASKED_MAX:
            del self._asked[next(iter(self._asked))]
        self._ring.send(NodeInfo(peer, ()), CHECK_DIAL, now)

    # Inputs

    def receive_datagram(self, sender: NodeId, data: bytes, source: tuple[str, int]) -> None:
        """Handle an echo or a reply, which a node surely sent."""
        try:
            message = decode_echo(data)
        except MessageError:
            self._counters.datagrams_invalid += 1
            return
        if isinstance(message, Echo):
            if message.sender != sender or message.target != self._local.id:
                self._counters.datagrams_invalid += 1
                return
            self.datagrams.append((source, encode_echo(EchoReply(message.number, self._local.id, message.padding))))
        elif message.responder != sender:
            self._counters.datagrams_invalid += 1
        else:
            self.events.append(EchoReturned(sender, message.number))

    def received(self, source: NodeInfo, payload: bytes, now: float) -> bool:
        """Handle what came through the ring or over a link; return False if it is for somebody else."""
        kind = payload[:1]
        if kind == CHECK_DIAL:
            self._begin_check(source, now)
        elif kind == DIAL_CHECKED:
            self._receive_outcomes(source.id, payload[1:])
        else:
            return False
        return True

    def undeliverable(self, payload: bytes) -> bool:
        """Handle that the ring gave something up; return False if it is somebody else's. Who asked waits in vain, and knows."""
        return payload[:1] in (CHECK_DIAL, DIAL_CHECKED)

    def dial_failed(self, address: str, now: float, *, is_refused: bool, is_broken: bool) -> None:
        """Handle that a dial came to nothing, whoever wanted it."""
        if self._checks:
            outcome = DialOutcome.BROKEN if is_broken else DialOutcome.REFUSED if is_refused else DialOutcome.SILENT
            for asker in list(self._checks):
                self._note(asker, address, outcome, now)

    def dial_succeeded(self, address: str, peer: NodeId, now: float) -> None:
        """Handle that a dial reached a node, whoever wanted it."""
        for asker in list(self._checks):
            self._note(asker, address, DialOutcome.REACHED if peer == asker else DialOutcome.ANOTHER, now)

    # --

    def _begin_check(self, source: NodeInfo, now: float) -> None:
        checks = self._checks
        while checks and now - next(iter(checks.values())).begun_at > CHECK_FORGOTTEN_S:
            del checks[next(iter(checks))]
        if now - self._second_began >= 1.0:
            self._second_began, self._begun = now, 0
        if source.id in checks or len(checks) >= CHECKS_MAX or self._begun >= CHECKS_PER_S_MAX:
            self._counters.dial_checks_refused += 1
            return
        self._begun += 1
        # On loopback an address means another node on each machine: to dial it says nothing about theirs.
        is_elsewhere = is_loopback(source) and not is_loopback(self._local)
        spelled = (canonical_address(each) for each in source.addresses)
        dialable = [each for each in spelled if each is not None and each not in self._local.addresses]
        addresses = [] if is_elsewhere else dialable[:ADDRESSES_CHECKED_MAX]
        checks[source.id] = _Check(now, dict.fromkeys(addresses))
        self.requests += [DialRequested(address, source.id) for address in addresses]
        self._maybe_answer(source.id, now)

    def _note(self, asker: NodeId, address: str, outcome: DialOutcome, now: float) -> None:
        outcomes = self._checks[asker].outcomes
        if address in outcomes and outcomes[address] is None:
            outcomes[address] = outcome
            self._maybe_answer(asker, now)

    def _maybe_answer(self, asker: NodeId, now: float) -> None:
        outcomes = self._checks[asker].outcomes
        said = [_Outcome(address, outcome) for address, outcome in outcomes.items() if outcome is not None]
        if len(said) == len(outcomes):
            del self._checks[asker]
            self._ring.send(NodeInfo(asker, ()), DIAL_CHECKED + _ENCODER.encode(said), now)

    def _receive_outcomes(self, peer: NodeId, data: bytes) -> None:
        if peer not in self._asked:
            self._counters.messages_unexpected += 1
            return
        try:
            outcomes = _OUTCOMES_DECODER.decode(data)
        except _DECODE_ERRORS:
            self._counters.messages_invalid += 1
            return
        del self._asked[peer]
        self.events.append(DialChecked(peer, tuple((each.address, each.outcome) for each in outcomes)))
