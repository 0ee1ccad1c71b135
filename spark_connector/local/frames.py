"""The frames between an executor's agent and the tasks beside it, and the messages in them (docs/design.md 14).

A frame is ``PREFIX``, a header of msgpack that says what it is, and a payload as it is. There is no input or output here.
"""

from __future__ import annotations

import struct
from typing import Any, Final, TypeAlias

import msgspec

import iris_py
from iris_py import Answers, IrisError, Member, NoMembers, NotConnected, TooManyMembersLost

__all__ = [
    "HEADER_BYTES_MAX",
    "HELLO",
    "MAGIC",
    "REPLY_HEADER_BYTES_MAX",
    "REPLY_PAYLOAD_BYTES_MAX",
    "TAKEN_BYTES_MAX",
    "TAKEN_MESSAGES_MAX",
    "VERSION",
    "AskHealth",
    "Broadcast",
    "Cancel",
    "Close",
    "Clouds",
    "Command",
    "Delivered",
    "Failed",
    "Frame",
    "FrameReader",
    "Look",
    "MalformedFrame",
    "Members",
    "Nodes",
    "Publish",
    "RecentEvents",
    "Request",
    "Returned",
    "Statistics",
    "Subscribe",
    "Surroundings",
    "Survey",
    "Take",
    "Taken",
    "Welcome",
    "command_decoder",
    "encode_frame",
    "error_of",
    "failed",
    "header_of",
    "reply_decoder",
]

#: Each side begins with these bytes and the version that it speaks.
MAGIC: Final = b"iris-nod"
#: Of everything below. It grows with each change, for who has another one understands nothing of it.
VERSION: Final = 5
HELLO: Final = struct.Struct(">8sB")

#: number of the call, bytes of the header, bytes of the payload
PREFIX: Final = struct.Struct(">QII")

#: The largest header that a task sends. What can be large in it are the headers of a message, 4 KiB, and the key of a request.
HEADER_BYTES_MAX: Final = 64 * 1024
#: The largest header that an agent sends: a survey of the largest cluster that a directory holds names 100,000 members.
REPLY_HEADER_BYTES_MAX: Final = 64 * 1024 * 1024
#: How much of a stream one frame takes along, in messages and in bytes of payload; the last message may go beyond it. One
#: frame for every message would cost a change of processes for each; much more would wait outside the bounds of the queue.
TAKEN_MESSAGES_MAX: Final = 256
TAKEN_BYTES_MAX: Final = 1024 * 1024
#: The largest payload that an agent sends: such a part of a stream, with a message of the largest size that any node may send.
REPLY_PAYLOAD_BYTES_MAX: Final = TAKEN_BYTES_MAX + 64 * 1024 * 1024

#: The longest text of an error, as for errors between nodes.
TEXT_MAX: Final = 4096

#: Number of the call, header, payload.
Frame: TypeAlias = tuple[int, bytes, bytes]


class MalformedFrame(Exception):
    """A frame that is none, or too large; nothing after it can be understood."""


# -- what a task sends. What the user has given is Any: it is for the node to refuse, with its own errors.


class Request(msgspec.Struct, array_like=True, tag=1):
    """Ask one member; the payload is the request."""

    cluster: Any
    timeout: Any
    idempotent: Any
    key: Any
    prefer: Any
    require: Any
    headers: Any
    on_full: Any = "wait"
    retry_failed: Any = False
    seal: tuple[str, str | None] | None = None
    """The secret as text, and the name; the socket is open to the user of both processes alone."""
    retry: Any = None
    """The fields of an :class:`iris_py.Retry`."""
    wait_for_members: Any = None


class Broadcast(msgspec.Struct, array_like=True, tag=2):
    """Tell all members; the payload is the message."""

    cluster: Any
    headers: Any


class Publish(msgspec.Struct, array_like=True, tag=3):
    """Tell all subscribers; the payload is the message."""

    topic: Any
    headers: Any
    waits: bool


class Survey(msgspec.Struct, array_like=True, tag=4):
    """Ask all members; the payload is the question. The call becomes a stream of replies."""

    cluster: Any
    timeout: Any
    stop_after: Any
    headers: Any
    seal: tuple[str, str | None] | None = None
    """As of :class:`Request`."""


