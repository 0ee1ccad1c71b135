"""The contacts watched by a detector, and the events it reports (`Detector.events_received`)."""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from iris_overlay.ids import NodeId

Address: TypeAlias = tuple[str, int]


class Contact(msgspec.Struct, frozen=True, gc=False):
    """A node for a detector to watch. Detectors keep the given objects: a simulation of many nodes should share them."""

    id: NodeId
    """The node id."""
    address: Address | None
    """The address for datagrams: a port and a numeric host, which helpers can use. None if the node cannot be dialled."""


class Suspected(msgspec.Struct, frozen=True, gc=False):
    """Report that a peer did not answer, neither directly nor through three helpers. `Alive` or `Dead` follows.

    Route around the peer meanwhile. If it has a link, send a question over the link and call `Detector.heard_from` for any
    answer: a firewall may pass streams but drop datagrams.
    """

    peer: NodeId
    """The peer."""


class Alive(msgspec.Struct, frozen=True, gc=False):
    """Report that a peer answered a probe, is no longer suspected or dead, or passed a check."""

    peer: NodeId
    """The peer."""
    rtt_s: float | None
    """The round trip of this probe, a single sample; None if not measured."""


class Dead(msgspec.Struct, frozen=True, gc=False):
    """Report that a peer is dead, or failed a check. A dead contact is still probed; `Alive` follows if it answers."""

    peer: NodeId
    """The peer."""


class Pinged(msgspec.Struct, frozen=True, gc=False):
    """Report a ping from a node that is no contact here but watches this node, perhaps with better knowledge of the ring."""

    peer: NodeId
    """The node."""
    source: Address
    """The source address of its datagram."""


DetectorEvent: TypeAlias = Suspected | Alive | Dead | Pinged
