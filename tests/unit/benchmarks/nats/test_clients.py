"""Tests of the raw clients: the messages that they find in a stream, and the bound on messages under way."""

from __future__ import annotations

import socket
import threading

import pytest

from benchmarks.nats import clients
from benchmarks.nats.clients import MessageReader, Pump, Received, msg_bytes, pub

STREAM = (
    b"INFO {}\r\nPING\r\nMSG a.b 1 5\r\nMSG x\r\nMSG a.b 12 _INBOX.x.00000001 0\r\n\r\n"
    b"HMSG _INBOX.x.2 1 16 16\r\nNATS/1.0 503\r\n\r\n\r\nHMSG a 1 reply 12 14\r\nNATS/1.0\r\n\r\nhi\r\n+OK\r\n"
)
MESSAGES = [
    Received(b"a.b", b"", is_refusal=False),
    Received(b"a.b", b"_INBOX.x.00000001", is_refusal=False),
    Received(b"_INBOX.x.2", b"", is_refusal=True),
    Received(b"a", b"reply", is_refusal=False),
]


@pytest.mark.parametrize("size", [1, 2, 7, 30, len(STREAM)])
def test_a_reader_finds_the_messages_in_pieces_of_any_size(size: int) -> None:
    reader = MessageReader()
    pieces = [STREAM[at : at + size] for at in range(0, len(STREAM), size)]
    assert [found for piece in pieces for found in reader.read(piece)] == MESSAGES


def test_the_size_of_a_message_is_that_of_its_bytes() -> None:
    assert pub("a.b", b"12345", "_INBOX.1") == b"PUB a.b _INBOX.1 5\r\n12345\r\n"
    assert pub("a.b", b"12345") == b"PUB a.b 5\r\n12345\r\n"
    assert msg_bytes("a.b", b"12345") == len(b"MSG a.b 1 5\r\n12345\r\n")


def move_through_stand_in(total: int, window: int, lost: int) -> tuple[int, list[int]]:
    """Move messages through a server that loses the last ones.

    Returns:
        The number of messages that the pump counts as received, and the messages under way at each read of the server.
    """
    sent, delivered = pub("a", b"1234"), b"m" * msg_bytes("a", b"1234")
    publisher, reading = socket.socketpair()
    subscriber, writing = socket.socketpair()
    under_way: list[int] = []

    def serve() -> None:
        unread = passed = 0
        while passed < total:
            unread += len(reading.recv(1 << 16))
            under_way.append(-(-unread // len(sent)))
            while unread >= len(sent):
                unread -= len(sent)
                passed += 1
                if passed <= total - lost:
                    writing.sendall(delivered)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    with publisher, subscriber, reading, writing:
        received = Pump(publisher, subscriber, sent * 10, 10, len(delivered), window).move(total)
        thread.join()
    return received, under_way


def test_a_pump_moves_all_messages_and_holds_the_bound() -> None:
    received, under_way = move_through_stand_in(total=995, window=7, lost=0)
    assert received == 995
    assert max(under_way) <= 7


def test_a_pump_tells_lost_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clients, "SILENCE_S", 0.05)
    assert move_through_stand_in(total=20, window=20, lost=3)[0] == 17
