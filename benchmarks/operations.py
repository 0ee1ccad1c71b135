"""The costs of the operations that a message is made of, each by itself: ciphers, signatures, copies, calls of the system.

They are the limits of everything else: no message can cost less than the operations that it needs. docs/performance.md reckons
with them.
"""

from __future__ import annotations

import socket
import time
from functools import partial
from typing import TYPE_CHECKING, Final

from benchmarks.harness import Sample, Section, Trial
from iris_security import Identity, Keyring, Purpose, RecordSealer, Secret, Suite, verify_signature

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

#: Sizes of messages, and of a full record.
SIZES: Final = (64, 1024, 16 * 1024, 64 * 1024, 240 * 1024)
#: How long each operation is repeated; the best of several parts counts, for others may use the processor meanwhile.
MEASURED_S, QUICK_MEASURED_S = 0.3, 0.005
PARTS: Final = 10


def section(*, quick: bool) -> Section:
    """Return every operation."""
    seconds = QUICK_MEASURED_S if quick else MEASURED_S
    return Section(
        "operations",
        "What a message is made of, each by itself: processor time of one, the best of several series.",
        [Trial(name, partial(_measure, operation, seconds)) for name, operation in _operations().items()],
    )


def _operations() -> dict[str, Callable[[], object]]:
    identity, keyring = Identity(bytes(32)), Keyring(Secret(bytes(range(32))))
    keys, handshake_hash = keyring.cluster("cluster"), bytes(32)
    signature = identity.sign(Purpose.OVERLAY, bytes(100))
    found: dict[str, Callable[[], object]] = {}
    for suite in Suite:
        for size in SIZES:
            found[f"seal {_size(size)}, {suite.name}"] = partial(RecordSealer(bytes(32), suite).seal, bytes(size))
    for size in SIZES:
        found[f"copy {_size(size)}"] = partial(b"".join, [bytes(size // 2), bytes(size - size // 2)])
    for size in SIZES:
        found[f"write to a socket and read {_size(size)}"] = partial(_pass_on, *_connected(), bytes(size), bytearray(size))
    found["sign"] = partial(identity.sign, Purpose.OVERLAY, bytes(100))
    found["check a signature"] = partial(verify_signature, Purpose.OVERLAY, bytes(100), signature)
    found["prove a group on a link"] = partial(keys.prove, handshake_hash, initiator=True)
    found["derive the keys of a group"] = partial(keyring.cluster, "another")
    return found


def _size(size: int) -> str:
    return f"{size} B" if size < 1024 else f"{size // 1024} KiB"


def _connected() -> tuple[socket.socket, socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        near = socket.create_connection(server.getsockname())
        return near, server.accept()[0]


def _pass_on(near: socket.socket, far: socket.socket, data: bytes, buffer: bytearray) -> None:
    view, sent, got = memoryview(data), 0, 0
    while got < len(data):
        if sent < len(data):
            sent += near.send(view[sent : sent + (64 << 10)])
        got += far.recv_into(memoryview(buffer)[got:])


def _measure(operation: Callable[[], object], seconds: float) -> Sequence[Sample]:
    count, taken = 1, 0.0
    while taken < seconds / PARTS:
        count *= 2
        taken = _time(operation, count)
    best = min(_time(operation, count) for _ in range(PARTS))
    return [Sample("processor time", best / count * 1e6, "us")]


def _time(operation: Callable[[], object], count: int) -> float:
    begun = time.process_time()
    for _ in range(count):
        operation()
    return time.process_time() - begun
