"""The hello of a link, and facts: optional typed statements of a node about itself (docs/wire.md).

A fact is a type, a length and a value. Facts follow the zone in the hello of a link, and the rank in the registration of a
member. A receiver skips unknown types, so a new type is compatible with older nodes.

A hello is a node's description of itself right after the handshake: the node description of overlay messages, then the node's
facts. Overlay messages omit the facts: a node description is repeated in leaf sets and membership views, and a peer needs the
facts once.
"""

from __future__ import annotations

import re
import struct
from typing import TYPE_CHECKING, Annotated, Final

import msgspec
from msgspec import Meta

from iris_overlay.node_info import NodeInfo

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "FACTS_BYTES_MAX",
    "NAME",
    "NAME_LENGTH_MAX",
    "TOPICS",
    "TOPIC_VERSION",
    "decode_facts",
    "decode_hello",
    "encode_facts",
    "encode_hello",
    "is_name",
    "name_in",
    "named",
    "topic_version_in",
]

#: The type of a node's name: a human-readable label in printable ASCII.
NAME: Final = 1

#: The type of the version of a node's topics: one byte. Nodes of different versions do not receive each other's publications.
TOPICS: Final = 2

#: The version of this node's topics. Version 1, of nodes that tell none, had a group for each prefix of a topic. A change of
#: this number belongs to a change of the realm's label in ``iris_security.keyring``.
TOPIC_VERSION: Final = 2

#: Longest name of a node, in characters. Too small: host and program do not fit; too large: lists of nodes are wider than a
#: terminal, and each member costs its watchers as many bytes.
NAME_LENGTH_MAX: Final = 64
#: Bytes of all facts of a node. Too small: no room for new facts; too large: they do not fit into the 256 bytes of a
#: registration beside its proof, weight and rank.
FACTS_BYTES_MAX: Final = 192

_HEAD: Final = struct.Struct(">BB")
_VALUE_BYTES_MAX: Final = 0xFF
_FIRST_TOPIC_VERSION: Final = 1
_NAME: Final = re.compile(r"[!-~](?:[ -~]*[!-~])?")


def encode_facts(facts: Mapping[int, bytes]) -> bytes:
    """Encode facts.

    Args:
        facts: The values by type, each of at most 255 bytes; all together at most ``FACTS_BYTES_MAX`` bytes, including two
            bytes for each fact.

    Raises:
        ValueError: A value or the total is too large.
    """
    if any(len(value) > _VALUE_BYTES_MAX for value in facts.values()):
        raise ValueError(f"the value of a fact is larger than {_VALUE_BYTES_MAX} bytes")
    data = b"".join(_HEAD.pack(kind, len(value)) + value for kind, value in facts.items())
    if len(data) > FACTS_BYTES_MAX:
        raise ValueError(f"facts of {len(data)} bytes are larger than {FACTS_BYTES_MAX}")
    return data


def decode_facts(data: bytes) -> dict[int, bytes]:
    """Decode the values of facts by type, including unknown types.

    Of repeated types the first fact counts; a truncated one is ignored.
    """
    found: dict[int, bytes] = {}
    at = 0
    while at + _HEAD.size <= len(data):
        kind, size = _HEAD.unpack_from(data, at)
        at += _HEAD.size
        if at + size > len(data):
            break
        found.setdefault(kind, data[at : at + size])
        at += size
    return found


def is_name(text: str) -> bool:
    """Tell whether a text is a valid node name: 1 to 64 printable ASCII characters, without blanks at its ends."""
    return len(text) <= NAME_LENGTH_MAX and _NAME.fullmatch(text) is not None


def named(name: str) -> bytes:
    """Encode the facts of a node that has only a name; empty for an empty name."""
    return encode_facts({NAME: name.encode()}) if name else b""


def name_in(data: bytes) -> str:
    """Decode the name in a node's facts; empty if the name is absent or invalid."""
    name = decode_facts(data).get(NAME, b"").decode("ascii", "replace") if data else ""
    return name if is_name(name) else ""


def topic_version_in(data: bytes) -> int:
    """Decode the version of the topics of a node from its facts; 1 if the node tells none."""
    value = decode_facts(data).get(TOPICS, b"")
    return value[0] if len(value) == 1 else _FIRST_TOPIC_VERSION


class _Hello(NodeInfo, frozen=True, array_like=True):
    facts: Annotated[bytes, Meta(max_length=FACTS_BYTES_MAX)] = b""


_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(_Hello)


def encode_hello(info: NodeInfo, facts: bytes = b"") -> bytes:
    """Encode a hello.

    Args:
        facts: The result of :func:`~iris_py.wire.facts.encode_facts`; an empty value is omitted.
    """
    return _ENCODER.encode(_Hello(info.id, info.addresses, info.zone, facts) if facts else info)


def decode_hello(data: bytes) -> tuple[NodeInfo, bytes] | None:
    """Decode a hello; return the node and its facts, or None if it is malformed."""
    try:
        hello = _DECODER.decode(data)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None
    return NodeInfo(hello.id, hello.addresses, hello.zone), hello.facts
