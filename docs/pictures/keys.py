"""Draw how all keys derive from one secret: each arrow is a derivation that a keyring was seen to make, with its label.

``python docs/pictures/keys.py`` writes the SVG beside it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final
from unittest import mock

from drawing import box, line, picture, text

from iris_security import Keyring, Secret, datagram, envelope, keyring
from iris_security.hkdf import hkdf
from iris_security.identity import Identity

TARGET: Final = Path(__file__).with_name("keys.svg")

WIDTH: Final = 860
HEIGHT: Final = 524
BOX: Final = (190.0, 44.0)
COLUMNS: Final = (20.0, 325.0, 640.0)
#: The first derivations: what each makes, and what that is for; then those from what it makes. By their labels.
FIRST: Final = {
    "iris key id": ("key id", "public: names the secret"),
    "iris link": ("link key", "pre-shared key of handshakes"),
    "iris datagram": ("datagram key", ""),
    "iris door token": ("door key", "signs tokens of clients"),
    "iris cluster databases": ("group key of the cluster", ""),
    "iris permit cluster databases": ("permit key pair", "lets nodes use the group"),
}
SECOND: Final = {
    "iris datagram sender": ("iris datagram", "key of a sender", "encrypts its datagrams"),
    "iris member": ("iris cluster databases", "proof of a membership", "the member list is no forgery"),
    "iris sender": ("iris cluster databases", "key of a sender", "encrypts its messages"),
    "iris group link": ("iris cluster databases", "proof on a link", "then records alone encrypt"),
    "iris tunnel": ("iris cluster databases", "key of tunnels", "pre-shared key of handshakes"),
}
TOPS: Final = {
    "iris key id": 66.0, "iris link": 132.0, "iris datagram": 198.0, "iris door token": 264.0,
    "iris cluster databases": 330.0, "iris permit cluster databases": 430.0,
}  # fmt: skip
SECOND_TOPS: Final = {
    "iris datagram sender": 198.0, "iris member": 264.0, "iris sender": 330.0, "iris group link": 396.0, "iris tunnel": 462.0,
}  # fmt: skip


def labels() -> set[str]:
    """Let a keyring derive everything, and return the labels of what it derived."""
    seen: set[str] = set()

    def derive(secret: bytes, *, salt: bytes = b"", info: bytes = b"", length: int = 32) -> bytes:
        seen.add(info.split(b"\0")[0].decode())  # behind it stands the epoch of a sender
        return hkdf(secret, salt=salt, info=info, length=length)

    with (
        mock.patch.object(keyring, "hkdf", derive),
        mock.patch.object(envelope, "hkdf", derive),
        mock.patch.object(datagram, "hkdf", derive),
    ):
        keys = Keyring(Secret(bytes(32)), network="default")
        group = keys.cluster("databases")
        group.proof(bytes(16))
        group.prove(bytes(32), initiator=True)
        group.tunnel_psk()
        envelope.GroupSealer(group, bytes(16))
        datagram.DatagramSealer(keys.primary, Identity(bytes(32)))
    return seen


def draw() -> str:
    """Return the picture as SVG."""
    assert labels() == FIRST.keys() | SECOND.keys(), "the picture shows other derivations than there are"
    width, height = BOX
    parts = [text(14, 30, "All keys derive from one secret, each with a label of its own", "title", "start")]
    parts += entry(COLUMNS[0], 264.0, "secret", "and the name of the network", "root")
    for label, (name, what) in FIRST.items():
        parts += entry(COLUMNS[1], TOPS[label], name, what, "member" if "id" in name.split() else "box")
        parts += arrow((COLUMNS[0] + width, 264.0 + height / 2), (COLUMNS[1], TOPS[label] + height / 2), label)
    for label, (above, name, what) in SECOND.items():
        parts += entry(COLUMNS[2], SECOND_TOPS[label], name, what, "box")
        parts += arrow((COLUMNS[1] + width, TOPS[above] + height / 2), (COLUMNS[2], SECOND_TOPS[label] + height / 2), label)
    return picture(WIDTH, HEIGHT, "How keys derive from the secret of a network", parts)


def entry(left: float, top: float, name: str, what: str, kind: str) -> list[str]:
    width, height = BOX
    middle = left + width / 2
    parts = [box(left, top, width, height, kind)]
    parts.append(text(middle, top + (20 if what else 27), name))
    return [*parts, text(middle, top + 36, what, "small")] if what else parts


def arrow(start: tuple[float, float], end: tuple[float, float], label: str) -> list[str]:
    return [line(start, (end[0] - 2, end[1]), "blue ask"), text(end[0], end[1] - BOX[1] / 2 - 5, label, "small mono", "start")]


if __name__ == "__main__":
    TARGET.write_text(draw())
