"""Reads the operations of a NATS client from the bytes of its connection (docs/design.md 18.1).

Clients publish many messages with equal control lines in a row. The parser looks for the same line again behind a payload,
and returns these messages together. Other control lines of ``PUB`` are remembered, because clients have few subjects.
"""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING, Final

from iris_py.doors.nats.operations import (
    LINE_END,
    ConnectLine,
    ProtocolFault,
    PubLine,
    PubRun,
    Signal,
    SubLine,
    UnsubLine,
)
from iris_py.doors.nats.subjects import INBOX

if TYPE_CHECKING:
    from iris_py.doors.nats.operations import Operation

__all__ = ["CONTROL_LINE_MAX", "ProtocolParser"]

#: Bytes of a control line behind the name of the operation, as at nats-server. Too small: ``CONNECT`` with a long token does
#: not fit; too large: strangers send bytes that are no message.
CONTROL_LINE_MAX: Final = 4096
#: Digits of a number, as at nats-server.
DIGITS_MAX: Final = 9
#: Control lines remembered for each connection; beyond it all are forgotten. Too small: a client with some subjects in turn
#: costs the reading of each line; too large: memory of idle clients.
REMEMBERED_LINES_MAX: Final = 256
#: The longest remembered line.
REMEMBERED_LINE_BYTES_MAX: Final = 256

_FIELD: Final = re.compile(rb"[^ \t\r\n]+")
#: The control line that clients write in general; others are read field by field.
_USUAL_PUB: Final = re.compile(rb"PUB ([^ \t\r\n]+) (?:([^ \t\r\n]+) )?([0-9]{1,%d})\r\n" % DIGITS_MAX)
_NUMBER: Final = re.compile(rb"[0-9]{1,%d}" % DIGITS_MAX)
#: The name of an operation. nats-server wants a blank behind those with arguments, except ``CONNECT``.
_NAME: Final = re.compile(rb"(?:H?PUB|(?:UN)?SUB)[ \t]|CONNECT|PING|PONG", re.IGNORECASE)
_NAMES: Final = (b"PUB", b"HPUB", b"SUB", b"UNSUB", b"CONNECT", b"PING", b"PONG")
_BEGINNINGS: Final = frozenset(name[:length] for name in _NAMES for length in range(1, len(name) + 1))
_NAME_BYTES_MAX: Final = max(map(len, _NAMES))
_LINE_FEED: Final = b"\n"
_INBOX: Final = INBOX.encode()
_CARRIAGE_RETURN: Final = 13


