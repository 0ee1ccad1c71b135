"""The frames between an executor's agent and the executor's tasks, and the messages in them (docs/design.md 14).

A frame is ``PREFIX``, a msgpack header with the message, and a raw payload. This module does no input or output.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

import msgspec

import iris_py
from iris_py import (
    Answers,
    Cloud,
    EventRecord,
    Health,
    IrisError,
    Member,
    NoMembers,
    NotConnected,
    Statistics,
    TooManyMembersLost,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "HEADER_BYTES_MAX",
    "HELLO",
    "MAGIC",
    "METHODS",
    "REPLY_HEADER_BYTES_MAX",
    "REPLY_PAYLOAD_BYTES_MAX",
    "TAKEN_BYTES_MAX",
    "TAKEN_MESSAGES_MAX",
    "VERSION",
    "CallFailed",
    "CallReturned",
    "Cancel",
    "Close",
    "Command",
    "Frame",
    "FrameReader",
    "LookCall",
    "MalformedFrame",
    "MembersCall",
    "MessageDelivered",
    "Method",
    "MethodCall",
    "RequestCall",
    "Subscribe",
    "SurveyCall",
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

#: The first bytes from each side, followed by its protocol version.
MAGIC: Final = b"iris-nod"
#: The protocol version. Increment it with every change: both sides must have the same version.
VERSION: Final = 6
HELLO: Final = struct.Struct(">8sB")

#: number of the call, bytes of the header, bytes of the payload
PREFIX: Final = struct.Struct(">QII")

#: The largest header that a task may send. Its large parts are the headers of a message, 4 KiB, and the key of a request.
HEADER_BYTES_MAX: Final = 64 * 1024
#: The largest header that an agent may send: a survey of the largest cluster in a directory names 100,000 members.
REPLY_HEADER_BYTES_MAX: Final = 64 * 1024 * 1024
#: Messages and payload bytes of a held call in one frame; the last message may exceed the limit. Too small: a frame per message
#: costs a process switch each; too large: many messages wait outside the bounds of the queue.
TAKEN_MESSAGES_MAX: Final = 256
TAKEN_BYTES_MAX: Final = 1024 * 1024
#: The largest payload that an agent may send: a part of a held call, with one message of the maximum size.
REPLY_PAYLOAD_BYTES_MAX: Final = TAKEN_BYTES_MAX + 64 * 1024 * 1024

#: The longest text of an error in a frame, as for errors between nodes.
TEXT_MAX: Final = 4096

#: A received frame: number of the call, header, payload.
Frame: TypeAlias = tuple[int, bytes, bytes]


class MalformedFrame(Exception):
    """A frame that is malformed or too large; the bytes after it cannot be understood."""


# -- messages of a task. The user's arguments are Any: the node checks them and raises its own errors.


class RequestCall(msgspec.Struct, array_like=True, tag=1):
    """A task's order to send a request to one member of a cluster. The frame's payload is the payload of the request."""

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
    """The secret as text, and the name. Only the user of both processes can open the socket."""
    retry: Any = None
    """The fields of an :class:`iris_py.Retry`."""
    wait_for_members: Any = None


class Method(NamedTuple):
    """A method or property of the node that tasks may use by its name."""

    result: Any
    """The type of the method's result."""
    arguments: tuple[str, ...] = ()
    """The names of the arguments tasks may give."""
    takes_payload: bool = False
    """Whether the payload of the frame is an argument, too."""


#: The methods and properties of the node that tasks may use by :class:`MethodCall`.
METHODS: Final[Mapping[str, Method]] = {
    "broadcast": Method(int, ("cluster", "headers"), takes_payload=True),
    "publish": Method(int, ("topic", "headers"), takes_payload=True),
    "try_publish": Method(int | None, ("topic", "headers"), takes_payload=True),
    "nodes": Method(tuple[Member, ...]),
    "network_size": Method(int),
    "unreached_seeds": Method(dict[str, str]),
    "statistics": Method(Statistics),
    "recent_events": Method(tuple[EventRecord, ...], ("since",)),
    "health": Method(Health, ("cluster",)),
    "clouds": Method(tuple[Cloud, ...], ("timeout",)),
}


class MethodCall(msgspec.Struct, array_like=True, tag=2):
    """A task's order to call a method of the node, or to read a property."""

    method: str
    """A key of `METHODS`."""
    arguments: dict[str, Any]

    def __post_init__(self) -> None:
        """Raise an error for a method or argument not in ``METHODS``; the decoder then reports a malformed frame."""
        if self.method not in METHODS or not self.arguments.keys() <= set(METHODS[self.method].arguments):
            raise ValueError(f"no task may call {self.method[:64]!r} with these arguments")


class SurveyCall(msgspec.Struct, array_like=True, tag=4):
    """A task's order to survey all members of a cluster. The frame's payload is the request to each member.

    The agent holds the survey, and the task takes the replies with :class:`Take`.
    """

    cluster: Any
    timeout: Any
    stop_after: Any
    headers: Any
    seal: tuple[str, str | None] | None = None
    """As in :class:`RequestCall`."""


class Subscribe(msgspec.Struct, array_like=True, tag=5):
    """A task's order to subscribe. The agent holds the subscription, and the task takes the messages with :class:`Take`."""

    pattern: Any
    policy: Any
    queue_messages: Any
    queue_bytes: Any
    group: Any = ""
    weight: Any = 1.0


class Take(msgspec.Struct, array_like=True, tag=6):
    """Take the waiting items of a held call (a survey or a subscription), or wait for the first.

    A timeout of None waits forever.
    """

    held: int
    timeout: float | None


