"""The line between two sites: carries IP packets from one TUN device to the other, late, with losses, or not at all.

Usage: wire.py NAMESPACE NAMESPACE DEVICE. It makes a device of that name in each of them, says so, and takes one `Condition` as
a line of JSON at a time on the standard input, each answered by the `Counts` so far. It ends with its standard input.
"""

from __future__ import annotations

import dataclasses
import fcntl
import json
import os
import random
import select
import struct
import sys
import time
from collections import deque
from dataclasses import dataclass

from tests.network.namespaces import entered

_TUNSETIFF = 0x400454CA
_IFF_TUN = 0x0001
_IFF_NO_PI = 0x1000
_PACKET_BYTES_MAX = 65536
#: Packets on their way in one direction; more are lost, as in any queue of a router.
_QUEUE_MAX = 20_000
#: What waits in front of a slow line; more is lost. A second of 2 Mbit/s, as cheap routers have.
_WAITING_BYTES_MAX = 256 * 1024


@dataclass(frozen=True, slots=True)
class Condition:
    """A line does this to packets, in both directions alike."""

    delay_s: float = 0.0
    "How long a packet is on its way."
    loss: float = 0.0
    "The probability that a packet is lost."
    is_cut: bool = False
    "Whether nothing passes at all."
    rate_bytes_s: float = 0.0
    "How much passes in each direction; 0 for as much as comes. What waits for it is bounded by `_WAITING_BYTES_MAX`."


@dataclass(slots=True)
class Counts:
    """Packets so far, both directions together."""

    passed: int = 0
    lost: int = 0
    cut: int = 0


def open_device(namespace: str, name: str) -> int:
    """Make the device in a namespace; it vanishes when the descriptor is closed."""
    with entered(namespace):
        device = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        fcntl.ioctl(device, _TUNSETIFF, struct.pack("16sH22x", name.encode(), _IFF_TUN | _IFF_NO_PI))
    return device


class Wire:
    """Two devices and the packets between them."""

    def __init__(self, devices: tuple[int, int]) -> None:
        self.condition = Condition()
        self.counts = Counts()
        self._other = {devices[0]: devices[1], devices[1]: devices[0]}
        self._queues: dict[int, deque[tuple[float, bytes]]] = {device: deque() for device in devices}
        self._free_at = dict.fromkeys(devices, 0.0)
        self._rng = random.Random(1)

    def receive(self, device: int) -> None:
        """Take what a site has sent."""
        condition, counts, queue = self.condition, self.counts, self._queues[self._other[device]]
        rate = condition.rate_bytes_s
        while True:
            try:
                packet = os.read(device, _PACKET_BYTES_MAX)
            except BlockingIOError:
                return
            if packet[0] >> 4 != 4:
                continue  # the kernel's own IPv6 announcements
            now = time.monotonic()  # of each: it may have been sent since the one before it was read, and is never early
            if condition.is_cut:
                counts.cut += 1
            elif self._rng.random() < condition.loss or len(queue) >= _QUEUE_MAX:
                counts.lost += 1
            elif not rate:
                queue.append((now + condition.delay_s, packet))
            elif (self._free_at[device] - now) * rate > _WAITING_BYTES_MAX:
                counts.lost += 1
            else:
                self._free_at[device] = max(now, self._free_at[device]) + len(packet) / rate
                queue.append((self._free_at[device] + condition.delay_s, packet))

    def deliver(self) -> float | None:
        """Hand over what has arrived; returns the seconds until the next packet does."""
        now = time.monotonic()
        for device, queue in self._queues.items():
            while queue and queue[0][0] <= now:
                _, packet = queue.popleft()
                if self.condition.is_cut:
                    self.counts.cut += 1
                    continue
                self.counts.passed += 1
                try:
                    os.write(device, packet)
                except OSError:
                    pass  # a site that is just coming up or going down
        due = [queue[0][0] for queue in self._queues.values() if queue]
        return max(0.0, min(due) - now) if due else None


def main(namespaces: tuple[str, str], name: str) -> None:
    """Carry packets until the standard input ends."""
    devices = (open_device(namespaces[0], name), open_device(namespaces[1], name))
    wire = Wire(devices)
    said = b""
    print(json.dumps({"event": "ready"}), flush=True)
    while True:
        readable, _, _ = select.select([0, *devices], [], [], wire.deliver())
        for device in devices:
            if device in readable:
                wire.receive(device)
        if 0 in readable:
            piece = os.read(0, 65536)
            if not piece:
                return
            *lines, said = (said + piece).split(b"\n")
            for line in lines:
                wire.condition = Condition(**json.loads(line))
                print(json.dumps({"event": "counts", **dataclasses.asdict(wire.counts)}), flush=True)


if __name__ == "__main__":
    main((sys.argv[1], sys.argv[2]), sys.argv[3])
