"""The messages of doors to each other, in the cluster of all doors of a network (docs/design.md 17.50).

A message is a byte with the version and a MessagePack map. Doors ignore other versions, unknown kinds and unknown fields, and
live together with doors of other kinds and releases. Only holders of the network's secret can send messages to doors.
"""

from __future__ import annotations

from typing import Annotated, Final, TypeAlias

import msgspec

from iris_py.doors.door_reports import (
    DIGEST_BYTES_MAX,
    PAGE_CLIENTS,
    PAGE_USERS,
    ClientReport,
    DoorFigures,
    UserDigest,
)
from iris_py.doors.revocations import DIGEST_BYTES, PAGE_REVOCATIONS, Revocation, RevocationOutcome

__all__ = [
    "DOORS",
    "ClientPage",
    "ClientPageQuestion",
    "DoorAnnouncement",
    "DoorGreeting",
    "DoorMessage",
    "DoorStatus",
    "DoorStatusQuestion",
    "RevocationOrder",
    "RevocationPage",
    "RevocationPageQuestion",
    "RevocationReceipt",
    "UserPage",
    "UserPageQuestion",
    "decode_message",
    "encode_message",
]

#: The cluster of all doors of a network.
DOORS: Final = "iris.doors"
#: The version of the messages.
_VERSION: Final = b"\x01"
#: Characters of the texts in an announcement. Too small: an address with a long path does not fit; too large: a faulty door
#: fills the memory of the others.
_TEXT_MAX: Final = 512

_Text = Annotated[str, msgspec.Meta(max_length=_TEXT_MAX)]
_Digest = Annotated[bytes, msgspec.Meta(min_length=DIGEST_BYTES, max_length=DIGEST_BYTES)]
_Page = Annotated[tuple[Revocation, ...], msgspec.Meta(max_length=PAGE_REVOCATIONS)]


class DoorAnnouncement(msgspec.Struct, frozen=True, kw_only=True):
    """The description of a door by itself."""

    id: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{16}$")]
    """A random name of the door, constant for the life of the door."""
    kind: _Text
    """The kind of clients: ``web``, or ``nats``."""
    address: _Text = ""
    """The address for clients, such as ``https://iris.example``; empty if another server listens for the door."""
    version: _Text = ""
    """The version of Iris."""
    is_draining: bool = False
    """Whether the door closes, and clients should use another door."""


class DoorGreeting(msgspec.Struct, frozen=True, tag="greeting"):
    """Asks all doors for their greetings. A door that changes broadcasts one."""

    door: DoorAnnouncement
    """The sender."""
    revocations: _Digest
    """The digest of the sender's revocations."""


class RevocationOrder(msgspec.Struct, frozen=True, tag="revoke"):
    """Asks all doors to revoke tokens."""

    revocations: _Page
    """The revocations."""


class RevocationReceipt(msgspec.Struct, frozen=True, tag="receipt"):
    """The answer to a `RevocationOrder`."""

    door: DoorAnnouncement
    """The sender."""
    outcomes: Annotated[tuple[RevocationOutcome, ...], msgspec.Meta(max_length=PAGE_REVOCATIONS)]
    """The outcome of each revocation, in their order."""


class RevocationPageQuestion(msgspec.Struct, frozen=True, tag="page?"):
    """Asks a door for some of its revocations."""

    door: str
    """The id of the asked door. Other doors decline."""
    start: Annotated[int, msgspec.Meta(ge=0)]
    """The place of the first revocation."""


class RevocationPage(msgspec.Struct, frozen=True, tag="page"):
    """Some revocations of a door; empty at the end."""

    revocations: _Page
    """The revocations."""


class ClientPageQuestion(msgspec.Struct, frozen=True, tag="clients?"):
    """Asks doors for some of their clients."""

    door: str = ""
    """The id of the asked door; empty for all doors. Other doors decline."""
    start: Annotated[int, msgspec.Meta(ge=0)] = 0
    """The place of the first client."""
    count: Annotated[int, msgspec.Meta(ge=0)] = PAGE_CLIENTS
    """The largest number of clients in the answer. A door may send fewer."""


class ClientPage(msgspec.Struct, frozen=True, tag="clients"):
    """Some clients of a door; none at the end."""

    door: DoorAnnouncement
    """The sender."""
    total: Annotated[int, msgspec.Meta(ge=0)]
    """The number of all clients of the door."""
    clients: Annotated[tuple[ClientReport, ...], msgspec.Meta(max_length=PAGE_CLIENTS)]
    """The clients."""


class DoorStatusQuestion(msgspec.Struct, frozen=True, tag="status?"):
    """Asks all doors for their counts."""


class DoorStatus(msgspec.Struct, frozen=True, tag="status"):
    """The counts of a door."""

    door: DoorAnnouncement
    """The sender."""
    figures: DoorFigures
    """The counts."""


class UserPageQuestion(msgspec.Struct, frozen=True, tag="users?"):
    """Asks NATS doors for some of the users in their files."""

    door: str = ""
    """The id of the asked door; empty for all doors. Other doors decline."""
    start: Annotated[int, msgspec.Meta(ge=0)] = 0
    """The place of the first user."""
    count: Annotated[int, msgspec.Meta(ge=0)] = 0
    """The largest number of users in the answer. A door may send fewer."""


class UserPage(msgspec.Struct, frozen=True, tag="users"):
    """Some users of a door, in the order of their names; none at the end."""

    door: DoorAnnouncement
    """The sender."""
    total: Annotated[int, msgspec.Meta(ge=0)]
    """The number of all users of the door."""
    digest: Annotated[bytes, msgspec.Meta(max_length=DIGEST_BYTES_MAX)]
    """The digest of all users."""
    users: Annotated[tuple[UserDigest, ...], msgspec.Meta(max_length=PAGE_USERS)]
    """The users."""


DoorMessage: TypeAlias = (
    DoorGreeting
    | RevocationOrder
    | RevocationReceipt
    | RevocationPageQuestion
    | RevocationPage
    | ClientPageQuestion
    | ClientPage
    | DoorStatusQuestion
    | DoorStatus
    | UserPageQuestion
    | UserPage
)

_DECODER: Final[msgspec.msgpack.Decoder[DoorMessage]] = msgspec.msgpack.Decoder(DoorMessage)


def encode_message(message: DoorMessage) -> bytes:
    """Return the bytes of a message."""
    return _VERSION + msgspec.msgpack.encode(message)


def decode_message(content: bytes) -> DoorMessage | None:
    """Return a message; None for malformed bytes, or another version or kind."""
    if content[:1] != _VERSION:
        return None
    try:
        return _DECODER.decode(memoryview(content)[1:])
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return None
