"""Exchanges with nats-server 2.15.1, byte by byte, and the answers of a door where they differ."""

from __future__ import annotations

from typing import Final, NamedTuple

#: `CONNECT` of a modern client.
C: Final = b'CONNECT {"verbose":false,"pedantic":false,"headers":true,"no_responders":true,"protocol":1}\r\n'
QUIET: Final = b'CONNECT {"verbose":false,"pedantic":false}\r\n'
UNKNOWN: Final = b"-ERR 'Unknown Protocol Operation'\r\n"
SILENT: Final = "nats-server ends the connection without a word"
UNFIT: Final = "no topic of Iris can have this name"


class Exchange(NamedTuple):
    """Bytes of a client, and the answer behind the first `INFO`."""

    sent: bytes
    server: bytes
    """The answer of nats-server, with ``<INFO>`` for the object."""
    ends: bool = False
    """Whether nats-server ends the connection."""
    door: bytes | None = None
    """The answer of a door; None for the same."""
    door_ends: bool | None = None
    """Whether a door ends the connection; None for the same."""
    reason: str = ""
    """The reason for the difference."""


EXCHANGES: Final = (
    Exchange(b"PING\r\n", b"PONG\r\n"),
    Exchange(C + b"PING\r\n", b"PONG\r\n<INFO>"),
    Exchange(C + b"PING\r\nPING\r\n", b"PONG\r\n<INFO>PONG\r\n"),
    Exchange(QUIET + b"PING\r\n", b"PONG\r\n"),
    Exchange(b"CONNECT {}\r\nPING\r\n", b"+OK\r\nPONG\r\n"),
    Exchange(b"ping\n", b"PONG\r\n"),
    Exchange(b"PINGxx\r\nPING \t\r\n", b"PONG\r\nPONG\r\n"),
    Exchange(b"GET / HTTP/1.1\r\n", UNKNOWN, ends=True),
    Exchange(b"\r\n", UNKNOWN, ends=True),
    Exchange(b" PING\r\n", UNKNOWN, ends=True),
    Exchange(C + b"SUX", UNKNOWN, ends=True),
    Exchange(C + b"HPUX", UNKNOWN, ends=True),
    Exchange(b"SUB a 1\r\nPUB a 2\r\nhi\r\n", b"+OK\r\n+OK\r\nMSG a 1 2\r\nhi\r\n"),
    Exchange(b"sub  a\t1\nPUB a 2\nhi\r\n", b"+OK\r\n+OK\r\nMSG a 1 2\r\nhi\r\n"),
    Exchange(QUIET + b"SUB a 1\r\nSUB b 1\r\nPUB b 1\r\nx\r\nPUB a 1\r\ny\r\n", b"MSG a 1 1\r\ny\r\n"),
    Exchange(
        QUIET + b"SUB a 1\r\nSUB a q 2\r\nPUB a r 1\r\nx\r\n",
        b"MSG a 1 r 1\r\nx\r\nMSG a 2 r 1\r\nx\r\n",
    ),
    Exchange(QUIET + b"SUB a\r\nPING\r\n", b"", ends=True, door=UNKNOWN, reason=SILENT),
    Exchange(QUIET + b"SUB a b c d\r\nPING\r\n", b"", ends=True, door=UNKNOWN, reason=SILENT),
    Exchange(QUIET + b"SUB a..b 1\r\nPING\r\n", b"-ERR 'Invalid Subject'\r\nPONG\r\n"),
    Exchange(QUIET + b"SUB a.>.b 1\r\nPING\r\n", b"-ERR 'Invalid Subject'\r\nPONG\r\n"),
    Exchange(QUIET + b"SUB a. 1\r\nPING\r\n", b"-ERR 'Invalid Subject'\r\nPONG\r\n"),
    Exchange(
        QUIET + b"SUB a>b 1\r\nPUB a>b 1\r\nx\r\n",
        b"MSG a>b 1 1\r\nx\r\n",
        door=b"-ERR 'Permissions Violation for Subscription to \"a>b\"'\r\n"
        b"-ERR 'Permissions Violation for Publish to \"a>b\"'\r\n",
        reason=UNFIT,
    ),
    Exchange(
        QUIET + b"SUB > 1\r\nPUB a..b 1\r\nx\r\n",
        b"",
        door=b"-ERR 'Permissions Violation for Publish to \"a..b\"'\r\n",
        reason="a message that nobody can get is told",
    ),
    Exchange(
        QUIET + b"SUB > 1\r\nPUB a.* 1\r\nx\r\n",
        b"MSG a.* 1 1\r\nx\r\n",
        door=b"-ERR 'Permissions Violation for Publish to \"a.*\"'\r\n",
        reason=UNFIT,
    ),
    Exchange(b"CONNECT {}\r\nSUB > 1\r\nPUB a..b 1\r\nx\r\n", b"+OK\r\n+OK\r\n-ERR 'Invalid Publish Subject'\r\n+OK\r\n"),
    Exchange(QUIET + b"PUB a 2\r\nhiX\r\nPING\r\n", UNKNOWN, ends=True),
    Exchange(QUIET + b"PUB a 0\r\n\nPING\r\n", UNKNOWN, ends=True),
    Exchange(QUIET + b"PUB a x\r\nPING\r\n", b"", ends=True, door=UNKNOWN, reason=SILENT),
    Exchange(QUIET + b"PUB a -1\r\nPING\r\n", b"", ends=True, door=UNKNOWN, reason=SILENT),
    Exchange(QUIET + b"PUB a 9223372036854775808\r\n", b"", ends=True, door=UNKNOWN, reason=SILENT),
    Exchange(QUIET + b"PUB a 999999999\r\n", b"-ERR 'Maximum Payload Violation'\r\n", ends=True),
    Exchange(QUIET + b"PUB a 1048577\r\n", b"-ERR 'Maximum Payload Violation'\r\n", ends=True),
    Exchange(QUIET + b"PUB a b c 2\r\nhi\r\n", b"", ends=True, door=UNKNOWN, reason=SILENT),
    Exchange(QUIET + b"PUB a 0005\r\nhello\r\nPING\r\n", b"PONG\r\n"),
    Exchange(C + b"SUB a 1\r\nHPUB a 12 14\r\nNATS/1.0\r\n\r\nhi\r\n", b"HMSG a 1 12 14\r\nNATS/1.0\r\n\r\nhi\r\n"),
    Exchange(C + b"SUB a 1\r\nHPUB a 5 7\r\nhellohi\r\n", b"HMSG a 1 5 7\r\nhellohi\r\n"),
    Exchange(C + b"SUB a 1\r\nHPUB a 0 2\r\nhi\r\n", b"MSG a 1 2\r\nhi\r\n"),
    Exchange(C + b"HPUB a 14 12\r\nNATS/1.0\r\n\r\n\r\n", b"", ends=True, door=UNKNOWN, reason=SILENT),
    Exchange(QUIET + b"HPUB a 12 12\r\nNATS/1.0\r\n\r\n\r\n", b"", ends=True, door=UNKNOWN, reason=SILENT),
    Exchange(
        b'CONNECT {"headers":false,"no_responders":true}\r\n', b"-ERR 'no responders requires headers support'\r\n", ends=True
    ),
    Exchange(b'CONNECT {"verbose":false,"protocol":2}\r\n', b"-ERR 'invalid client protocol'\r\n", ends=True),
    Exchange(b"CONNECT {bad\r\n", b"", ends=True, door=UNKNOWN, reason=SILENT),
    Exchange(b"CONNECT\r\n", b"", ends=True, door=UNKNOWN, reason=SILENT),
    Exchange(b"CONNECT []\r\n", b"", ends=True, door=UNKNOWN, reason=SILENT),
    Exchange(b'CONNECT {"verbose":1}\r\n', b"", ends=True, door=UNKNOWN, reason=SILENT),
    Exchange(b'CONNECT{"verbose":false}\r\nPING\r\n', b"PONG\r\n"),
    Exchange(b'CONNECT {"VERBOSE":false,"name":null,"x":[1]}\r\nPING\r\n', b"PONG\r\n"),
    Exchange(b"CONNECT null\r\nPING\r\n", b"+OK\r\nPONG\r\n"),
    Exchange(QUIET + b"UNSUB 1\r\nUNSUB 1 2 3\r\n", b"", ends=True, door=UNKNOWN, reason=SILENT),
    Exchange(QUIET + b"UNSUB\r\n", UNKNOWN, ends=True),
    Exchange(QUIET + b"UNSUB 1 x\r\nPING\r\n", b"PONG\r\n"),
    Exchange(
        QUIET + b"SUB a 1\r\nUNSUB 1 2\r\n" + b"PUB a 1\r\nx\r\n" * 3 + b"PING\r\n", b"MSG a 1 1\r\nx\r\n" * 2 + b"PONG\r\n"
    ),
    Exchange(
        QUIET + b"SUB a 1\r\n" + b"PUB a 1\r\nx\r\n" * 2 + b"UNSUB 1 2\r\nPUB a 1\r\ny\r\nPING\r\n",
        b"MSG a 1 1\r\nx\r\n" * 2 + b"PONG\r\n",
    ),
    Exchange(
        QUIET + b"SUB a 1\r\nPUB a 1\r\n1\r\nUNSUB 1 3\r\nUNSUB 1 2\r\nPUB a 1\r\n2\r\nPUB a 1\r\n3\r\nPING\r\n",
        b"MSG a 1 1\r\n1\r\nMSG a 1 1\r\n2\r\nPONG\r\n",
    ),
    Exchange(
        C + b"SUB _INBOX.x 1\r\nPUB nobody _INBOX.x 1\r\n1\r\n",
        b"HMSG _INBOX.x 1 38 38\r\nNATS/1.0 503\r\nNats-Subject: nobody\r\n\r\n\r\n",
    ),
    Exchange(C + b"PUB nobody _INBOX.x 1\r\n1\r\nPING\r\n", b"PONG\r\n<INFO>"),
    Exchange(
        C + b"SUB _INBOX.* 1\r\nPUB nobody _INBOX.x.y 1\r\n1\r\nPUB nobody _INBOX.x 1\r\n1\r\n",
        b"HMSG _INBOX.x 1 38 38\r\nNATS/1.0 503\r\nNats-Subject: nobody\r\n\r\n\r\n",
    ),
    Exchange(
        C + b"SUB _INBOX.x 1\r\nPUB $JS.API.INFO _INBOX.x 0\r\n\r\n",
        b"HMSG _INBOX.x 1 44 44\r\nNATS/1.0 503\r\nNats-Subject: $JS.API.INFO\r\n\r\n\r\n",
    ),
    Exchange(QUIET + b"SUB _INBOX.x 1\r\nPUB nobody _INBOX.x 1\r\n1\r\nPING\r\n", b"PONG\r\n"),
    Exchange(C + b"+OK\r\nPING\r\n", b"PONG\r\n<INFO>", door=UNKNOWN, door_ends=True, reason="no client sends it"),
    Exchange(C + b"INFO {}\r\nPING\r\n", b"PONG\r\n<INFO>", door=UNKNOWN, door_ends=True, reason="no client sends it"),
    Exchange(C + b"-ERR 'x'\r\n", b"", ends=True, door=UNKNOWN, reason=SILENT),
    Exchange(C + b"MSG a 1 2\r\nhi\r\n", UNKNOWN, ends=True),
    Exchange(QUIET + b"PUB " + b"a" * 4100, b"-ERR 'maximum control line exceeded'\r\n", ends=True),
    Exchange(QUIET + b"SUB " + b"a" * 4095 + b" 1\r\n", b"-ERR 'maximum control line exceeded'\r\n", ends=True),
    Exchange(b'CONNECT {"verbose":false,"echo":false}\r\nSUB a 1\r\nPUB a 1\r\nx\r\nPING\r\n', b"PONG\r\n"),
    Exchange(
        b"CONNECT {}\r\nSUB a 1\r\nPUB a 1\r\nx\r\nUNSUB 9\r\nUNSUB 1\r\nPONG\r\nPING\r\n"
        b"SUB a..b 1\r\nPUB a..b 0\r\n\r\nPING\r\n",
        b"+OK\r\n+OK\r\n+OK\r\nMSG a 1 1\r\nx\r\n+OK\r\n+OK\r\nPONG\r\n-ERR 'Invalid Subject'\r\n"
        b"-ERR 'Invalid Publish Subject'\r\n+OK\r\nPONG\r\n",
    ),
    Exchange(
        b'CONNECT {"verbose":true,"pedantic":false}\r\nSUB a 1\r\nSUB a 1\r\nCONNECT {"verbose":false}\r\nPING\r\n',
        b"+OK\r\n+OK\r\n+OK\r\nPONG\r\n",
    ),
    Exchange(QUIET + b'SUB a"b 1\r\nPUB a"b 1\r\nx\r\n', b'MSG a"b 1 1\r\nx\r\n'),
    Exchange(QUIET + b"SUB \xc3\xa9 1\r\nPUB \xc3\xa9 1\r\nx\r\n", b"MSG \xc3\xa9 1 1\r\nx\r\n"),
    Exchange(
        QUIET + b"PUB a\xff 1\r\nx\r\n",
        b"",
        door=b"-ERR 'Permissions Violation for Publish to \"a\\xff\"'\r\n",
        reason=UNFIT,
    ),
    Exchange(b'CONNECT {"verbose":false,"tls_required":true}\r\nPING\r\n', b"PONG\r\n"),
    Exchange(b'CONNECT {"verbose":false,"jwt":"x","user":"a","pass":"b"}\r\nPING\r\n', b"PONG\r\n"),
)
