"""The parser of NATS clients: operations as nats-server reads them, errors at the first wrong byte, bounded memory and time."""

from __future__ import annotations

import time

import pytest

from iris_py.doors.nats.operations import ConnectLine, Operation, ProtocolFault, PubRun, Signal, SubLine, UnsubLine
from iris_py.doors.nats.parser import CONTROL_LINE_MAX, ProtocolParser

PAYLOAD_MAX = 1000


def parsed(data: bytes) -> list[Operation]:
    return ProtocolParser(PAYLOAD_MAX).receive(data)


def messages(operations: list[Operation]) -> list[tuple[bytes, bytes, int, bytes]]:
    """Return subject, reply, header size and content of each message; all operations have to be messages."""
    runs = [each for each in operations if isinstance(each, PubRun)]
    assert len(runs) == len(operations)
    return [(run.line.subject, run.line.reply, run.line.header_bytes, content) for run in runs for content in run.contents]


@pytest.mark.parametrize(
    ("data", "operation"),
    [
        (b"PING\r\n", Signal.PING),
        (b"ping\n", Signal.PING),
        (b"PINGxx \r\n", Signal.PING),
        (b"Pong\r\n", Signal.PONG),
        (b"SUB a.* 1\r\n", SubLine(b"a.*", b"", b"1")),
        (b"sub \t a  q\t 1 \r\n", SubLine(b"a", b"q", b"1")),
        (b"UNSUB 1\r\n", UnsubLine(b"1", 0)),
        (b"UNSUB 1 5\r\n", UnsubLine(b"1", 5)),
        (b"UNSUB 1 five\r\n", UnsubLine(b"1", 0)),
        (b'CONNECT {"a": 1} \r\n', ConnectLine(b'{"a": 1}')),
        (b"CONNECT{}\r\n", ConnectLine(b"{}")),
    ],
)
def test_an_operation_is_read(data: bytes, operation: Operation) -> None:
    assert parsed(data) == [operation]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"PUB a 2\r\nhi\r\n", (b"a", b"", -1, b"hi")),
        (b"pub\ta  r 0002\nhi\r\n", (b"a", b"r", -1, b"hi")),
        (b"PUB a 0\r\n\r\n", (b"a", b"", -1, b"")),
        (b"PUB a 4\r\n\r\n\r\n\r\n", (b"a", b"", -1, b"\r\n\r\n")),
        (b"HPUB a 12 14\r\nNATS/1.0\r\n\r\nhi\r\n", (b"a", b"", 12, b"NATS/1.0\r\n\r\nhi")),
        (b"HPUB a r 0 2\r\nhi\r\n", (b"a", b"r", 0, b"hi")),
    ],
)
def test_a_message_is_read(data: bytes, message: tuple[bytes, bytes, int, bytes]) -> None:
    assert messages(parsed(data)) == [message]


def test_messages_under_equal_lines_come_together() -> None:
    run = b"".join(b"PUB a 2\r\n%02d\r\n" % number for number in range(50))
    operations = parsed(run + b"PUB b 1\r\nx\r\n" + run)
    assert [len(each.contents) for each in operations if isinstance(each, PubRun)] == [50, 1, 50]
    assert messages(operations)[49] == (b"a", b"", -1, b"49")


@pytest.mark.parametrize(
    ("data", "fault"),
    [
        (b"GET / HTTP/1.1\r\n", ProtocolFault.UNKNOWN_OPERATION),
        (b"\x16", ProtocolFault.UNKNOWN_OPERATION),
        (b"\r\n", ProtocolFault.UNKNOWN_OPERATION),
        (b" PING\r\n", ProtocolFault.UNKNOWN_OPERATION),
        (b"SUX", ProtocolFault.UNKNOWN_OPERATION),
        (b"SUB\r\n", ProtocolFault.UNKNOWN_OPERATION),
        (b"SUB a\r\n", ProtocolFault.UNKNOWN_OPERATION),
        (b"SUB a b c d\r\n", ProtocolFault.UNKNOWN_OPERATION),
        (b"UNSUB 1 2 3\r\n", ProtocolFault.UNKNOWN_OPERATION),
        (b"MSG a 1 2\r\n", ProtocolFault.UNKNOWN_OPERATION),
        (b"PUB a\r\n", ProtocolFault.UNKNOWN_OPERATION),
        (b"PUB a b c 1\r\n", ProtocolFault.UNKNOWN_OPERATION),
        (b"PUB a -1\r\n", ProtocolFault.UNKNOWN_OPERATION),
        (b"PUB a +1\r\n", ProtocolFault.UNKNOWN_OPERATION),
        (b"PUB a 1_0\r\n", ProtocolFault.UNKNOWN_OPERATION),
        (b"PUB a 9223372036854775808\r\n", ProtocolFault.UNKNOWN_OPERATION),
        (b"PUB a 999999999\r\n", ProtocolFault.PAYLOAD),
        (b"PUB a %d\r\n" % (PAYLOAD_MAX + 1), ProtocolFault.PAYLOAD),
        (b"HPUB a 5 %d\r\n" % (PAYLOAD_MAX + 1), ProtocolFault.PAYLOAD),
        (b"HPUB a 3 2\r\n", ProtocolFault.UNKNOWN_OPERATION),
        (b"HPUB a 3\r\n", ProtocolFault.UNKNOWN_OPERATION),
        (b"PUB a 2\r\nhix", ProtocolFault.UNKNOWN_OPERATION),
        (b"PUB a 2\r\nhi\n", ProtocolFault.UNKNOWN_OPERATION),
        (b"PUB a 2\r\nhi\rx", ProtocolFault.UNKNOWN_OPERATION),
        (b"SUB " + b"a" * (CONTROL_LINE_MAX - 1) + b" 1\r\n", ProtocolFault.CONTROL_LINE),
        (b"SUB " + b"a" * (CONTROL_LINE_MAX + 2), ProtocolFault.CONTROL_LINE),
    ],
)
def test_an_error_is_the_last_operation_at_once(data: bytes, fault: ProtocolFault) -> None:
    parser = ProtocolParser(PAYLOAD_MAX)
    assert parser.receive(b"PING\r\n" + data) == [Signal.PING, fault]
    assert parser.receive(b"PING\r\n") == []
    assert parser.held_bytes == 0


def test_the_longest_line_and_the_largest_message_are_read() -> None:
    subject = b"a" * (CONTROL_LINE_MAX - 2)
    assert parsed(b"SUB " + subject + b" 1\r\n") == [SubLine(subject, b"", b"1")]
    content = b"x" * PAYLOAD_MAX
    assert messages(parsed(b"PUB a %d\r\n%b\r\n" % (PAYLOAD_MAX, content))) == [(b"a", b"", -1, content)]


def test_a_client_that_sends_byte_after_byte_costs_no_more_than_its_bytes() -> None:
    def cost(size: int) -> float:
        parser = ProtocolParser(size)
        began = time.process_time()
        parser.receive(b"PUB a %d\r\n" % size)
        for _ in range(size):
            parser.receive(b"x")
        assert parser.held_bytes == size
        assert [type(each) for each in parser.receive(b"\r\n")] == [PubRun]
        return time.process_time() - began

    cost(1000)
    assert min(cost(160_000) for _ in range(3)) < 40 * min(cost(10_000) for _ in range(3))  # 256 times if it were quadratic
