"""The events that the overlay reports to its owner (`Overlay.events_received`)."""

from __future__ import annotations

import enum
from typing import TypeAlias

import msgspec

from iris_overlay.ids import GroupId, NodeId
from iris_overlay.messages import NodeInfo

# msgspec structs cost a quarter of a slots dataclass to build; no cycle is possible, so the collector need not look at them.


class GroupMember(msgspec.Struct, frozen=True):
    """Describe one member of a watched group."""

    info: NodeInfo
    """The member."""
    attributes: bytes
    """The attributes that it passed to `join_group`. Not verified here."""


class DialRequested(msgspec.Struct, frozen=True):
    """Ask the owner to open a link to an address.

    The owner answers each one with `Overlay.dial_succeeded` or `Overlay.dial_failed`, and the same address, within
    `OverlayConfig.dial_timeout_s`.
    """

    address: str
    """``host:port``."""
    peer: NodeId | None
    """The node that should be there, if that is known. Another one may answer: that is no error, report whom you found."""


class ConnectFailed(msgspec.Struct, frozen=True):
    """Report that no link to a node of `Overlay.connect` can be had: it cannot be dialled, and it cannot dial this node.

    What is to reach it nevertheless goes through the ring: `Overlay.send`.
    """

    peer: NodeId
    """The node."""


class LinkReleased(msgspec.Struct, frozen=True):
    """Report that the overlay does not need a link any more: nothing used it for a while.

    The owner closes it cleanly, and reports `Overlay.link_lost` as closed, unless it uses the link itself. It is asked again
    later if it does not.
    """

    peer: NodeId
    """The peer."""


class PeerDied(msgspec.Struct, frozen=True):
    """Report that a node is dead, as far as can be known: it does not answer, or nobody listens where it did.

    The owner breaks the link to it, if there is one, and reports `Overlay.link_lost`.
    """

    peer: NodeId
    """The node."""
    is_silent: bool = True
    """Whether it does not answer; otherwise nobody listens where it did."""

    @property
    def reason(self) -> str:
        """Why it counts as dead, for people."""
        return "it does not answer" if self.is_silent else "nobody listens where it did"


class PeerSuspected(msgspec.Struct, frozen=True):
    """Report that a node does not answer the failure detector: it may be dead soon, or prove that it lives. Nothing to do."""

    peer: NodeId
    """The node."""


class PacketReceived(msgspec.Struct, frozen=True):
    """Report what a node sent to this one through the ring, by `Overlay.send`."""

    source: NodeInfo
    """The sender."""
    payload: bytes
    """The packet."""


class EchoReturned(msgspec.Struct, frozen=True):
    """Report that a datagram of `Overlay.echo` came back."""

    peer: NodeId
    """The node that sent it back."""
    number: int
    """The number that `Overlay.echo` returned."""


class DialOutcome(enum.IntEnum):
    """Say what came of a dial that one node made for another one to know."""

    REACHED = 0
    """The node that wanted to know answered."""
    ANOTHER = 1
    """Another node of the network answered."""
    REFUSED = 2
    """Nobody listens there, or a firewall says so."""
    SILENT = 3
    """Nothing came back in time, or there is no way there."""
    BROKEN = 4
    """Somebody took the connection, and it ended without a word of a node."""


class DialChecked(msgspec.Struct, frozen=True):
    """Report what came of the dials that a node made for `Overlay.check_dial`."""

    peer: NodeId
    """The node that dialled."""
    outcomes: tuple[tuple[str, DialOutcome], ...]
    """Each address that it dialled; none where it could dial no address of this node."""


class GroupJoined(msgspec.Struct, frozen=True):
    """Report that everyone who may send to the group was told, or that the bound passed."""

    group: GroupId
    """The group of `join_group`. One event per call."""


class GroupLeft(msgspec.Struct, frozen=True):
    """Report that everyone who may send to the group was told that the local node left it, or that the bound passed."""

    group: GroupId
    """The group of `leave_group`. One event per call."""


class ViewChanged(msgspec.Struct, frozen=True):
    """Report the members of a watched group: at first after `watch_group`, even when empty, then after every change."""

    group: GroupId
    """The group."""
    members: dict[NodeId, GroupMember]
    """All members, the local node among them if it joined; of a group of more than VIEW_MAX a sample of so many. It is a copy:
    keep it, but do not change it."""
    size: int = 0
    """How many members the group has. Of a group with a sample it may be 3 % off for some seconds."""
    is_watched: bool = True
    """Whether changes will be told. If not, for the group has WATCHERS_MAX watchers already, cast to it rather than send to
    its members, and call `use_group` before choosing one."""
    is_known: bool = True
    """Whether that is all that can be known. If not, the root says that nobody is there, and another keeper is being asked."""
    is_doubted: bool = False
    """Whether the root of a group that is doubted says that nobody is there. Call `use_group` before believing it: members that
    are named all the same are those that another keeper knows."""


class Cast(msgspec.Struct, frozen=True):
    """Report what a node cast to a group that the local node is a member of: at most once, in the order of its source."""

    group: GroupId
    """The group."""
    source: NodeId
    """The node that cast it, perhaps the local one."""
    payload: bytes
    """The message."""


class RootLocated(msgspec.Struct, frozen=True):
    """Report the answer to `Overlay.find_root`."""

    number: int
    """The number that was asked with."""
    root: NodeInfo
    """The node that says that it is the root, and surely sent the answer."""
    key: bytes
    """The key."""
    path: tuple[NodeId, ...]
    """The nodes that the question passed, the local one first, the root not among them; only the local node if that is the
    root."""
    held: tuple[int, ...]
    """How long each of them kept it (microseconds); nothing if one did not say so."""
    leaves: tuple[NodeInfo, ...]
    """The leaf set of the root, the nearest first."""
    member_count: int | None
    """How many members the group of that id has; None if the root has no directory of it, or does not tell."""
    watcher_count: int | None
    """How many nodes watch it; likewise."""


class Settled(msgspec.Struct, frozen=True):
    """Report that the search at the start is finished. Views are now worth believing, empty ones too."""


class Departed(msgspec.Struct, frozen=True):
    """Report that everyone was told that the local node leaves, or that the bound passed.

    Close the links when nothing runs any more; until then, go on handing over messages, so that others get their
    acknowledgements.
    """


class ProtocolViolated(msgspec.Struct, frozen=True):
    """Ask the owner to close the link to a peer, and to report `Overlay.link_lost` then.

    Until then, whatever the peer sends is ignored.
    """

    peer: NodeId
    """The peer."""
    reason: str
    """The violation, for the log."""


Event: TypeAlias = (
    DialRequested
    | ConnectFailed
    | LinkReleased
    | PeerDied
    | PeerSuspected
    | ProtocolViolated
    | ViewChanged
    | Cast
    | PacketReceived
    | EchoReturned
    | DialChecked
    | RootLocated
    | Settled
    | GroupJoined
    | GroupLeft
    | Departed
)
