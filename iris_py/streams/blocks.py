"""Blocks: the entries of a partition's log, byte for byte equal on all replicas (docs/streams-format.md).

A block is a header of `HEADER_BYTES` and a body. The *chain* of a block is a hash over the header and the chain before, and
names the whole log up to a block. A log with a lost, misdirected or old block has another chain from there on.
"""

from __future__ import annotations

import struct
from enum import IntEnum
from hashlib import blake2b
from typing import TYPE_CHECKING, Final, NamedTuple
from zlib import crc32

import msgspec

if TYPE_CHECKING:
    from mmap import mmap

__all__ = [
    "BLOCK_BYTES_MAX",
    "CHAIN_BYTES",
    "HEADER_BYTES",
    "ROOT_CHAIN",
    "Block",
    "BlockHeader",
    "BlockKind",
    "DamagedBlock",
    "NewerVersion",
    "check_body",
    "check_chain",
    "padded",
    "read_block",
    "read_header",
    "seal_block",
    "seal_parts",
]

HEADER_BYTES: Final = 144
#: Blocks begin at multiples of it, so that a header lies in one sector of a disk.
ALIGNMENT: Final = 8
MAGIC: Final = b"IBK1"
VERSION: Final = 1
CHAIN_BYTES: Final = 8
#: The chain before the first block of a log.
ROOT_CHAIN: Final = bytes(CHAIN_BYTES)
ID_BYTES: Final = 16
#: The largest body. Too small: a record of 8 MiB with key and headers does not fit; too large: a damaged size makes a reader
#: take much memory.
BLOCK_BYTES_MAX: Final = (8 << 20) + (64 << 10)

# magic, version, kind, flags; crc of header and body; body bytes, count; index, term; offset, time; chain; producer, sequence;
# data key, writer, counter; attempt; reserved
_HEADER: Final = struct.Struct("<4sBBH II II QQ QQ 8s 16sQ I16sQ Q 20x".replace(" ", ""))
_CRC_PLACE: Final = 8
_CRC: Final = struct.Struct("<I")
_CHAIN_PLACE: Final = 56
#: The parts of a header before its own checksum, up to its chain, and behind it.
_FRONT: Final = struct.Struct("<4sBBH")
_MIDDLE: Final = struct.Struct("<IIIQQQQ")
_BACK: Final = struct.Struct("<16sQI16sQQ20x")
_NO_CRC: Final = bytes(_CRC.size)
#: The zeros behind a body whose size is a multiple of `ALIGNMENT`, and some bytes more.
_PADDING: Final = tuple(bytes(-extra % ALIGNMENT) for extra in range(ALIGNMENT))


class BlockKind(IntEnum):
    """The kinds of blocks."""

    NOOP = 0
    """The first block of a term."""
    RECORDS = 1
    """Records of one writer."""
    TRIM = 2
    """The log begins later from here on: its body is the first kept offset, as ``u64``."""
    CONFIG = 3
    """The members of the group from here on."""
    CHANGE = 4
    """A change of the catalog."""


class DamagedBlock(ValueError):
    """The bytes are no block, or a block with changed bytes."""


class NewerVersion(DamagedBlock):
    """The block is whole, and was written by a newer version of Iris."""


class BlockHeader(msgspec.Struct, frozen=True, gc=False):
    """The fields of a header. Unknown kinds are kept, because a log may have entries of newer versions."""

    kind: int
    flags: int
    body_crc: int
    body_bytes: int
    count: int
    """The number of records."""
    index: int
    """The place in the log, from 1 on."""
    term: int
    offset: int
    """The offset of the first record."""
    time_ms: int
    """Milliseconds since 1970, never less than in the block before."""
    chain: bytes
    producer: bytes = bytes(ID_BYTES)
    sequence: int = 0
    """The producer's number of the first record."""
    data_key: int = 0
    """The number of the data key; 0 for a body in clear."""
    writer: bytes = bytes(ID_BYTES)
    counter: int = 0
    """The number of the writer's seal."""
    attempt: int = 0

    @property
    def block_bytes(self) -> int:
        """The size of the block, with its padding."""
        return padded(HEADER_BYTES + self.body_bytes)

    @property
    def next_offset(self) -> int:
        """The offset behind the records."""
        return self.offset + self.count


class Block(NamedTuple):
    """A block as it lies in a segment."""

    header: BlockHeader
    data: bytes
    """The header, the body and the padding."""

    @property
    def body(self) -> bytes:
        """The body."""
        return self.data[HEADER_BYTES : HEADER_BYTES + self.header.body_bytes]


