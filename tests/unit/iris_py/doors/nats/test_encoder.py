"""The bytes that a door writes to NATS clients."""

from __future__ import annotations

import json
from typing import Any

import pytest

from iris_py.doors.nats.encoder import VERSION, Delivery, ServerInfo, permission_error


def test_a_run_is_written_for_a_subscription() -> None:
    delivery = Delivery(b"a.b", b"", -1, [b"11", b"22", b"33"])
    assert delivery.text(b"7", has_headers=True, count=3) == b"MSG a.b 7 2\r\n11\r\nMSG a.b 7 2\r\n22\r\nMSG a.b 7 2\r\n33\r\n"
    assert delivery.text(b"8", has_headers=True, count=2) == b"MSG a.b 8 2\r\n11\r\nMSG a.b 8 2\r\n22\r\n"


@pytest.mark.parametrize("subject", [b"a", b"a.b", b"MSG", b"x" * 200])
@pytest.mark.parametrize("reply", [b"", b"r.1"])
@pytest.mark.parametrize("header_bytes", [-1, 2])
@pytest.mark.parametrize("count", [1, 3])
def test_the_subscriptions_of_a_client_get_what_each_alone_gets(
    subject: bytes, reply: bytes, header_bytes: int, count: int
) -> None:
    delivery = Delivery(subject, reply, header_bytes, [b"a b\r\n%d" % number for number in range(count)])
    for sids in ([b"7"], [b"1", b"22", b"a"]):
        for has_headers in (True, False):
            alone = [delivery.text(sid, has_headers=has_headers, count=count) for sid in sids]
            assert delivery.texts(sids, has_headers=has_headers) == b"".join(alone)


def test_a_client_without_headers_gets_the_payload_alone() -> None:
    block = b"NATS/1.0\r\na: b\r\n\r\n"
    delivery = Delivery(b"a", b"r.1", len(block), [block + b"hi"])
    assert delivery.text(b"7", has_headers=True, count=1) == b"HMSG a 7 r.1 18 20\r\n" + block + b"hi\r\n"
    assert delivery.text(b"7", has_headers=False, count=1) == b"MSG a 7 r.1 2\r\nhi\r\n"


def test_an_error_quotes_names_as_go_does() -> None:
    assert permission_error("Publish", b'a"b\\\xff\x01\xc3\xa9') == (
        b'-ERR \'Permissions Violation for Publish to "a\\"b\\\\\\xff\\x01\xc3\xa9"\'\r\n'
    )
    assert permission_error("Subscription", b"orders.new", b"q") == (
        b'-ERR \'Permissions Violation for Subscription to "orders.new" using queue "q"\'\r\n'
    )


def test_info_has_what_clients_need_and_nothing_that_is_not_there() -> None:
    values: dict[str, Any] = {"server_id": "N1", "server_name": "iris", "version": VERSION, "proto": 1, "go": ""}
    values |= {
        "headers": True,
        "host": "127.0.0.1",
        "port": 4222,
        "max_payload": 1000,
        "client_id": 5,
        "client_ip": "127.0.0.1",
    }
    text = ServerInfo(**values).text()
    assert text.startswith(b"INFO {")
    assert text.endswith(b"} \r\n")
    assert json.loads(text[5:]) == values
