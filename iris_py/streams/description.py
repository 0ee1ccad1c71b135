"""The file ``stream`` beside the partitions of an embedded stream: name and settings, twice (docs/streams-format.md).

A change writes and syncs one copy after the other. A torn write or a damaged copy costs no name.
"""

from __future__ import annotations

import struct
from typing import Final, Literal, TypeAlias
from zlib import crc32

import msgspec

from iris_py.streams.blocks import ID_BYTES
from iris_py.streams.limits import STREAM_AGE_S, STREAM_BYTES

__all__ = ["COPIES", "COPY_BYTES", "DamagedDescription", "OnStreamFull", "StreamDescription", "decode_copies", "encode_copy"]

#: What a full stream does: delete its oldest records, or refuse new ones.
OnStreamFull: TypeAlias = Literal["drop_oldest", "refuse"]

COPIES: Final = 2
#: The size of a copy: a page. A name has at most 255 bytes, so a description fits.
COPY_BYTES: Final = 4096
MAGIC: Final = b"IRSD"
VERSION: Final = 1

# magic, version, bytes of the description; number; stream id
_COPY: Final = struct.Struct(f"<4sBxHQ{ID_BYTES}s")
_CRC: Final = struct.Struct("<I")


class DamagedDescription(ValueError):
    """No copy can be read."""


class StreamDescription(msgspec.Struct, frozen=True):
    """The name and the settings of a stream."""

    name: str
    partitions: int = 1
    max_age_s: float = STREAM_AGE_S
    max_bytes: int = STREAM_BYTES
    """Bytes of each partition."""
    full: OnStreamFull = "drop_oldest"


_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final = msgspec.msgpack.Decoder(StreamDescription)


def encode_copy(stream: bytes, number: int, description: StreamDescription) -> bytes:
    """Return the `COPY_BYTES` of a copy.

    Args:
        stream: The id of the stream.
        number: Higher for each change.
        description: The description.
    """
    body = _encoder.encode(description)
    packed = _COPY.pack(MAGIC, VERSION, len(body), number, stream) + body
    packed += _CRC.pack(crc32(packed))
    return packed + bytes(COPY_BYTES - len(packed))


def decode_copies(stream: bytes, data: bytes) -> tuple[int, StreamDescription]:
    """Return the newest readable description with its number.

    Args:
        stream: The id of the stream.
        data: The file.

    Raises:
        DamagedDescription: Both copies are unreadable, or a newer version wrote a copy.
    """
    copies = [data[place : place + COPY_BYTES] for place in range(0, COPIES * COPY_BYTES, COPY_BYTES)]
    found = [read for copy in copies if (read := _decode_copy(stream, copy)) is not None]
    if not found:
        raise DamagedDescription("the name and the settings of the stream cannot be read")
    return max(found, key=lambda read: read[0])


def _decode_copy(stream: bytes, copy: bytes) -> tuple[int, StreamDescription] | None:
    if len(copy) < _COPY.size:
        return None
    magic, version, size, number, owner = _COPY.unpack_from(copy)
    end = _COPY.size + size
    if magic != MAGIC or owner != stream or copy[end : end + _CRC.size] != _CRC.pack(crc32(copy[:end])):
        return None
    if version != VERSION:
        raise DamagedDescription(f"the version {version} of the description is newer than {VERSION}: update Iris")
    try:
        return number, _decoder.decode(copy[_COPY.size : end])
    except msgspec.MsgspecError:
        return None
