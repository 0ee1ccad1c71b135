"""The head of a publication from another cloud, published in this cloud by a gateway (docs/design.md 15.31).

The head names the origin of the publication, because the link identifies only the gateway that relays it.
"""

from __future__ import annotations

import re
import struct

import msgspec

#: origin, sequence, number, missed, length of the cloud's name; then the cloud's name
HEAD = struct.Struct(">16s4sQQB")
#: Pseudonym of the publishing node outside its cloud.
ORIGIN_BYTES = 16
#: Name of the sequence: of the rule that it crossed by.
SEQUENCE_BYTES = 4
#: The form of the alias by which this cloud names another cloud.
CLOUD = re.compile(rb"[a-z0-9](?:[a-z0-9-]{0,30}[a-z0-9])?")
#: A gap of unknown size: more than any number of missing numbers.
UNKNOWN_GAP = 0xFFFF_FFFF
#: The highest number of a publication in a sequence.
NUMBER_MAX = (1 << 64) - 1


class Imported(msgspec.Struct, frozen=True, gc=False):
    """The origin of one publication, as a gateway passes it to its node.

    Attributes:
        origin: The 16-byte pseudonym of the publishing node.
        sequence: The 4-byte name of a sequence of publications of the origin; numbers grow within a sequence.
        number: The number of the publication.
        gap: Number of publications of this origin and sequence lost right before it, up to the gateway; ``UNKNOWN_GAP`` for an
            unknown number.
        cloud: The alias of the originating cloud.
        is_repeated: Whether a gateway has published the same before. Groups have the message, and plain subscribers the number.
    """

    origin: bytes
    sequence: bytes
    number: int
    gap: int
    cloud: str
    is_repeated: bool = False


class ImportedHead(msgspec.Struct, frozen=True, gc=False):
    """The encoded origin of one publication, or of several with consecutive numbers.

    Attributes:
        origin: The 16-byte pseudonym of the publishing node.
        sequence: The 4-byte name of a sequence of publications of the origin; numbers grow within a sequence.
        number: The number of the first publication.
        missed: Total publications of this origin and sequence the gateway has missed, up to this one.
        cloud: The alias of the originating cloud.
    """

    origin: bytes
    sequence: bytes
    number: int
    missed: int
    cloud: str

    def encode(self) -> bytes:
        """Encode the origin, the first part of a head."""
        cloud = self.cloud.encode()
        return HEAD.pack(self.origin, self.sequence, self.number, self.missed, len(cloud)) + cloud

    def after(self, count: int) -> ImportedHead:
        """Return the head without the first ``count`` publications, for the rest of a batch."""
        return ImportedHead(self.origin, self.sequence, self.number + count, self.missed, self.cloud) if count else self


def decode_imported(head: bytes, count: int) -> tuple[ImportedHead, bytes] | None:
    """Split a head from a peer into the origin and the rest; return None if it is malformed. Never raises.

    Args:
        head: The head, without a ``NUMBER``.
        count: The number of publications with this head.
    """
    start = HEAD.size
    if len(head) < start:
        return None
    origin, sequence, number, missed, size = HEAD.unpack_from(head)
    stop = start + size
    cloud = head[start:stop]
    if len(cloud) < size or CLOUD.fullmatch(cloud) is None or number + count - 1 > NUMBER_MAX:
        return None
    return ImportedHead(origin, sequence, number, missed, cloud.decode()), head[stop:]