class ProtocolParser:
    """Reads the operations of one connection.

    Args:
        payload_bytes_max: The largest size of a message: its header block and payload.

    Attributes:
        unread_bytes: The number of last bytes that the last call of `receive` did not read.
    """

    __slots__ = ("_buffer", "_has_failed", "_known", "_line", "_payload_bytes_max", "unread_bytes")

    def __init__(self, payload_bytes_max: int) -> None:
        self.unread_bytes = 0
        self._payload_bytes_max = payload_bytes_max
        self._buffer = bytearray()  # the beginning of a control line, or of the message of `_line`
        self._line: PubLine | None = None
        self._known: dict[bytes, PubLine] = {}
        self._has_failed = False

    @property
    def held_bytes(self) -> int:
        """The number of bytes received and not returned in operations."""
        return len(self._buffer)

    def receive(self, data: bytes, operations_max: int = sys.maxsize) -> list[Operation]:
        """Return the operations that end in some received bytes.

        Args:
            data: Bytes of the connection; behind an error they are dropped.
            operations_max: The number of operations to read at most. The owner passes the bytes behind these
                again, which are the last `unread_bytes`.

        Returns:
            The operations, in order. An error is the last one, for ever.
        """
        self.unread_bytes = 0
        if self._has_failed:
            return []
        buffer = self._buffer
        if buffer:
            searched = len(buffer)
            buffer += data
            line = self._line
            if line is None:
                is_partial = buffer.find(_LINE_FEED, searched) < 0
            else:
                is_partial = len(buffer) < line.total_bytes + len(LINE_END)
            if is_partial:
                fault = self._check_partial(buffer)
                return [] if fault is None else self._fail([], fault)
            data = bytes(buffer)
            buffer.clear()
        operations: list[Operation] = []
        at = self._read(data, operations, operations_max)
        if operations and isinstance(operations[-1], ProtocolFault):
            return self._fail(operations, None)
        if at < len(data) and self._line is None and len(operations) == operations_max:
            self.unread_bytes = len(data) - at
        elif at < len(data):
            buffer += data[at:]
            fault = self._check_partial(buffer)
            if fault is not None:
                return self._fail(operations, fault)
        return operations

    # --

    def _fail(self, operations: list[Operation], fault: ProtocolFault | None) -> list[Operation]:
        if fault is not None:
            operations.append(fault)
        self._has_failed = True
        self._buffer.clear()
        self._known.clear()
        return operations

    def _check_partial(self, buffer: bytearray) -> ProtocolFault | None:
        """Return the error of bytes that cannot become an operation; None if they can."""
        line = self._line
        if line is not None:
            is_wrong = len(buffer) > line.total_bytes and buffer[line.total_bytes] != _CARRIAGE_RETURN
            return ProtocolFault.UNKNOWN_OPERATION if is_wrong else None
        name = _NAME.match(buffer)
        if name is None:
            return None if bytes(buffer[: _NAME_BYTES_MAX + 1]).upper() in _BEGINNINGS else ProtocolFault.UNKNOWN_OPERATION
        # The last byte may be a CR.
        return ProtocolFault.CONTROL_LINE if len(buffer) - name.end() > CONTROL_LINE_MAX + 1 else None

    def _read(self, data: bytes, operations: list[Operation], operations_max: int) -> int:
        """Read operations up to a number, or to the first incomplete one; return the place behind them."""
        at = 0
        while True:
            line, self._line = self._line, None
            if line is None:
                end = data.find(_LINE_FEED, at)
                if end < 0 or len(operations) >= operations_max:
                    return at
                text = data[at : end + 1]
                line = self._known.get(text)
                if line is None and (behind := self._read_single(data, at, operations)) > at:
                    at = behind
                    continue
                at = end + 1
                if line is None:
                    operation = self._read_line(text)
                    if not isinstance(operation, PubLine):
                        operations.append(operation)
                        if isinstance(operation, ProtocolFault):
                            return at
                        continue
                    line = operation
            total, step = line.total_bytes, line.step
            contents = []
            end = at + total
            while data.startswith(step, end):
                contents.append(data[at:end])
                at = end + len(step)
                end = at + total
            if data.startswith(LINE_END, end):
                contents.append(data[at:end])
                at = end + len(LINE_END)
                operations.append(PubRun(line, contents))
                continue
            if contents:
                operations.append(PubRun(line, contents))
            if len(data) >= end + len(LINE_END):
                operations.append(ProtocolFault.UNKNOWN_OPERATION)
            else:
                self._line = line
            return at

    def _read_single(self, data: bytes, at: int, operations: list[Operation]) -> int:
        """Read messages that each have a reply subject of their own, or are replies; return the place behind the last one.

        Their control lines do not come again, so they are neither looked up nor remembered.
        """
        match, payload_bytes_max = _USUAL_PUB.match, self._payload_bytes_max
        while (found := match(data, at)) is not None:
            subject, reply, size = found.groups(b"")
            begin = found.end()
            total_bytes = int(size)
            end = begin + total_bytes
            if not (reply or subject.startswith(_INBOX)) or total_bytes > payload_bytes_max:
                break
            step = LINE_END + data[at:begin]
            if not data.startswith(LINE_END, end) or data.startswith(step, end) or len(step) > REMEMBERED_LINE_BYTES_MAX:
                break  # incomplete, wrong, a run, or long
            operations.append(PubRun(PubLine(subject, reply, -1, total_bytes, step), [data[begin:end]]))
            at = end + len(LINE_END)
        return at

    def _read_line(self, text: bytes) -> Operation | PubLine:
        """Read a control line with its end."""
        usual = _USUAL_PUB.fullmatch(text) if len(text) <= REMEMBERED_LINE_BYTES_MAX else None
        if usual is not None:
            subject, reply, size = usual.groups(b"")
            total_bytes = int(size)
            if reply and total_bytes <= self._payload_bytes_max:  # as below, without the call
                return PubLine(subject, reply, -1, total_bytes, LINE_END + text)
            return self._remember(text, subject, reply, -1, total_bytes)
        beginning = _NAME.match(text)
        if beginning is None:
            return ProtocolFault.UNKNOWN_OPERATION
        line = text[:-2] if text.endswith(LINE_END) else text[:-1]
        if len(line) - beginning.end() > CONTROL_LINE_MAX:
            return ProtocolFault.CONTROL_LINE
        name = line[:4].upper()
        if name == b"PING":
            return Signal.PING
        if name == b"PONG":
            return Signal.PONG
        if name == b"CONN":
            return ConnectLine(line[len(b"CONNECT") :].strip(b" \t"))
        fields = _FIELD.findall(line)[1:]
        if name[:3] == b"PUB":
            return self._read_pub(text, fields)
        if name == b"HPUB":
            return self._read_hpub(text, fields)
        if name[:3] == b"SUB":
            if len(fields) == 2:
                return SubLine(fields[0], b"", fields[1])
            return SubLine(*fields) if len(fields) == 3 else ProtocolFault.UNKNOWN_OPERATION
        if len(fields) not in (1, 2):
            return ProtocolFault.UNKNOWN_OPERATION
        return UnsubLine(fields[0], max(0, _number(fields[1])) if fields[1:] else 0)

    def _read_pub(self, text: bytes, fields: list[bytes]) -> PubLine | ProtocolFault:
        if len(fields) not in (2, 3):
            return ProtocolFault.UNKNOWN_OPERATION
        reply = fields[1] if fields[2:] else b""
        return self._remember(text, fields[0], reply, -1, _number(fields[-1]))

    def _read_hpub(self, text: bytes, fields: list[bytes]) -> PubLine | ProtocolFault:
        if len(fields) not in (3, 4):
            return ProtocolFault.UNKNOWN_OPERATION
        reply = fields[1] if fields[3:] else b""
        header_bytes, total_bytes = _number(fields[-2]), _number(fields[-1])
        if not 0 <= header_bytes <= total_bytes:
            return ProtocolFault.UNKNOWN_OPERATION
        return self._remember(text, fields[0], reply, header_bytes, total_bytes)

    def _remember(
        self, text: bytes, subject: bytes, reply: bytes, header_bytes: int, total_bytes: int
    ) -> PubLine | ProtocolFault:
        if total_bytes < 0:
            return ProtocolFault.UNKNOWN_OPERATION
        if total_bytes > self._payload_bytes_max:
            return ProtocolFault.PAYLOAD
        line = PubLine(subject, reply, header_bytes, total_bytes, LINE_END + text)
        if len(text) <= REMEMBERED_LINE_BYTES_MAX and not reply:  # a request has a reply subject of its own
            if len(self._known) == REMEMBERED_LINES_MAX:
                self._known.clear()
            self._known[text] = line
        return line


def _number(field: bytes) -> int:
    """Return a number of the protocol; -1 for other text."""
    return int(field) if _NUMBER.fullmatch(field) else -1
