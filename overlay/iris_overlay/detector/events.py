"""Contacts that a detector watches, and the events that it reports (`Detector.events_received`)."""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from iris_overlay.ids import NodeId

Address: TypeAlias = tuple[str, int]


class Contact(msgspec.Struct, frozen=True, gc=False):
    """Name a node to watch. Detectors keep what they are given: in a simulation of many nodes, share it among them."""

    id: NodeId
    """The node id."""
    address: Address | None
    """Where datagrams reach it: a numeric host, so that helpers can be told, and a port. None when it cannot be dialled."""


class Suspected(msgspec.Struct, frozen=True, gc=False):
    """Report that a peer, and three others on its behalf, did not answer. An `Alive` or a `Dead` follows.

    Route around it meanwhile. If there is a link to it, ask something over it and call `Detector.heard_from` when anything
    comes back: where a firewall lets streams pass and drops datagrams, this alone keeps it alive.
    """

    peer: NodeId
    """The peer."""


class Alive(msgspec.Struct, frozen=True, gc=False):
    """Report that a peer answered a probe, that it is no longer suspected or dead, or how a check ended."""

    peer: NodeId
    """The peer."""
    rtt_s: float | None
    """The round trip of this probe, one sample, not smoothed; None when it was not measured."""


class Dead(msgspec.Struct, frozen=True, gc=False):
    """Report that a peer is dead, or how a check ended. While it is a contact, it is still asked; `Alive` if it answers."""

    peer: NodeId
    """The peer."""


class Pinged(msgspec.Struct, frozen=True, gc=False):
    """Report that a node which is no contact here watches this one: it may know something that is not known here."""

    peer: NodeId
    """The node."""
    source: Address
    """Where its datagram came from."""


DetectorEvent: TypeAlias = Suspected | Alive | Dead | Pinged
