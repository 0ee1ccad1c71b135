"""The messages between NATS doors about inboxes: replies for clients of another door (docs/design.md 18.8).

A message is a byte with the version and a MessagePack map. Any node of the network can send these messages, so each field is
checked as a field of a client is.
"""

from __future__ import annotations

from typing import Annotated, Final, TypeAlias

import msgspec

from iris_py.doors.nats.encoder import Delivery
from iris_py.doors.nats.subjects import INBOX_BYTES_MAX, NatsSubject, SubjectKind, read_subject

__all__ = [
    "INBOXES",
    "REPLIES_MAX",
    "InboxLoss",
    "InboxReplies",
    "InboxReply",
    "decode_inbox_message",
    "delivery_of",
    "door_cluster_of",
    "encode_inbox_message",
]

#: The cluster of all NATS doors, for replies to clients whose door is unknown.
INBOXES: Final = "iris.door.nats"
#: The cluster of a single door: this and the first digits of the id of its node.
_DOOR: Final = "iris.door."
_DOOR_DIGITS: Final = 16
#: The version of the messages.
_VERSION: Final = b"\x01"
#: Messages in one batch. Too small: many messages for a fast responder; too large: a faulty node fills the memory of a door.
_CONTENTS_MAX: Final = 65_536
#: Batches in one message. Too small: the replies of a turn are several messages; too large: as above.
REPLIES_MAX: Final = 1024

_INBOX: Final = SubjectKind.INBOX  # to look up a member of an enumeration is slow
_Subject = Annotated[bytes, msgspec.Meta(min_length=1, max_length=INBOX_BYTES_MAX)]


class InboxReply(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Replies to an inbox; all contents have the same size."""

    subject: _Subject
    """The inbox."""
    reply: Annotated[bytes, msgspec.Meta(max_length=INBOX_BYTES_MAX)]
    """The subject for further replies; empty for none."""
    header_bytes: int
    """The size of the header block in front of each payload; 0 or less for none."""
    contents: Annotated[list[bytes], msgspec.Meta(min_length=1, max_length=_CONTENTS_MAX)]
    """The header block and payload of each message."""


class InboxReplies(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """Replies to inboxes of one door, in order."""

    replies: Annotated[list[InboxReply], msgspec.Meta(min_length=1, max_length=REPLIES_MAX)]


class InboxLoss(msgspec.Struct, frozen=True, array_like=True, tag=2):
    """Says that a door has no client with an inbox any more."""

    subject: _Subject
    """The inbox."""


InboxMessage: TypeAlias = InboxReplies | InboxLoss

_ENCODER: Final = msgspec.msgpack.Encoder()
_DECODER: Final[msgspec.msgpack.Decoder[InboxMessage]] = msgspec.msgpack.Decoder(InboxMessage)


def door_cluster_of(node_id: str) -> str:
    """Return the cluster whose only member is the door of a node.

    Args:
        node_id: The id of the node, in hexadecimal digits.
    """
    return f"{_DOOR}{node_id[:_DOOR_DIGITS]}"


def encode_inbox_message(message: InboxMessage) -> bytes:
    """Return the bytes of a message."""
    return _VERSION + _ENCODER.encode(message)


def decode_inbox_message(content: bytes) -> InboxMessage | None:
    """Return a message; None for malformed bytes, or another version or kind."""
    if content[:1] != _VERSION:
        return None
    try:
        return _DECODER.decode(memoryview(content)[1:])
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return None


def delivery_of(message: InboxReply) -> tuple[NatsSubject, Delivery] | None:
    """Return the inbox and the messages for its clients; None if no NATS server would deliver them."""
    subject = read_subject(message.subject)
    if not isinstance(subject, NatsSubject) or subject.kind is not _INBOX:
        return None
    if message.reply and not isinstance(read_subject(message.reply), NatsSubject):
        return None
    contents = message.contents
    size = len(contents[0])
    if message.header_bytes > size or (len(contents) > 1 and any(len(each) != size for each in contents)):
        return None
    return subject, Delivery(subject.raw, message.reply, message.header_bytes, contents)