class Subscribe(msgspec.Struct, array_like=True, tag=5):
    """Subscribe. The call becomes a stream of messages."""

    pattern: Any
    policy: Any
    queue_messages: Any
    queue_bytes: Any


class Take(msgspec.Struct, array_like=True, tag=6):
    """Take what a stream has, or wait for the first of it; None: for ever."""

    stream: int
    timeout: float | None


class Close(msgspec.Struct, array_like=True, tag=7):
    """End a stream."""

    stream: int


class Look(msgspec.Struct, array_like=True, tag=8):
    """See how a stream is, and take nothing."""

    stream: int


class Members(msgspec.Struct, array_like=True, tag=9):
    """See who is in a cluster."""

    cluster: Any
    waits: bool


class Nodes(msgspec.Struct, array_like=True, tag=10):
    """See which nodes the agent knows."""


class Statistics(msgspec.Struct, array_like=True, tag=11):
    """See what the node of the agent has done."""


class Cancel(msgspec.Struct, array_like=True, tag=12):
    """Nobody waits any more for the call of this number. There is no answer."""


class Surroundings(msgspec.Struct, array_like=True, tag=13):
    """See how large the network is, and which seeds do not answer."""


class Clouds(msgspec.Struct, array_like=True, tag=14):
    """See which other clouds the gateways know."""

    timeout: Any


class RecentEvents(msgspec.Struct, array_like=True, tag=15):
    """See what has happened at the node of the agent."""

    since: Any


class AskHealth(msgspec.Struct, array_like=True, tag=16):
    """See whether the node of the agent is to be given work."""

    cluster: Any


Command: TypeAlias = (
    Request
    | Broadcast
    | Publish
    | Survey
    | Subscribe
    | Take
    | Close
    | Look
    | Members
    | Nodes
    | Statistics
    | Cancel
    | Surroundings
    | Clouds
    | RecentEvents
    | AskHealth
)


# -- what an agent sends


class Returned(msgspec.Struct, array_like=True, tag=1):
    """A call has ended well; the payload is the reply of a request."""

    value: Any = None


class Failed(msgspec.Struct, array_like=True, tag=2):
    """A call has failed."""

    kind: str
    text: str
    attributes: dict[str, Any]


class Delivered(msgspec.Struct, array_like=True):
    """One message of a subscription, but for its payload."""

    source: str
    sequence: int
    topic: str
    gap: int
    headers: dict[str, Any]
    cloud: str = ""


class Taken(msgspec.Struct, array_like=True, tag=3):
    """Part of a stream. Its payloads stand one after the other in that of the frame.

    Attributes:
        sizes: The size of each payload.
        messages: Of a subscription: what else there is to each.
        members: Of a survey: who sent each.
        is_over: Whether there will never be more.
        answers: Of a survey: what became of everybody else.
    """

    sizes: list[int]
    messages: list[Delivered] = []
    members: list[Member] = []
    is_over: bool = False
    answers: Answers | None = None


class Welcome(msgspec.Struct, array_like=True, tag=4):
    """The node of the agent, and how much this connection may ask at once; the first frame, of call 0."""

    id: str
    name: str
    address: str
    zone: str
    network: str
    max_message_bytes: int
    in_flight_max: int
    in_flight_bytes_max: int


Reply: TypeAlias = Returned | Failed | Taken | Welcome

command_decoder: Final[msgspec.msgpack.Decoder[Command]] = msgspec.msgpack.Decoder(Command)
reply_decoder: Final[msgspec.msgpack.Decoder[Reply]] = msgspec.msgpack.Decoder(Reply)
_encoder: Final = msgspec.msgpack.Encoder()


def header_of(message: Command | Reply) -> bytes:
    """Return the header that says this.

    Raises:
        TypeError: The user has given something that is no value.
        OverflowError: Or a number of more than 64 bits.
        UnicodeEncodeError: Or text that is none.
    """
    return _encoder.encode(message)


def encode_frame(number: int, header: bytes, payload_bytes: int) -> bytes:
    """Return a frame up to its payload, which is sent after it without being copied."""
    return PREFIX.pack(number, len(header), payload_bytes) + header


