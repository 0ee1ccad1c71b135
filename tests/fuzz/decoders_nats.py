"""Decoders of the NATS door: the bytes of clients, and header blocks on their way through the network."""

from __future__ import annotations

from iris_py.doors.nats.headers import carry, read_carried
from iris_py.doors.nats.operations import Operation, ProtocolFault, PubRun
from iris_py.doors.nats.parser import CONTROL_LINE_MAX, ProtocolParser
from iris_py.wire.headers import decode_headers, encode_headers
from tests.fuzz import oracles
from tests.fuzz.source import Source
from tests.fuzz.target import Kind, Target

PAYLOAD_MAX = 2048
OPERATIONS = (
    b'CONNECT {"verbose":false,"headers":true}\r\nPING\r\nSUB a.* q 1\r\nUNSUB 1 5\r\nPUB a.b r 2\r\nhi\r\n'
    b"HPUB a.b 12 14\r\nNATS/1.0\r\n\r\nhi\r\nPONG\r\nPUB a 1\r\nx\r\nPUB a 1\r\ny\r\n"
)
BLOCK = b"NATS/1.0\r\na: b\r\nc-d:  \xc3\xa9\r\n\r\n"


def _parsed(pieces: list[bytes]) -> list[object]:
    parser = ProtocolParser(PAYLOAD_MAX)
    memory = oracles.Memory(parser)
    turn = oracles.Turn()
    operations: list[Operation] = []
    for piece in pieces:
        with turn:
            operations += parser.receive(piece)
        assert parser.held_bytes <= max(PAYLOAD_MAX, CONTROL_LINE_MAX + len(b"CONNECT")) + 2
    whole = b"".join(pieces)
    if oracles.is_weighed(whole):
        memory.check(len(whole))
    found: list[object] = []
    for each in operations:
        found += [(each.line, content) for content in each.contents] if isinstance(each, PubRun) else [each]
    assert not any(isinstance(each, ProtocolFault) for each in found[:-1])
    return found


def run_parser(data: bytes) -> None:
    """Read a stream in one piece, and in pieces: the operations are the same, and an error is the last one."""
    size, stream = 1 + Source(data).byte(), data[1:]
    assert _parsed([stream[at : at + size] for at in range(0, len(stream), size)]) == _parsed([stream])


def run_headers(data: bytes) -> None:
    """Carry a message through the network: it comes back as it was."""
    content = data[1:]
    header_bytes = min(Source(data).byte(), len(content))
    carried = carry(content, header_bytes, b"_INBOX.a.1")
    headers = decode_headers(encode_headers(carried.headers).encoded)
    assert headers is not None
    assert read_carried(headers, carried.payload) == (b"_INBOX.a.1", header_bytes, content, 0)


TARGETS = (
    Target("nats-parser", run_parser, Kind.DECODER, (b"\xff" + OPERATIONS, b"\x01" + OPERATIONS), 3 * PAYLOAD_MAX),
    Target("nats-headers", run_headers, Kind.DECODER, (bytes((len(BLOCK),)) + BLOCK + b"hi",), 1024),
)