def padded(size: int) -> int:
    """Return a size up to the next multiple of `ALIGNMENT`."""
    return -(-size // ALIGNMENT) * ALIGNMENT


def seal_block(header: BlockHeader, body: bytes, chain_before: bytes) -> Block:
    """Make a block: compute checksums and chain.

    Args:
        header: The fields; ``body_crc``, ``body_bytes`` and ``chain`` are replaced.
        body: The body, of at most `BLOCK_BYTES_MAX`.
        chain_before: The chain of the block before.
    """
    sealed, parts = seal_parts(header, body, chain_before)
    return Block(sealed, b"".join(parts))


def seal_parts(header: BlockHeader, body: bytes, chain_before: bytes) -> tuple[BlockHeader, tuple[bytes, bytes, bytes]]:
    """Make a block as `seal_block` does, without a copy of the body.

    Returns:
        The header with all fields, and three parts of the block: the header, the body and the padding.
    """
    kind, flags, _crc, _bytes, count, index, term, offset, time_ms, _chain, *rest = msgspec.structs.astuple(header)
    body_crc, body_bytes = crc32(body), len(body)
    front = _FRONT.pack(MAGIC, VERSION, kind, flags)
    middle = _MIDDLE.pack(body_crc, body_bytes, count, index, term, offset, time_ms)
    back = _BACK.pack(*rest)
    chain = blake2b(chain_before + front + middle + back, digest_size=CHAIN_BYTES).digest()
    header_crc = crc32(front + _NO_CRC + middle + chain + back)
    packed = b"".join((front, _CRC.pack(header_crc), middle, chain, back))
    sealed = BlockHeader(kind, flags, body_crc, body_bytes, count, index, term, offset, time_ms, chain, *rest)
    return sealed, (packed, body, _PADDING[body_bytes % ALIGNMENT])


def read_header(data: bytes | mmap, place: int = 0) -> BlockHeader | None:
    """Read the header of a block.

    Args:
        data: Bytes of a segment.
        place: The place of the header.

    Returns:
        None for zeros: the end of the blocks in a segment.

    Raises:
        DamagedBlock: The bytes are no header of a block, or are cut.
        NewerVersion: A newer version wrote the block.
    """
    packed = data[place : place + HEADER_BYTES]
    if len(packed) < HEADER_BYTES:
        raise DamagedBlock("the header of a block is cut")
    if not any(packed):
        return None
    magic, version, kind, flags, header_crc, body_crc, body_bytes, count, *rest = _HEADER.unpack(packed)
    if magic != MAGIC:
        raise DamagedBlock("no block begins here")
    if crc32(packed[:_CRC_PLACE] + bytes(_CRC.size) + packed[_CRC_PLACE + _CRC.size :]) != header_crc:
        raise DamagedBlock("the header of a block has changed")
    if version != VERSION:
        raise NewerVersion(f"the version {version} of a block is newer than {VERSION}: update Iris")
    if body_bytes > BLOCK_BYTES_MAX:
        raise DamagedBlock(f"a block with a body of {body_bytes} bytes")
    return BlockHeader(kind, flags, body_crc, body_bytes, count, *rest)


def check_body(header: BlockHeader, body: bytes) -> None:
    """Check the body of a block.

    Raises:
        DamagedBlock: The body has changed, or is cut.
    """
    if len(body) != header.body_bytes or crc32(body) != header.body_crc:
        raise DamagedBlock(f"the body of the block {header.index} has changed")


def check_chain(data: bytes | mmap, header: BlockHeader, chain_before: bytes, place: int = 0) -> None:
    """Check that a block continues a log.

    Args:
        data: Bytes of a segment.
        header: The header at the place.
        chain_before: The chain of the block before.
        place: The place of the block.

    Raises:
        DamagedBlock: The block continues another log.
    """
    if _chain_of(data[place : place + HEADER_BYTES], chain_before) != header.chain:
        raise DamagedBlock(f"the block {header.index} does not continue the log before it")


def read_block(data: bytes | mmap, place: int, index: int, offset: int, chain_before: bytes) -> BlockHeader | None:
    """Read the next block of a log; check header, place in the log and body.

    Args:
        data: Bytes of a segment.
        place: The place of the block.
        index: The index of the block.
        offset: The offset of its first record.
        chain_before: The chain of the block before.

    Returns:
        None for zeros: the end of the blocks in a segment.

    Raises:
        DamagedBlock: The bytes are not the next block of the log.
        NewerVersion: A newer version wrote the block.
    """
    header = read_header(data, place)
    if header is None:
        return None
    if header.index != index or header.offset != offset:
        raise DamagedBlock(f"the block {index} is expected, and {header.index} stands here")
    check_chain(data, header, chain_before, place)
    check_body(header, data[place + HEADER_BYTES : place + HEADER_BYTES + header.body_bytes])
    return header


def _chain_of(packed: bytes, chain_before: bytes) -> bytes:
    """Return the hash of a header, without its own checksum and chain, behind the chain before."""
    hashed = blake2b(chain_before, digest_size=CHAIN_BYTES)
    hashed.update(packed[:_CRC_PLACE])
    hashed.update(packed[_CRC_PLACE + _CRC.size : _CHAIN_PLACE])
    hashed.update(packed[_CHAIN_PLACE + CHAIN_BYTES :])
    return hashed.digest()
