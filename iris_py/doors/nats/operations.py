"""The operations of NATS clients, as the parser returns them, and the errors for clients.

Subjects, queue groups and subscription ids stay bytes. The protocol: https://docs.nats.io/reference/protocols/client.
"""

from __future__ import annotations

from enum import Enum
from typing import Final, NamedTuple, TypeAlias

import msgspec

__all__ = ["ConnectLine", "Operation", "ProtocolFault", "PubLine", "PubRun", "Signal", "SubLine", "UnsubLine"]

#: The end of a control line, and of a payload.
LINE_END: Final = b"\r\n"


class ProtocolFault(Enum):
    """The errors of a connection: the text behind ``-ERR``, as nats-server writes it. Clients compare these texts.

    Every error ends the connection, except `INVALID_SUBJECT` and `INVALID_PUBLISH_SUBJECT`.
    """

    UNKNOWN_OPERATION = "Unknown Protocol Operation"
    CONTROL_LINE = "maximum control line exceeded"
    PAYLOAD = "Maximum Payload Violation"
    AUTHENTICATION_TIMEOUT = "Authentication Timeout"
    AUTHORIZATION = "Authorization Violation"
    CONNECTIONS = "maximum connections exceeded"
    STALE = "Stale Connection"
    PROTOCOL = "invalid client protocol"
    NO_HEADERS_FOR_RESPONDERS = "no responders requires headers support"
    INVALID_SUBJECT = "Invalid Subject"
    INVALID_PUBLISH_SUBJECT = "Invalid Publish Subject"


class Signal(Enum):
    """The operations without arguments."""

    PING = "PING"
    PONG = "PONG"


class ConnectLine(NamedTuple):
    """``CONNECT``."""

    options: bytes
    """A JSON object, not checked."""


class PubLine(msgspec.Struct, gc=False):
    """The control line of ``PUB`` or ``HPUB``."""

    subject: bytes
    reply: bytes
    """The subject for replies; empty for none."""
    header_bytes: int
    """Bytes of the header block in front of the payload; -1 for ``PUB``."""
    total_bytes: int
    """Bytes of the header block and the payload."""
    step: bytes
    """The end of a payload and the same control line again, as between the messages of a run."""


class PubRun(msgspec.Struct, gc=False):
    """Consecutive messages under equal control lines."""

    line: PubLine
    contents: list[bytes]
    """The header block and the payload of each message; at least one message."""


class SubLine(NamedTuple):
    """``SUB``."""

    subject: bytes
    queue: bytes
    """The name of the queue group; empty for none."""
    sid: bytes
    """The client's name for the subscription."""


class UnsubLine(NamedTuple):
    """``UNSUB``."""

    sid: bytes
    messages_max: int
    """The number of messages since ``SUB`` after which the subscription ends; 0 for its end at once."""


#: Everything that a parser returns. A `ProtocolFault` is the last one.
Operation: TypeAlias = ConnectLine | PubRun | SubLine | UnsubLine | Signal | ProtocolFault
