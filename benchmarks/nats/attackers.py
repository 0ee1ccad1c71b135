"""Clients of a NATS door that mean harm. Each is a role of a process, and goes on until the process ends."""

from __future__ import annotations

import random
import select
import socket
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from benchmarks.worker import tell

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.worker import Parameters

#: The attacker has an address of its own, as one from another machine has.
SOURCE: Final = "127.0.0.2"
#: A user without rights that an honest client has not, for attacks of clients that are let in.
CONNECT: Final = b'CONNECT {"verbose":false,"pedantic":false,"headers":true,"auth_token":"attacker"}\r\n'
LONGEST: Final = b"n" * 255
#: Connections of the attacks that hold some.
HELD: Final = 60
#: Connections a second of the attacks that begin many.
RATE: Final = 1000
PIECE_BYTES: Final = 64 * 1024
PATIENCE_S: Final = 5.0


class Attacker:
    """A connection that sends as fast as the door takes, and reads all that comes."""

    def __init__(self, port: int, first: bytes = CONNECT) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), PATIENCE_S, (SOURCE, 0))
        self.socket.sendall(first)

    def send(self, data: bytes) -> None:
        """Send bytes.

        Raises:
            ConnectionError: The door has ended the connection.
        """
        self.socket.setblocking(False)
        view = memoryview(data)
        while view:
            readable, writable, _ = select.select([self.socket], [self.socket], [])
            if readable and not self.socket.recv(1 << 20):
                raise ConnectionError
            if writable:
                view = view[self.socket.send(view[:PIECE_BYTES]) :]

    def read_on(self) -> None:
        """Read all that comes."""
        self.socket.setblocking(True)
        self.socket.settimeout(None)
        while self.socket.recv(1 << 20):
            pass


def a_busy_neighbour(_port: int) -> None:
    """Take a processor, without a connection: the part of the machine in the figures of all attackers."""
    while True:
        pass


def silence(port: int) -> None:
    """Hold connections without a word, and begin them again."""
    while True:
        held = [Attacker(port, b"") for _ in range(HELD)]
        for each in held:
            each.read_on()


def a_byte_a_second(port: int) -> None:
    """Send an endless control line in single bytes, over many connections."""
    held = [Attacker(port) for _ in range(HELD)]
    for byte in b"SUB " + b"a" * 4000:
        for each in held:
            each.socket.send(bytes((byte,)))
            time.sleep(1 / HELD)


def endless_sizes(port: int) -> None:
    """Announce 2^63 bytes."""
    _begin_many(port, lambda _number: CONNECT + b"PUB a 9223372036854775808\r\n", RATE // 10)


def a_million_subscriptions(port: int) -> None:
    """Subscribe to a million topics, again and again."""
    client = Attacker(port)
    while True:
        for start in range(0, 1_000_000, 1000):
            client.send(b"".join(b"SUB many.%d %d\r\n" % (number, number) for number in range(start, start + 1000)))


def everything(port: int) -> None:
    """Subscribe to everything 10,000 times, and take all."""
    client = Attacker(port)
    client.send(b"".join(b"SUB > %d\r\n" % number for number in range(10_000)))
    client.read_on()


def sixteen_wildcards(port: int) -> None:
    """Subscribe to thousands of patterns of 16 tokens, nearly all wildcards, and publish along them."""
    rng = random.Random(1)
    patterns = {b".".join([b"a", *rng.choices((b"a", b"*"), k=14), b"z"]) for _ in range(9000)}
    client = Attacker(port)
    client.send(b"".join(b"SUB %b %d\r\n" % (each, number) for number, each in enumerate(patterns)))
    client.send(b"".join(b"SUB %b s%d\r\n" % (b".".join([b"*"] * 16), number) for number in range(1000)))
    number = 0
    while True:
        number += 1
        client.send(b"PUB a%b.%d 0\r\n\r\n" % (b".a" * 14, number))
        time.sleep(1 / RATE)


def nothing_read(port: int) -> None:
    """Read nothing while 64 MiB come in a second, and connect again."""
    sender = Attacker(port)
    payload = b"PUB flood %d\r\n%b\r\n" % (PIECE_BYTES, bytes(PIECE_BYTES))
    while True:
        reader = Attacker(port)
        reader.send(b"SUB flood 1\r\n")
        for _ in range(1024):
            sender.send(payload)
            time.sleep(1 / 1024)
        reader.socket.close()


def wrong_passwords(port: int) -> None:
    """Connect 1,000 times a second with wrong passwords."""
    _begin_many(port, lambda number: b'CONNECT {"user":"ann","pass":"%d"}\r\nPING\r\n' % number, RATE)


def guessed_inboxes(port: int) -> None:
    """Subscribe to inboxes of others, as far as they can be guessed."""
    client, rng = Attacker(port), random.Random(1)
    while True:
        client.send(b"".join(b"SUB _INBOX.%d.> 1\r\nUNSUB 1\r\n" % rng.getrandbits(62) for _ in range(1000)))


def replies_for_others(port: int) -> None:
    """Reply to inboxes of others, and to inboxes that nobody has."""
    client, rng = Attacker(port), random.Random(1)
    while True:
        client.send(b"".join(b"PUB _INBOX.%d.1 1\r\nx\r\n" % rng.getrandbits(62) for _ in range(1000)))


def other_protocols(port: int) -> None:
    """Begin HTTP and TLS, 100 times a second."""
    hellos = (b"GET / HTTP/1.1\r\nHost: door\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(500))
    _begin_many(port, lambda number: hellos[number % 2], RATE // 10)


def the_longest_names(port: int) -> None:
    """Have 255 bytes in each field, forbidden names and names with control characters among them."""
    client = Attacker(port)
    lines = b"SUB %b %b %b\r\n" % ((LONGEST,) * 3) + b"UNSUB %b 1\r\n" % LONGEST
    lines += b"PUB %b %b 1\r\nx\r\n" % ((LONGEST,) * 2) + b"PUB iris.%b 0\r\n\r\nPUB \x01\x7f\xff%b 0\r\n\r\n" % (
        (LONGEST,) * 2
    )
    while True:
        client.send(lines * 100)


def _begin_many(port: int, first: Callable[[int], bytes], rate: int) -> None:
    """Begin connections at a rate, and close each behind the first bytes."""
    number = 0
    while True:
        number += 1
        with suppress(OSError):
            Attacker(port, first(number)).socket.close()
        time.sleep(1 / rate)


ATTACKS: Final[tuple[Callable[[int], None], ...]] = (
    a_busy_neighbour,
    silence,
    a_byte_a_second,
    endless_sizes,
    a_million_subscriptions,
    everything,
    sixteen_wildcards,
    nothing_read,
    wrong_passwords,
    guessed_inboxes,
    replies_for_others,
    other_protocols,
    the_longest_names,
)


def attack(parameters: Parameters) -> None:
    """Make an attack until the process ends; begin again when the door ends a connection."""
    chosen = next(each for each in ATTACKS if each.__name__ == parameters["attack"])
    tell()
    while True:
        with suppress(OSError):
            chosen(parameters["port"])
        time.sleep(1 / RATE)
