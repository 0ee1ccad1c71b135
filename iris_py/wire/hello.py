"""The hello of a link: a node's description of itself right after the handshake (docs/wire.md).

A hello is the node description of overlay messages, then the node's facts. Overlay messages omit the facts: a node description
is repeated in leaf sets and membership views, and a peer needs the facts once.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from iris_overlay.messages import NodeInfo
from iris_py.wire.facts import FACTS_BYTES_MAX

__all__ = ["decode_hello", "encode_hello"]


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
