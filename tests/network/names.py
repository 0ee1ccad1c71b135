"""A name server in a namespace: one name has several addresses, in an order that never changes.

Usage: names.py ADDRESS NAME IP[,IP...]. It says ``ready`` when it listens, and ends with its standard input.
"""

from __future__ import annotations

import json
import selectors
import socket
import struct
import sys

_A, _INTERNET = 1, 1
_ANSWER_FLAGS = 0x8580  # an answer, by who has authority; recursion was asked for and is had
_NO_SUCH_NAME = 3
_HEADER = struct.Struct(">6H")


def answer(question: bytes, name: str, addresses: list[str]) -> bytes:
    """Return the answer to a question with one entry (RFC 1035 section 4.1)."""
    (number, *_rest) = _HEADER.unpack_from(question)
    labels, position = [], _HEADER.size
    while length := question[position]:
        labels.append(question[position + 1 : position + 1 + length].decode())
        position += 1 + length
    kind, _class = struct.unpack_from(">2H", question, position + 1)
    entry = question[_HEADER.size : position + 5]
    is_known = ".".join(labels) == name
    found = addresses if is_known and kind == _A else []
    header = _HEADER.pack(number, _ANSWER_FLAGS | (0 if is_known else _NO_SUCH_NAME), 1, len(found), 0, 0)
    # Each refers to the name at the beginning of the question, and counts for a second.
    records = [struct.pack(">3HIH", 0xC00C, _A, _INTERNET, 1, 4) + socket.inet_aton(address) for address in found]
    return header + entry + b"".join(records)


def main() -> None:
    """Answer until the standard input ends."""
    here, name, addresses = sys.argv[1], sys.argv[2], sys.argv[3].split(",")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock, selectors.DefaultSelector() as selector:
        sock.bind((here, 53))
        print(json.dumps({"event": "ready"}), flush=True)
        selector.register(sock, selectors.EVENT_READ)
        selector.register(sys.stdin, selectors.EVENT_READ)
        while True:
            for key, _ in selector.select():
                if key.fileobj is not sock:
                    return
                question, asker = sock.recvfrom(512)
                sock.sendto(answer(question, name, addresses), asker)


if __name__ == "__main__":
    main()
