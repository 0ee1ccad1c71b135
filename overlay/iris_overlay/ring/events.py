"""The events that `Pastry` reports to its owner (`Pastry.events_received`)."""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from iris_overlay.ids import NodeId
from iris_overlay.node_info import NodeInfo


class Activated(msgspec.Struct, frozen=True):
    """Report activation: the node is part of a ring, delivers from now on, and has sent its held messages."""


class LeavesChanged(msgspec.Struct, frozen=True):
    """Report nodes that entered and left the leaf set. All later events were decided with the new leaf set."""

    added: list[NodeInfo]
    """The nodes that entered, all with an answer or message of their own."""
    removed: list[NodeId]
    """The nodes no longer among the nearest: dead, departed or displaced."""


class Delivered(msgspec.Struct, frozen=True):
    """Report a routed message at its root, the local node."""

    key: bytes
    """The key of the message."""
    payload: bytes
    """The payload of the message."""
    source: NodeInfo
    """The node that called `Pastry.route`, possibly the local one."""
    path: tuple[NodeId, ...]
    """The nodes on its path, the source first, without the local node. Pass it to `Pastry.answer`."""
    held: tuple[int, ...] = ()
    """The time in each of these nodes (microseconds), if requested by the source and reported by all."""


class Received(msgspec.Struct, frozen=True):
    """Report a message sent by another node with `Pastry.send` or `Pastry.answer`."""

    source: NodeInfo
    """The sender."""
    payload: bytes
    """The message."""


class Undeliverable(msgspec.Struct, frozen=True):
    """Report a message of the local node as given up after all retries. It may have arrived nevertheless."""

    key: bytes
    """The key of the message; for `Pastry.send` and `Pastry.answer`, the id of the receiver."""
    payload: bytes
    """The message."""
    reason: str
    """The reason, for the log."""


class HandoverWanted(msgspec.Struct, frozen=True):
    """Ask the owner to hand over its state for keys with a new root.

    Send the state with `Pastry.send`, then call `Pastry.handover_done`. The new root is acknowledged
    then, or at the latest after `PastryConfig.handover_timeout_s`. The state travels on the same link, so it arrives first.
    """

    to: NodeInfo
    """The new root, already in the leaf set: `Pastry.is_root` is false for its keys."""


class PeerLeft(msgspec.Struct, frozen=True):
    """Report a peer that left in good order; its id is never used again."""

    peer: NodeId
    """The peer."""


class PeerAnswered(msgspec.Struct, frozen=True):
    """Report the answer of a node without a link, received through the ring: the node lives."""

    peer: NodeId
    """The node."""


class PeerSilent(msgspec.Struct, frozen=True):
    """Report the death of a leaf without an address, which cannot be pinged and did not answer through the ring."""

    info: NodeInfo
    """The leaf."""


class LeavesDoubted(msgspec.Struct, frozen=True):
    """Ask the owner to check leaves that another leaf does not have, because that leaf may know of their deaths."""

    leaves: list[NodeId]
    """The leaves."""
    witness: NodeId
    """The leaf that does not have them."""


class PeerViolated(msgspec.Struct, frozen=True):
    """Ask the owner to close the link to a peer."""

    peer: NodeId
    """The peer."""
    reason: str
    """The violation, for the log."""


PastryEvent: TypeAlias = (
    Activated
    | LeavesChanged
    | LeavesDoubted
    | Delivered
    | Received
    | Undeliverable
    | HandoverWanted
    | PeerLeft
    | PeerAnswered
    | PeerSilent
    | PeerViolated
)
