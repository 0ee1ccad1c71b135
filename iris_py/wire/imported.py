"""The head of a publication that came from another cloud, and is published in this one by a gateway (docs/design.md 15.31).

It says where the publication comes from, which the link that it came over cannot: the gateway is only who brought it.
"""

from __future__ import annotations

import re
import struct

import msgspec

#: origin, stream, number, missed, bytes of the cloud; then the cloud.
HEAD = struct.Struct(">16s4sQQB")
#: A publishing node, as it is called outside of its cloud.
ORIGIN_BYTES = 16
#: The group that it published under, as that is called there.
STREAM_BYTES = 4
#: The name by which this cloud knows another one.
CLOUD = re.compile(rb"[a-z0-9](?:[a-z0-9-]{0,30}[a-z0-9])?")
#: The last number of a stream.
NUMBER_MAX = (1 << 64) - 1


class Imported(msgspec.Struct, frozen=True, gc=False):
    """The origin of a publication, or of several with numbers that follow one another.

    Attributes:
        origin: The node that published it, by a pseudonym of 16 bytes.
        stream: The group that it was published under, by one of 4 bytes: numbers count within both.
        number: Its number there; of several that of the first.
        missed: How many publications of the same origin and stream the gateway has missed in all, up to this one.
        cloud: The name of the cloud that it came from.
    """

    origin: bytes
    stream: bytes
    number: int
    missed: int
    cloud: str

    def encode(self) -> bytes:
        """Return the bytes that a head begins with."""
        cloud = self.cloud.encode()
        return HEAD.pack(self.origin, self.stream, self.number, self.missed, len(cloud)) + cloud

    def after(self, count: int) -> Imported:
        """Return the origin of what comes behind the first ones."""
        return Imported(self.origin, self.stream, self.number + count, self.missed, self.cloud) if count else self


def decode_imported(head: bytes, count: int) -> tuple[Imported, bytes] | None:
    """Split a head that came from a peer into the origin and the rest; None if it is malformed. Never raises.

    Args:
        head: The head, without a ``NUMBER``.
        count: How many publications it is of.
    """
    start = HEAD.size
    if len(head) < start:
        return None
    origin, stream, number, missed, size = HEAD.unpack_from(head)
    stop = start + size
    cloud = head[start:stop]
    if len(cloud) < size or CLOUD.fullmatch(cloud) is None or number + count - 1 > NUMBER_MAX:
        return None
    return Imported(origin, stream, number, missed, cloud.decode()), head[stop:]
