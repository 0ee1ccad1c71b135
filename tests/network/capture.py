"""Packets that pass devices of a namespace, captured to a file that tcpdump and Wireshark read, and read again.

Usage: capture.py NAMESPACE FILE all|received DEVICE [DEVICE...]. It says when it listens (``listening``). Told to stop by a
line of JSON on the standard input, it takes what has come so far, says how many packets there were (``captured``) and how many
it was too slow for (``dropped``), and ends.
"""

from __future__ import annotations

import dataclasses
import json
import select
import socket
import struct
import sys
import time
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tests.network.namespaces import entered

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import BinaryIO

_ETH_P_ALL = 0x0003
_ETH_P_IP = 0x0800
_SOL_PACKET = 263
_PACKET_STATISTICS = 6
_PACKET_OUTGOING = 4
_SO_RCVBUFFORCE = 33
#: What waits in front of a capture that is slower than the packets; more is dropped, and counted.
_BUFFER_BYTES = 64 * 1024 * 1024
#: The largest packet, unsegmented as devices in one machine hand it on.
_PACKET_BYTES_MAX = 1 << 18
#: The file has IP packets without anything around them (LINKTYPE_RAW of pcap).
_LINKTYPE_RAW = 101
_FILE_HEADER = struct.Struct("=IHHiIII")
_PACKET_HEADER = struct.Struct("=IIII")
_MAGIC = 0xA1B2C3D4


def open_socket(namespace: str, device: str) -> socket.socket:
    """Open a socket that is given every packet of a device, in both directions."""
    with entered(namespace):
        found = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, 0)  # deaf until it is bound to the device
        found.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, _BUFFER_BYTES)
        found.bind((device, _ETH_P_ALL))
    found.setblocking(False)
    return found


def take(found: socket.socket, file: BinaryIO, *, is_all: bool) -> int:
    """Write the packets that have come to a file; returns how many."""
    count = 0
    while True:
        try:
            packet, (_, protocol, kind, *_) = found.recvfrom(_PACKET_BYTES_MAX)
        except BlockingIOError:
            return count
        if protocol == _ETH_P_IP and (is_all or kind != _PACKET_OUTGOING):
            now = time.time()
            file.write(_PACKET_HEADER.pack(int(now), int(now % 1 * 1e6), len(packet), len(packet)) + packet)
            count += 1


def main(namespace: str, path: str, mode: str, devices: list[str]) -> None:
    """Capture until told to stop."""
    sockets = [open_socket(namespace, device) for device in devices]
    count = 0
    with Path(path).open("wb") as file:
        file.write(_FILE_HEADER.pack(_MAGIC, 2, 4, 0, 0, _PACKET_BYTES_MAX, _LINKTYPE_RAW))
        print(json.dumps({"event": "listening"}), flush=True)
        is_stopped = False
        while not is_stopped:
            readable, _, _ = select.select([sys.stdin, *sockets], [], [])
            is_stopped = sys.stdin in readable
            count += sum(take(each, file, is_all=mode == "all") for each in sockets)
    statistics = [struct.unpack("=II", each.getsockopt(_SOL_PACKET, _PACKET_STATISTICS, 8)) for each in sockets]
    print(json.dumps({"event": "captured", "count": count, "dropped": sum(dropped for _, dropped in statistics)}), flush=True)


@dataclass(frozen=True, slots=True)
class Packet:
    """One packet of a capture, without its headers."""

    time_s: float
    size: int
    """In bytes, with headers."""
    protocol: int
    """As IP numbers them: 6 for TCP, 17 for UDP."""
    source: tuple[str, int]
    """Address and port; port 0 if it is neither TCP nor UDP, or a later fragment."""
    target: tuple[str, int]
    payload: bytes
    sequence: int = 0
    """Of TCP: the number of the first byte."""
    is_syn: bool = False


def read(path: Path) -> list[Packet]:
    """Read a capture."""
    data, packets = path.read_bytes(), []
    assert _FILE_HEADER.unpack_from(data)[0] == _MAGIC
    offset = _FILE_HEADER.size
    while offset < len(data):
        seconds, microseconds, size, _ = _PACKET_HEADER.unpack_from(data, offset)
        offset += _PACKET_HEADER.size
        packets.append(_parse(seconds + microseconds / 1e6, data[offset : offset + size]))
        offset += size
    return packets


def _parse(time_s: float, data: bytes) -> Packet:
    header = (data[0] & 15) * 4
    size, _, fragment = struct.unpack_from("!HHH", data, 2)
    protocol, hosts = data[9], [socket.inet_ntoa(data[at : at + 4]) for at in (12, 16)]
    body = data[header : size or len(data)]
    packet = Packet(time_s, len(data), protocol, (hosts[0], 0), (hosts[1], 0), body)
    if protocol not in (socket.IPPROTO_TCP, socket.IPPROTO_UDP) or fragment & 0x1FFF:
        return packet
    ports = struct.unpack_from("!HH", body)
    source, target = (hosts[0], ports[0]), (hosts[1], ports[1])
    if protocol == socket.IPPROTO_UDP:
        return dataclasses.replace(packet, source=source, target=target, payload=body[8:])
    payload = body[(body[12] >> 4) * 4 :]
    sequence, is_syn = struct.unpack_from("!I", body, 4)[0], bool(body[13] & 2)
    return dataclasses.replace(packet, source=source, target=target, payload=payload, sequence=sequence, is_syn=is_syn)


def streams(packets: Iterable[Packet]) -> list[bytes]:
    """Return what each connection of TCP carried in each direction: in order, once, and without what was not captured."""
    flows: dict[tuple[object, ...], list[Packet]] = defaultdict(list)
    for packet in packets:
        if packet.protocol == socket.IPPROTO_TCP and packet.payload:
            flows[packet.source, packet.target].append(packet)
    found = []
    for flow in flows.values():
        first = flow[0].sequence
        # Numbers wrap around; and the first packet captured need not be the first one sent.
        pieces = sorted(((each.sequence - first + (1 << 31)) % (1 << 32), each.payload) for each in flow)
        data, end = bytearray(), 0
        for position, payload in pieces:
            data += payload[max(0, end - position) :]
            end = max(end, position + len(payload))
        found.append(bytes(data))
    return found


def contents(packets: Iterable[Packet]) -> list[bytes]:
    """Return all that was carried: streams, and the payload of every packet that is not of TCP."""
    packets = list(packets)
    return streams(packets) + [packet.payload for packet in packets if packet.protocol != socket.IPPROTO_TCP]


def find_common(some: Iterable[bytes], others: Iterable[bytes], size: int = 16) -> bytes | None:
    """Return bytes that occur in both, or None.

    Every run of twice the size that both have is found, and of shorter ones none below the size.
    """
    blocks = {data[at : at + size] for data in some for at in range(0, len(data) - size + 1, size)}
    for data in others:
        for at in range(len(data) - size + 1):
            if data[at : at + size] in blocks:
                return data[at : at + size]
    return None


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4:])
