"""The hello of a link: what a node says of itself right after the handshake (docs/wire.md).

It is a description of the node as in messages of the overlay, and behind that its facts, which those messages do not carry:
a node description is repeated in leaf sets and views, and the facts of a peer are wanted once.
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
    """Write a hello.

    Args:
        info: The node.
        facts: What :func:`~iris_py.wire.facts.encode_facts` has written; a node without any leaves the element out.
    """
    return _ENCODER.encode(_Hello(info.id, info.addresses, info.zone, facts) if facts else info)


def decode_hello(data: bytes) -> tuple[NodeInfo, bytes] | None:
    """Read a hello; returns the node and its facts, or None if it is malformed."""
    try:
        hello = _DECODER.decode(data)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None
    return NodeInfo(hello.id, hello.addresses, hello.zone), hello.facts
