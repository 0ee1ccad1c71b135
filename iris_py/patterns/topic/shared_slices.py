"""Slices of publications for groups: the unit that a member gets at once (docs/design.md 8.15)."""

from __future__ import annotations

from bisect import bisect_right
from itertools import accumulate
from typing import TYPE_CHECKING, Final

import msgspec

from iris_py.patterns.topic.bodies import PublicationBatch
from iris_py.wire import packets
from iris_py.wire.headers import NO_HEADERS, Headers, put_headers
from iris_py.wire.imported import ImportedHead
from iris_py.wire.packets import MESSAGE_BYTES, RUN_MESSAGE_COST
from iris_py.wire.shares import FOREIGN, encode_numbers

if TYPE_CHECKING:
    from iris_py.wire.shares import SharedNumber

#: Messages in one slice because the member has many more to do. Too small: the choice of a member for each message limits a
#: publisher with slow members. Too large: nothing is gained.
BACKLOG_SLICE_MESSAGES_MAX: Final = 16
#: Part of a member's outstanding messages that one slice may add. Too small: many slices, as above. Too large: the members'
#: loads differ by a slice.
BACKLOG_SLICE_PART: Final = 4
#: Messages in one slice for a fast member. Too small: the choice of a member costs more than sending. Too large: members get
#: messages in bursts.
SLICE_MESSAGES_MAX: Final = 256
#: Time for which a slice may occupy a member (seconds). Too small: slices for fast members are small, too. Too large: one
#: member works while others idle.
SLICE_S: Final = 0.004
#: Bytes of a slice, unless it is one message. Too small and too large: as for ``SLICE_MESSAGES_MAX``.
SLICE_BYTES_MAX: Final = 16 * 1024
#: Messages in a batch for groups, which is cut into slices. Too small: a fast publisher begins many batches. Too large: nothing
#: is gained, and each batch looks at more members.
BATCH_MESSAGES_MAX: Final = 4 * SLICE_MESSAGES_MAX


class SharedSlice(msgspec.Struct, frozen=True, gc=False):
    """Consecutive publications to a topic, for a member of every group.

    Attributes:
        topic: The topic.
        stem: The hash of its first token.
        first: The publisher's number of the first.
        payloads: The published payloads.
        headers: The named values beside a single payload.
        imported: The origin of a message from another cloud.
    """

    topic: str
    stem: int
    first: int
    payloads: list[bytes]
    headers: Headers = NO_HEADERS
    imported: ImportedHead | None = None

    @property
    def size(self) -> int:
        """The size of the slice on the way, about."""
        return MESSAGE_BYTES + len(self.topic) + len(self.headers.encoded) + sum(map(len, self.payloads))

    def cut(self, messages_max: int) -> tuple[SharedSlice, SharedSlice] | None:
        """Return a slice from the start, and the rest; None if all is one slice."""
        payloads = self.payloads
        part = payloads[:messages_max]
        count = len(part)
        if sum(map(len, part)) > SLICE_BYTES_MAX:
            count = max(1, bisect_right(list(accumulate(map(len, part))), SLICE_BYTES_MAX))
        if count == len(payloads):
            return None
        rest = SharedSlice(self.topic, self.stem, self.first + count, payloads[count:])
        return SharedSlice(self.topic, self.stem, self.first, part[:count]), rest

    def encode(self, numbers: list[SharedNumber]) -> list[bytes]:
        """Return the SHARED for members of a node, in parts."""
        head, flags = self.topic.encode(), 0
        if self.headers.encoded:
            head = put_headers(self.headers.encoded, head)
            flags |= packets.HEADED
        if self.imported is not None:
            head = self.imported.encode() + head
            flags |= FOREIGN
        head = encode_numbers(numbers) + head
        if not flags:
            return packets.encode_run(head, self.payloads, self.first, packets.SHARED)
        (payload,) = self.payloads
        return [packets.MESSAGE.pack(packets.SHARED, flags, len(head), len(payload), self.first, 0), head, payload]


class SliceBatch(PublicationBatch):
    """A batch for groups: as many messages as their members take, if all have the size of the first; never lengthened.

    Smaller messages make a longer batch. At its end the publisher cuts the batch into slices for the members.
    """

    __slots__ = ()

    def __init__(self, head: bytes, payload: bytes, used: int, count: int, messages_max: int) -> None:
        super().__init__(head, payload, used, count)
        self.messages_max = messages_max
        room = min(self.room, (messages_max - 1) * (RUN_MESSAGE_COST + len(payload)))
        self.limit -= self.room - room
        self.room = room

    def append(self, payload: bytes) -> bool:
        """As for a batch, which is never lengthened."""
        room = self.room - RUN_MESSAGE_COST - len(payload)
        if room < 0:
            return False
        self.room = room
        self.payloads.append(payload)
        return True

    def _more_bytes(self) -> int:
        return 0