class FrameReader:
    """Cuts a stream of bytes into frames, however it is chunked. Large payloads are copied once.

    Args:
        header_bytes_max: The largest header that is accepted.
        payload_bytes_max: The largest payload.
    """

    def __init__(self, header_bytes_max: int, payload_bytes_max: int) -> None:
        self._header_bytes_max = header_bytes_max
        self._payload_bytes_max = payload_bytes_max
        self._rest = b""  # a frame that has begun, not yet with the whole header
        self._begun: tuple[int, bytes] | None = None  # one whose payload is under way
        self._chunks: list[bytes] = []
        self._missing = 0

    def feed(self, data: bytes) -> list[Frame]:
        """Take bytes; return the frames that they complete, in order.

        Raises:
            MalformedFrame: They are not such.
        """
        frames: list[Frame] = []
        offset = 0
        if self._begun is not None:
            offset = self._missing
            self._chunks.append(data if len(data) <= offset else data[:offset])
            self._missing -= len(self._chunks[-1])
            if self._missing:
                return frames
            frames.append((*self._begun, b"".join(self._chunks)))
            self._begun, self._chunks = None, []
        elif self._rest:
            data, self._rest = self._rest + data, b""
        while len(data) - offset >= PREFIX.size:
            number, header_bytes, payload_bytes = PREFIX.unpack_from(data, offset)
            if header_bytes > self._header_bytes_max or payload_bytes > self._payload_bytes_max:
                raise MalformedFrame(f"a frame of {header_bytes} and {payload_bytes} bytes")
            middle = offset + PREFIX.size + header_bytes
            end = middle + payload_bytes
            if end <= len(data):
                frames.append((number, data[offset + PREFIX.size : middle], data[middle:end]))
                offset = end
            elif middle <= len(data):
                self._begun = number, data[offset + PREFIX.size : middle]
                self._chunks.append(data[middle:])
                self._missing = end - len(data)
                return frames
            else:
                break
        self._rest = data[offset:]
        return frames


# -- errors

_PLAIN = (str, int, float, bool, type(None))
#: What else a node raises about arguments.
_BUILTINS: Final = {"TypeError": TypeError, "ValueError": ValueError}


def failed(error: Exception) -> Failed:
    """Describe an error: its nearest public type, its text, its attributes."""
    attributes = {name: _printable(value) for name, value in vars(error).items() if isinstance(value, _PLAIN)}
    if isinstance(error, TooManyMembersLost):
        attributes["members"] = list(error.members)
    if isinstance(error, NoMembers | NotConnected):
        attributes["seeds"] = {_printable(seed): _printable(reason) for seed, reason in error.seeds.items()}
        attributes["strangers"] = [_printable(host) for host in error.strangers]
    for kind in type(error).__mro__:
        if _public(kind.__name__) is kind:
            return Failed(kind.__name__, _printable(str(error)), attributes)
    if type(error).__name__ in _BUILTINS:
        return Failed(type(error).__name__, _printable(str(error)), {})
    return Failed("IrisError", _printable(f"the agent failed with {type(error).__qualname__}: {error}"), {})


def error_of(failure: Failed) -> Exception:
    """Return the error that was described; an :exc:`~iris_py.IrisError` if it is of no known type."""
    if failure.kind in _BUILTINS:
        return _BUILTINS[failure.kind](failure.text)
    kind = _public(failure.kind) or IrisError
    error = kind.__new__(kind)  # the text is there already: to make it again needs what it is made of
    error.args = (failure.text,)
    vars(error).update(failure.attributes)
    if isinstance(error, NoMembers | NotConnected):
        error.strangers = tuple(error.strangers)
    if isinstance(error, TooManyMembersLost):
        error.members = tuple(error.members)
    return error


def _public(name: str) -> type[IrisError] | None:
    kind = getattr(iris_py, name, None)
    return kind if isinstance(kind, type) and issubclass(kind, IrisError) else None


def _printable(value: Any) -> Any:  # noqa: ANN401 - what is no text stays as it is
    """Return a text such that it can be sent, which that of an error need not be."""
    return value[:TEXT_MAX].encode(errors="replace").decode() if isinstance(value, str) else value
