"""Messages of shared subscriptions: SHARED and TAKEN (docs/design.md 8.15).

SHARED is a publication for members of groups at one node. Its head begins with a row for each of these members, and goes on as
that of a PUBLICATION: ``count:u8``, then ``count`` times ``group:u64 name:u64 before:u32``. ``group`` is the tag of the group,
``name`` that of the count from the publisher to the member, and ``before`` the number of messages in this count before the
message, modulo 2^32. So a member sees how many messages that were given to it are missing.

TAKEN tells the publisher how much of it a member has taken. Its id is the tag of the group, and its argument the number of
taken messages, modulo 2^32. The payload is that of :class:`TakenCounts`.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

import msgspec

from iris_py.wire.flows import COUNT_MASK

#: The largest number of groups in one SHARED: those of one topic at one node. Too small: members of further groups get messages
#: of their own. Too large: a publisher needs more time for each topic.
SHARED_GROUPS_MAX: Final = 64
#: The largest size of the name of a group, in bytes of UTF-8.
GROUP_BYTES_MAX: Final = 64
#: Flag of a SHARED whose head has the fields of an IMPORTED.
FOREIGN: Final = 8
#: Messages that may be on the way to a member of which no TAKEN has come yet. Too small: a publisher waits for the first TAKEN
#: of each member. Too large: a slow member gets many of the first messages.
FIRST_WINDOW: Final = 64
#: The largest window. Too small: a fast member far away idles. Too large: a hostile member gets more of the messages.
WINDOW_MAX: Final = 1 << 20

_COUNT: Final = struct.Struct(">B")
#: group, name, before
_NUMBER: Final = struct.Struct(">QQI")
#: name, received, missed, window, queue, service_us
_TAKEN: Final = struct.Struct(">QIIIII")
#: The largest time for a message (microseconds), some 17 minutes. Only comparisons use it.
SERVICE_US_MAX: Final = 1_000_000_000


class SharedNumber(NamedTuple):
    """The number of a message in the count from a publisher to a member of a group."""

    group: int
    """The tag of the group."""
    name: int
    """The name of the count, which the publisher gives once."""
    before: int
    """The number of messages in the count before this one, modulo 2^32."""


class TakenCounts(msgspec.Struct, frozen=True, gc=False):
    """The state of a member, as told to a publisher. All counts begin with the name, and are modulo 2^32.

    Attributes:
        name: The name of the count.
        received: The number of messages up to the last received message, including missing messages.
        missed: The number of missing messages in ``received``.
        taken: The number of messages in ``received`` outside the queue: taken by the program, or dropped.
        window: The largest number of outstanding messages for the publisher.
        queue: The number of messages of other publishers in its queue.
        service_us: The program's mean time for a message (microseconds); 0 if unknown.
        group: The name of the group.
    """

    name: int
    received: int
    missed: int
    taken: int
    window: int
    queue: int
    service_us: int
    group: str

    def encode(self) -> bytes:
        """Return the payload; ``taken`` is the argument."""
        counts = self.received & COUNT_MASK, self.missed & COUNT_MASK
        return _TAKEN.pack(self.name, *counts, self.window, self.queue, self.service_us) + self.group.encode()


def encode_numbers(numbers: list[SharedNumber]) -> bytes:
    """Encode the beginning of the head of a SHARED.

    Args:
        numbers: 1 to ``SHARED_GROUPS_MAX``.
    """
    rows = [_NUMBER.pack(group, name, before & COUNT_MASK) for group, name, before in numbers]
    return _COUNT.pack(len(rows)) + b"".join(rows)


def decode_numbers(head: bytes) -> tuple[list[SharedNumber], bytes] | None:
    """Split the head of a SHARED from a peer into numbers and the rest; return None if it is malformed. Never raises."""
    if not head or not 0 < head[0] <= SHARED_GROUPS_MAX:
        return None
    end = _COUNT.size + head[0] * _NUMBER.size
    if len(head) < end:
        return None
    numbers = [SharedNumber(*row) for row in _NUMBER.iter_unpack(head[_COUNT.size : end])]
    return (numbers, head[end:]) if len({number.group for number in numbers}) == len(numbers) else None


def decode_taken(taken: int, payload: bytes) -> TakenCounts | None:
    """Decode a TAKEN from a peer; return None if it is malformed. Never raises.

    Args:
        taken: Its argument.
        payload: Its payload.
    """
    if not _TAKEN.size < len(payload) <= _TAKEN.size + GROUP_BYTES_MAX:
        return None
    name, received, missed, window, queue, service_us = _TAKEN.unpack_from(payload)
    try:
        group = payload[_TAKEN.size :].decode()
    except UnicodeDecodeError:
        return None
    window, queue, service_us = min(window, WINDOW_MAX), min(queue, WINDOW_MAX), min(service_us, SERVICE_US_MAX)
    return TakenCounts(name, received, missed, taken, window, queue, service_us, group)
