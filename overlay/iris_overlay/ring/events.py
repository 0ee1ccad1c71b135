"""The events that `Pastry` reports to its owner (`Pastry.events_received`)."""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from iris_overlay.ids import NodeId
from iris_overlay.messages import NodeInfo


class Activated(msgspec.Struct, frozen=True):
    """Report that the node is part of a ring: from now on it delivers, and what was buffered is on its way."""


class LeavesChanged(msgspec.Struct, frozen=True):
    """Report nodes that entered and left the leaf set. What is reported after it was decided with the new leaf set."""

    added: list[NodeInfo]
    """The nodes that entered; each has answered or sent something itself."""
    removed: list[NodeId]
    """The nodes that are no longer among the nearest, whether they died, left or were displaced."""


class Delivered(msgspec.Struct, frozen=True):
    """Report a routed message at its root, which is the local node."""

    key: bytes
    """Where it was routed to."""
    payload: bytes
    """The message that was routed."""
    source: NodeInfo
    """The node that called `Pastry.route`, perhaps the local one."""
    path: tuple[NodeId, ...]
    """The nodes it passed, the source first, the local node not among them. Pass it to `Pastry.answer`."""
    held: tuple[int, ...] = ()
    """How long each of them kept it (microseconds), if the source wants to know and all of them said so."""


class Received(msgspec.Struct, frozen=True):
    """Report a message of `Pastry.send` or `Pastry.answer` of another node."""

    source: NodeInfo
    """The sender."""
    payload: bytes
    """The message."""


class Undeliverable(msgspec.Struct, frozen=True):
    """Report that a message of this node was given up after all retries. It may have arrived nevertheless."""

    key: bytes
    """Where it was routed to; of `Pastry.send` and `Pastry.answer`, the id of the receiver."""
    payload: bytes
    """The message."""
    reason: str
    """Why, for the log."""


class HandoverWanted(msgspec.Struct, frozen=True):
    """Ask the owner to hand over what it keeps for keys whose root is now another node.

    Send it with `Pastry.send`, then call `Pastry.handover_done`: the node is told that it is the root only then (after
    `PastryConfig.handover_timeout_s` at the latest). What was handed over travels on the same link, so it is there first.
    """

    to: NodeInfo
    """The node that takes over; it is in the leaf set already, so `Pastry.is_root` tells which keys are not ours any more."""


class PeerLeft(msgspec.Struct, frozen=True):
    """Report that a peer said good-bye: its id is never used again."""

    peer: NodeId
    """The peer."""


class PeerAnswered(msgspec.Struct, frozen=True):
    """Report that a node that there is no link to answered through the ring: it lives."""

    peer: NodeId
    """The node."""


class PeerSilent(msgspec.Struct, frozen=True):
    """Report a leaf that nobody can ping, since it has no address, and that did not answer through the ring: it is dead."""

    info: NodeInfo
    """The leaf."""


class LeavesDoubted(msgspec.Struct, frozen=True):
    """Ask whether leaves live: another leaf does not have them any more, and it may know better."""

    leaves: list[NodeId]
    """The leaves."""
    witness: NodeId
    """The leaves that do not have them."""


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