class Close(msgspec.Struct, array_like=True, tag=7):
    """A task's order to end a held call (a survey or a subscription)."""

    held: int


class LookCall(msgspec.Struct, array_like=True, tag=8):
    """Return the state of a held call (a survey or a subscription) without taking items."""

    held: int


class MembersCall(msgspec.Struct, array_like=True, tag=9):
    """A task's request for the members of a cluster, as the agent's node knows them."""

    cluster: Any
    waits: bool


class Cancel(msgspec.Struct, array_like=True, tag=12):
    """Cancel the call with this number. The agent sends no answer."""


Command: TypeAlias = RequestCall | MethodCall | SurveyCall | Subscribe | Take | Close | LookCall | MembersCall | Cancel


# -- messages of an agent


class CallReturned(msgspec.Struct, array_like=True, tag=1):
    """The answer to a successful call. The frame's payload is the reply of a request."""

    value: Any = None


class CallFailed(msgspec.Struct, array_like=True, tag=2):
    """The answer to a failed call: its error."""

    kind: str
    text: str
    attributes: dict[str, Any]


class MessageDelivered(msgspec.Struct, array_like=True):
    """One message of a subscription, without its payload."""

    source: str
    sequence: int
    topic: str
    gap: int
    headers: dict[str, Any]
    cloud: str = ""
    has_unknown_gap: bool = False


class Taken(msgspec.Struct, array_like=True, tag=3):
    """The answer to :class:`Take`: waiting items of a held call. Their payloads are concatenated in the frame's payload.

    Attributes:
        sizes: The size of each payload.
        messages: Of a subscription: the rest of each message.
        members: Of a survey: the id of the member that sent each reply.
        is_over: Whether the held call has ended.
        answers: Of a survey: the outcomes of all other members.
    """

    sizes: list[int]
    messages: list[MessageDelivered] = []
    members: list[Member] = []
    is_over: bool = False
    answers: Answers | None = None


class Welcome(msgspec.Struct, array_like=True, tag=4):
    """The first frame from the agent, with the call number 0: its node, and the limits of calls in flight."""

    id: str
    name: str
    address: str
    zone: str
    network: str
    max_message_bytes: int
    in_flight_max: int
    in_flight_bytes_max: int


Reply: TypeAlias = CallReturned | CallFailed | Taken | Welcome

command_decoder: Final[msgspec.msgpack.Decoder[Command]] = msgspec.msgpack.Decoder(Command)
reply_decoder: Final[msgspec.msgpack.Decoder[Reply]] = msgspec.msgpack.Decoder(Reply)
_encoder: Final = msgspec.msgpack.Encoder()


def header_of(message: Command | Reply) -> bytes:
    """Return the encoded header of a message.

    Raises:
        TypeError: An argument of the user has a type that cannot be encoded.
        OverflowError: A number has more than 64 bits.
        UnicodeEncodeError: A text cannot be encoded.
    """
    return _encoder.encode(message)


def encode_frame(number: int, header: bytes, payload_bytes: int) -> bytes:
    """Encode the beginning of a frame. The payload is written separately, to avoid a copy."""
    return PREFIX.pack(number, len(header), payload_bytes) + header


class FrameReader:
    """Splits the bytes from a socket into frames, wherever the bytes are divided. Large payloads are copied once.

    Args:
        header_bytes_max: The largest header accepted.
        payload_bytes_max: The largest payload accepted.
    """

    def __init__(self, header_bytes_max: int, payload_bytes_max: int) -> None:
        self._header_bytes_max = header_bytes_max
        self._payload_bytes_max = payload_bytes_max
        self._rest = b""  # the beginning of a frame, without its whole header
        self._begun: tuple[int, bytes] | None = None  # a frame with an incomplete payload
        self._chunks: list[bytes] = []
        self._missing = 0

    def feed(self, data: bytes) -> list[Frame]:
        """Add received bytes; return the frames that are now complete, in order.

        Raises:
            MalformedFrame: The bytes are not frames.
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
#: Built-in exceptions that a node raises for wrong arguments.
_BUILTINS: Final = {"TypeError": TypeError, "ValueError": ValueError}


def failed(error: Exception) -> CallFailed:
    """Describe an error for a frame: the nearest public type, the text and the attributes."""
    attributes = {name: _printable(value) for name, value in vars(error).items() if isinstance(value, _PLAIN)}
    if isinstance(error, TooManyMembersLost):
        attributes["members"] = list(error.members)
    if isinstance(error, NoMembers | NotConnected):
        attributes["seeds"] = {_printable(seed): _printable(reason) for seed, reason in error.seeds.items()}
        attributes["strangers"] = [_printable(host) for host in error.strangers]
    for kind in type(error).__mro__:
        if _public(kind.__name__) is kind:
            return CallFailed(kind.__name__, _printable(str(error)), attributes)
    if type(error).__name__ in _BUILTINS:
        return CallFailed(type(error).__name__, _printable(str(error)), {})
    return CallFailed("IrisError", _printable(f"the agent failed with {type(error).__qualname__}: {error}"), {})


def error_of(failure: CallFailed) -> Exception:
    """Make the error that a frame describes; an :exc:`~iris_py.IrisError` if the type is unknown here."""
    if failure.kind in _BUILTINS:
        return _BUILTINS[failure.kind](failure.text)
    kind = _public(failure.kind) or IrisError
    error = kind.__new__(kind)  # without the constructor, which would need the arguments of the text
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


def _printable(value: Any) -> Any:  # noqa: ANN401 - values other than text stay unchanged
    """Replace the characters of a text that UTF-8 cannot encode; other values stay unchanged."""
    return value[:TEXT_MAX].encode(errors="replace").decode() if isinstance(value, str) else value
