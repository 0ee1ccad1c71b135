"""Reports of a door about its clients and itself, for programs with the secret of the network (docs/design.md 17.54)."""

from __future__ import annotations

from typing import Annotated, Final, NamedTuple, Protocol

import msgspec

__all__ = [
    "CLIENT_BYTES_MAX",
    "DIGEST_BYTES_MAX",
    "PAGE_CLIENTS",
    "PAGE_USERS",
    "TEXT_MAX",
    "USER_BYTES_MAX",
    "ClientReport",
    "ClientSlice",
    "DoorFigures",
    "DoorReporter",
    "UserDigest",
    "UserSlice",
    "clip_text",
]

#: Clients in a message. Too small: a door with many clients is asked often; too large: one answer takes the memory and the time
#: of a door.
PAGE_CLIENTS: Final = 500
#: Characters of a text that a client has chosen. Too small: the names of programs are cut; too large: a client fills answers.
TEXT_MAX: Final = 128
#: Bytes of a report: the texts with four bytes a character, the numbers and the names of the fields.
CLIENT_BYTES_MAX: Final = 5 * 4 * TEXT_MAX + 256
#: Users in a message, as for clients.
PAGE_USERS: Final = 1000
#: Bytes of a digest.
DIGEST_BYTES_MAX: Final = 32
#: Bytes of a user in a message: the name with four bytes a character, and the digest.
USER_BYTES_MAX: Final = 4 * TEXT_MAX + DIGEST_BYTES_MAX + 16
#: The oldest client (seconds): 30 years. A lie beyond it would be no date.
_AGE_S_MAX: Final = 1e9

_Text = Annotated[str, msgspec.Meta(max_length=TEXT_MAX)]
_Count = Annotated[int, msgspec.Meta(ge=0)]
_Seconds = Annotated[float, msgspec.Meta(ge=0.0, le=_AGE_S_MAX)]


class ClientReport(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A client of a door."""

    number: _Count = 0
    """The number of the client at its door; 0 without one, as for event streams."""
    name: _Text = ""
    """The name that the client gives itself."""
    user: _Text = ""
    """The user, or the subject of the token; empty at a door without users."""
    language: _Text = ""
    """The language of the client's library, as the library says it."""
    version: _Text = ""
    """The version of this library."""
    address: _Text = ""
    """The address of the client; empty if the door does not know it."""
    subscriptions: _Count = 0
    messages_in: _Count = 0
    """Messages from the client."""
    messages_out: _Count | None = None
    """Messages to the client; None if the door does not count them."""
    waiting_bytes: _Count = 0
    """Bytes that the client has not taken."""
    age_s: _Seconds | None = None
    """Time since the client has connected (seconds); None if the door does not know it."""


class ClientSlice(NamedTuple):
    """Some clients of a door."""

    total: int
    """The number of all clients."""
    clients: tuple[ClientReport, ...]


class DoorFigures(msgspec.Struct, frozen=True, kw_only=True):
    """The counts of a door: of now, or since its start."""

    clients: _Count
    """Connected clients of NATS, or open event streams."""
    connections: _Count | None = None
    """Open connections; None if another server has the connections."""
    subscriptions: _Count = 0
    """Subscriptions of all clients."""
    messages_in: _Count = 0
    """Messages from NATS clients since the start; operations of HTTP clients."""
    messages_out: _Count = 0
    """Messages to NATS clients since the start; messages for event streams, where one for many streams counts once."""
    refused: _Count = 0
    """Connections refused before their first operation since the start."""
    ended: _Count = 0
    """Clients ended by the door since its start, for their mistakes or their slowness."""
    dropped: _Count = 0
    """Messages that were lost at the door since its start."""
    waiting_bytes: _Count = 0
    """Bytes that clients have not taken."""


class UserDigest(NamedTuple):
    """A user in the file of a door."""

    name: Annotated[str, msgspec.Meta(max_length=TEXT_MAX)]
    digest: Annotated[bytes, msgspec.Meta(max_length=DIGEST_BYTES_MAX)]
    """A digest of the rights and credentials, which tells neither."""


class UserSlice(NamedTuple):
    """Some users of a door."""

    total: int
    """The number of all users."""
    digest: bytes
    """A digest of all users."""
    users: tuple[UserDigest, ...]


class DoorReporter(Protocol):
    """A door that tells about itself."""

    def clients(self, start: int, count: int) -> ClientSlice:
        """Return some clients, the one that came first first.

        Args:
            start: The place of the first client.
            count: The largest number of clients.
        """

    def figures(self) -> DoorFigures:
        """Return the counts of the door."""

    def users(self, start: int, count: int) -> UserSlice | None:
        """Return some users in the order of their names; None for a door without users.

        Args:
            start: The place of the first user.
            count: The largest number of users.
        """


def clip_text(text: str) -> str:
    """Return the beginning of a text that fits a report."""
    return text[:TEXT_MAX]
