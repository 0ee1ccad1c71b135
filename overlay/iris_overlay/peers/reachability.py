"""Reachability of this node: whether datagrams return, and whether other nodes can dial it.

Traffic does not need this; it serves an owner in search of a fault. An **echo** is a datagram of a chosen size, returned by the
peer. It shows whether datagrams, including large ones, pass in both directions. A **dial check** asks a node to dial the
addresses of this one despite an existing link, and to report the outcomes. Only another node can show the effect of a firewall,
or of an address unusable elsewhere.

::

    EchoRequest  [68, number, sender, target, padding]    a datagram
    EchoReply    [69, number, responder, padding]         a datagram, no larger than its echo

Payloads through the ring begin with their own byte, as in `dial_back`: CHECK_DIAL without content, and the answer DIAL_CHECKED
with a list of addresses and outcomes.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Annotated, Final, TypeAlias

import msgspec
from msgspec import Meta

from iris_overlay.errors import MessageError
from iris_overlay.events import DialChecked, DialOutcome, DialRequested, EchoReturned
from iris_overlay.ids import ID_BYTES, NodeId
from iris_overlay.node_info import ADDRESS_LENGTH_MAX, DATAGRAM_BYTES_MAX, NodeInfo
from iris_overlay.peers.addresses import canonical_address
from iris_overlay.peers.liveness import is_loopback
from iris_overlay.timers import DeadlineTable

if TYPE_CHECKING:
    from iris_overlay.events import Counters, Event
    from iris_overlay.peers.hearsay import Hearsay
    from iris_overlay.peers.vantage import Vantage
    from iris_overlay.ring.pastry import Pastry

#: The smallest echo: a number, two ids, and their headers.
ECHO_BYTES_MIN: Final = 64

#: The largest echo: as the largest beacon, which is the largest datagram of a node.
ECHO_BYTES_MAX: Final = DATAGRAM_BYTES_MAX

#: The largest number of addresses of a node dialled in one check. Too small: a node with many networks learns about few. Too
#: large: an insider makes others dial that number of addresses of its choice.
ADDRESSES_CHECKED_MAX: Final = 4

#: The largest number of concurrent checks; more are refused. Too small: many simultaneous requests fail. Too large: dials, four
#: for each.
CHECKS_MAX: Final = 8

#: The largest number of checks begun within a second. Too small: many simultaneous requests fail. Too large: an insider with
#: many ids makes others flood an address of its choice with dials; without a bound, as often as they are refused.
CHECKS_PER_S_MAX: Final = 8

#: The time after which a check without reports from the owner is discarded. Above every time-out of a dial.
CHECK_FORGOTTEN_S: Final = 15.0

#: The time after which a check dials an address again that rested. Too small: look-ups of a name whose address still rests; too
#: large: a check of several names of one host takes long.
REST_S: Final = 0.5

#: The time after which an address that still rests is left out of the answer. Too small: a node learns about few of several
#: names of one host; too large: the node no longer waits for the answer, and the check takes the place of others.
RESTING_S: Final = 2.5

#: The largest number of requested checks remembered until their answer; other answers are ignored. Too small: answers to many
#: requests are ignored; too large: memory.
ASKED_MAX: Final = 64

NUMBER_MAX: Final = (1 << 32) - 1

# The first byte of payloads through the ring; see `dial_back` for the others.
CHECK_DIAL: Final = b"\x02"
DIAL_CHECKED: Final = b"\x03"

_NodeId: TypeAlias = Annotated[NodeId, Meta(min_length=ID_BYTES, max_length=ID_BYTES)]
_Number: TypeAlias = Annotated[int, Meta(ge=0, le=NUMBER_MAX)]
_Padding: TypeAlias = Annotated[bytes, Meta(max_length=ECHO_BYTES_MAX)]


class EchoRequest(msgspec.Struct, frozen=True, array_like=True, tag=68, gc=False):
    """Ask a node to return a datagram of the same size."""

    number: _Number
    """The number for the reply."""
    sender: _NodeId
    """The requesting node."""
    target: _NodeId
    """The requested node. Another process may have its address by now, and must not answer for it."""
    padding: _Padding
    """The padding for the reply."""


class EchoReply(msgspec.Struct, frozen=True, array_like=True, tag=69, gc=False):
    """Answer an echo with the same number and padding."""

    number: _Number
    """The number of the echo."""
    responder: _NodeId
    """The answering node."""
    padding: _Padding
    """The padding of the echo."""


class _EchoOutcome(msgspec.Struct, frozen=True, array_like=True):
    address: Annotated[str, Meta(min_length=1, max_length=ADDRESS_LENGTH_MAX, pattern=r"\A[!-~]+\Z")]
    outcome: DialOutcome


EchoMessage: TypeAlias = EchoRequest | EchoReply

_ENCODER = msgspec.msgpack.Encoder()
_DECODER: msgspec.msgpack.Decoder[EchoMessage] = msgspec.msgpack.Decoder(EchoMessage)
_OUTCOMES_DECODER = msgspec.msgpack.Decoder(Annotated[list[_EchoOutcome], Meta(max_length=ADDRESSES_CHECKED_MAX)])
_TAGS: Final = frozenset((68, 69))

# Besides its own errors, the decoder passes on Python's errors for bad UTF-8 (a ValueError) and for deep nesting.
_DECODE_ERRORS = (msgspec.MsgspecError, ValueError, RecursionError)


class _DialCheck(msgspec.Struct):
    """The state of a dial check: the addresses of a node that asked to be dialled."""

    begun_at: float
    outcomes: dict[str, DialOutcome | None]
    """The outcome of the dial of each address; None while the dial is running."""


def is_echo(data: bytes) -> bool:
    """Return whether an authentic datagram is an echo or its reply; it may be malformed."""
    return len(data) > 1 and data[1] in _TAGS


def encode_echo(message: EchoMessage) -> bytes:
    """Encode an echo or its reply."""
    return _ENCODER.encode(message)


def decode_echo(data: bytes) -> EchoMessage:
    """Decode an echo or its reply.

    Raises:
        MessageError: The bytes are no echo or reply, or exceed a bound.
    """
    if len(data) > ECHO_BYTES_MAX:
        raise MessageError(f"an echo of {len(data)} bytes exceeds {ECHO_BYTES_MAX}")
    try:
        return _DECODER.decode(data)
    except _DECODE_ERRORS as exc:
        raise MessageError(f"not a valid echo: {exc}") from exc


class Reachability:
    """Ask other nodes for echoes and dial checks of this node, and serve the same requests of others.

    Attributes:
        datagrams: The datagrams to send, with their addresses, for the owner to take.
        requests: The dials to make, for the owner to take.
        events: The events, for the owner to take.
    """

    def __init__(self, local: NodeInfo, ring: Pastry, counters: Counters, vantage: Vantage, hearsay: Hearsay) -> None:
        """Create the component, without requests.

        Args:
            local: The node itself.
            ring: Carries questions and answers.
            counters: The counters of drops.
            vantage: Chooses among the addresses of a node.
            hearsay: Bounds the dials of unproven addresses.
        """
        self.datagrams: list[tuple[tuple[str, int] | None, bytes]] = []
        self.requests: list[DialRequested] = []
        self.events: list[Event] = []
        self._local = local
        self._ring = ring
        self._counters = counters
        self._vantage = vantage
        self._hearsay = hearsay
        self._number = 0
        self._asked: dict[NodeId, None] = {}
        self._second_began = -inf
        self._begun = 0  # within that second
        self._checks: dict[NodeId, _DialCheck] = {}  # by the requesting node, the oldest first
        self._again: DeadlineTable[str] = DeadlineTable()  # addresses that rest

    # Commands

    def echo(self, info: NodeInfo, size: int) -> int | None:
        """Send a datagram to be returned; `EchoReturned` follows, unless it is lost.

        Args:
            info: The node to ask.
            size: Bytes before encryption, ECHO_BYTES_MIN to ECHO_BYTES_MAX; the datagram may be a byte smaller.

        Returns:
            The number of the event; None if the node has no numeric address.
        """
        address = self._vantage.datagram_address(info)
        if address is None:
            return None
        self._number = number = (self._number + 1) & NUMBER_MAX
        empty = len(encode_echo(EchoRequest(number, self._local.id, info.id, b"")))
        room = min(size, ECHO_BYTES_MAX) - empty
        padding = bytes(max(0, room - (room > 0xFF)))  # a long padding has a longer header
        self.datagrams.append((address, encode_echo(EchoRequest(number, self._local.id, info.id, padding))))
        return number

    def check_dial(self, peer: NodeId, now: float) -> None:
        """Ask a node to dial this one. `DialChecked` follows, unless a message is lost."""
        self._asked.pop(peer, None)
        self._asked[peer] = None
        if len(self._asked) > ASKED_MAX:
            del self._asked[next(iter(self._asked))]
        self._ring.send(NodeInfo(peer, ()), CHECK_DIAL, now)

    # Inputs

    def receive_datagram(self, sender: NodeId, data: bytes, source: tuple[str, int]) -> None:
        """Answer an echo of an authenticated node, or report the reply to an echo of the local node."""
        try:
            message = decode_echo(data)
        except MessageError:
            self._counters.datagrams_invalid += 1
            return
        if isinstance(message, EchoRequest):
            if message.sender != sender or message.target != self._local.id:
                self._counters.datagrams_invalid += 1
                return
            self.datagrams.append((source, encode_echo(EchoReply(message.number, self._local.id, message.padding))))
        elif message.responder != sender:
            self._counters.datagrams_invalid += 1
        else:
            self.events.append(EchoReturned(sender, message.number))

    def received(self, source: NodeInfo, payload: bytes, now: float) -> bool:
        """Begin a requested dial check, or report the outcomes of an own one; return False for other payloads."""
        kind = payload[:1]
        if kind == CHECK_DIAL:
            self._begin_check(source, now)
        elif kind == DIAL_CHECKED:
            self._receive_outcomes(source.id, payload[1:])
        else:
            return False
        return True

    def undeliverable(self, payload: bytes) -> bool:
        """Return whether an undeliverable payload concerns a dial check, of which the requesting node gets no reply."""
        return payload[:1] in (CHECK_DIAL, DIAL_CHECKED)

    def dial_failed(self, address: str, now: float, *, is_refused: bool, is_broken: bool) -> None:
        """Note a failed dial, of any component, as an outcome for the running checks of its address."""
        if self._checks:
            outcome = DialOutcome.BROKEN if is_broken else DialOutcome.REFUSED if is_refused else DialOutcome.SILENT
            for asker in list(self._checks):
                self._note(asker, address, outcome, now)

    def dial_rested(self, address: str, now: float) -> None:
        """Dial an address that rests again later, for the running checks of the address; give up after `RESTING_S`."""
        for asker in self._askers(address):
            check = self._checks[asker]
            if now + REST_S - check.begun_at <= RESTING_S:
                self._again.set(address, now + REST_S)
            else:
                del check.outcomes[address]
                self._maybe_answer(asker, now)

    def dial_succeeded(self, address: str, peer: NodeId, now: float) -> None:
        """Note the node reached by a dial, of any component, as an outcome for the running checks of its address."""
        for asker in list(self._checks):
            self._note(asker, address, DialOutcome.REACHED if peer == asker else DialOutcome.ANOTHER, now)

    # Time

    def handle_timeout(self, now: float) -> None:
        """Dial the addresses whose pause has ended; harmless if early."""
        for address in self._again.expired(now):
            self.requests += [DialRequested(address, asker) for asker in self._askers(address)[:1]]

    def deadline(self) -> float | None:
        """Return the earliest time to call `handle_timeout`, or None."""
        return self._again.deadline()

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
        # On loopback an address means another node on each machine, so a dial from here would prove nothing.
        is_elsewhere = is_loopback(source) and not is_loopback(self._local)
        spelled = (canonical_address(each) for each in source.addresses)
        dialable = list(dict.fromkeys(each for each in spelled if each is not None and each not in self._local.addresses))
        wanted = [] if is_elsewhere else dialable[:ADDRESSES_CHECKED_MAX]
        hearsay = self._hearsay
        hearsay.note(source.id)
        addresses = [each for each in wanted if hearsay.is_proven(source.id, each) or hearsay.charge(source.id, now)]
        if wanted and not addresses:
            self._counters.dial_checks_refused += 1
            return
        self._begun += 1
        checks[source.id] = _DialCheck(now, dict.fromkeys(addresses))
        # Not even proven addresses are exempt from the owner's bound: a check is made on request, and as often as requested.
        self.requests += [DialRequested(address, source.id) for address in addresses]
        self._maybe_answer(source.id, now)

    def _askers(self, address: str) -> list[NodeId]:
        """Return the nodes whose running checks wait for the outcome of an address."""
        return [node for node, check in self._checks.items() if address in check.outcomes and check.outcomes[address] is None]

    def _note(self, asker: NodeId, address: str, outcome: DialOutcome, now: float) -> None:
        outcomes = self._checks[asker].outcomes
        if address in outcomes and outcomes[address] is None:
            outcomes[address] = outcome
            self._again.cancel(address)
            self._maybe_answer(asker, now)

    def _maybe_answer(self, asker: NodeId, now: float) -> None:
        outcomes = self._checks[asker].outcomes
        said = [_EchoOutcome(address, outcome) for address, outcome in outcomes.items() if outcome is not None]
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
