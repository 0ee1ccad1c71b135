"""The events that the overlay reports to its owner (`Overlay.events_received`), and its counters."""

from __future__ import annotations

import enum
from typing import TypeAlias

import msgspec

from iris_overlay.groups.splits import UNSPLIT, TableSplit
from iris_overlay.ids import GroupId, NodeId
from iris_overlay.node_info import NodeInfo

# A msgspec struct is built in a quarter of the time of a slots dataclass, and needs no garbage collection without cycles.


class GroupMember(msgspec.Struct, frozen=True):
    """One member of a watched group."""

    info: NodeInfo
    """The member."""
    attributes: bytes
    """The attributes from its `join_group`, not verified here."""


class DialRequested(msgspec.Struct, frozen=True):
    """Ask the owner to open a link to an address.

    The owner reports `Overlay.dial_succeeded`, `dial_failed` or `dial_rested` with the same address within
    `OverlayConfig.dial_timeout_s`.
    """

    address: str
    """``host:port``."""
    peer: NodeId | None
    """The expected node, if known. If another node answers, report that node; it is no error."""
    is_proven: bool = False
    """Whether the owner gave the address, or a dial has reached the node at this numeric address. Otherwise a peer named the
    address: the owner makes the dial only if the address does not rest, and else reports `Overlay.dial_rested`.
    """


class ConnectFailed(msgspec.Struct, frozen=True):
    """Report that `Overlay.connect` failed: neither node can dial the other.

    Messages for the node have to go through the ring: `Overlay.send`.
    """

    peer: NodeId
    """The node."""


class LinkReleased(msgspec.Struct, frozen=True):
    """Report that the overlay no longer needs a link, because it was idle for a while.

    The owner closes the link and reports `Overlay.link_lost` as closed, unless it uses the link itself. The event is repeated
    later for a link that stays open.
    """

    peer: NodeId
    """The peer."""


class PeerDied(msgspec.Struct, frozen=True):
    """Report the death of a node: it does not answer, or its port has no listener.

    The owner aborts its link to the node, if any, and reports `Overlay.link_lost`.
    """

    peer: NodeId
    """The node."""
    is_silent: bool = True
    """Whether the node does not answer; otherwise its port has no listener."""

    @property
    def reason(self) -> str:
        """The reason of the death, for people."""
        return "it does not answer" if self.is_silent else "nobody listens where it did"


class PeerSuspected(msgspec.Struct, frozen=True):
    """Report a node that did not answer the failure detector: it may soon count as dead, or recover. No action is needed."""

    peer: NodeId
    """The node."""


class PacketReceived(msgspec.Struct, frozen=True):
    """Report a packet sent to the local node through the ring, by `Overlay.send`."""

    source: NodeInfo
    """The sender."""
    payload: bytes
    """The packet."""


class EchoReturned(msgspec.Struct, frozen=True):
    """Report that a datagram of `Overlay.echo` returned."""

    peer: NodeId
    """The node that returned it."""
    number: int
    """The number that `Overlay.echo` returned."""


class DialOutcome(enum.IntEnum):
    """The outcome of a dial that one node made to check the address of another."""

    REACHED = 0
    """The checked node answered."""
    ANOTHER = 1
    """Another node of the network answered."""
    REFUSED = 2
    """The port has no listener, or a firewall refuses the connection."""
    SILENT = 3
    """No answer came in time, or no route exists."""
    BROKEN = 4
    """The connection was accepted but ended before a node answered."""


class DialChecked(msgspec.Struct, frozen=True):
    """Report the outcomes of the dials made by a node for `Overlay.check_dial`."""

    peer: NodeId
    """The node that dialled."""
    outcomes: tuple[tuple[str, DialOutcome], ...]
    """Each dialled address and its outcome; empty if the node could dial no address of the local node."""


class GroupJoined(msgspec.Struct, frozen=True):
    """Report the completed join of a group: all senders to the group know, or the time limit passed."""

    group: GroupId
    """The group of `join_group`. One event per call."""


class GroupLeft(msgspec.Struct, frozen=True):
    """Report the completed leave of a group: all senders to the group know, or the time limit passed."""

    group: GroupId
    """The group of `leave_group`. One event per call."""


class Claimed(msgspec.Struct, frozen=True):
    """Report that the entries of a claim are in a table: all watchers know, or the time limit passed."""

    group: GroupId
    """The table."""
    number: int
    """The number that `claim` returned. One event per number, in the order of the calls."""
    is_confirmed: bool = True
    """Whether a root confirms it. If not, `ClaimConfirmed` follows when a root does."""


class ClaimConfirmed(msgspec.Struct, frozen=True):
    """Report that a root confirms claims after their time limit."""

    group: GroupId
    """The table."""
    number: int
    """The number of the last of them. All earlier claims of the table are confirmed, too."""


class EntriesPromoted(msgspec.Struct, frozen=True):
    """Report that too many nodes have entries of the local node in a table.

    The owner should move to another way, and then remove the entries. The event may come again until then.
    """

    group: GroupId
    """The table."""
    entries: bytes
    """Packed entries (`groups/entries.py`)."""


class TableFull(msgspec.Struct, frozen=True):
    """Report that a table is full, and that the local node has most entries there.

    The owner should describe its entries by fewer. The event comes again until then.
    """

    group: GroupId
    """The table."""
    count: int
    """The number of entries that the local node should have at most."""


class SplitTold(msgspec.Struct, frozen=True):
    """Report that a table of the local node is split, or split in a further way: all watchers know.

    The owner should claim the entries that belong elsewhere there, and then remove them here.
    """

    group: GroupId
    """The table."""
    split: TableSplit
    """The split, with all that was told before."""


class CastsTaken(msgspec.Struct, frozen=True):
    """Report that a root has taken multicasts of the local node, see `Overlay.casts_in_flight`."""

    group: GroupId
    """The group."""


class ViewChanged(msgspec.Struct, frozen=True):
    """Report the members of a watched group: first after `watch_group`, even if empty, then after every change."""

    group: GroupId
    """The group."""
    members: dict[NodeId, GroupMember]
    """All members, including the local node if joined; of a group larger than VIEW_MAX a sample of SAMPLE_MAX. The owner may
    keep this copy but must not change it.
    """
    size: int = 0
    """The number of members. If `members` is a sample, it may be wrong by 3 % for some seconds."""
    is_watched: bool = True
    """Whether changes will be reported. False if the group already has WATCHERS_MAX watchers: then multicast to the group
    rather than send to its members, and call `use_group` before choosing a member.
    """
    is_known: bool = True
    """Whether the members are fully known. False if the root reports an empty group and another keeper of the directory is
    being asked.
    """
    is_doubted: bool = False
    """Whether the root of a doubted group reports an empty group. Call `use_group` before relying on it: members listed
    nevertheless come from another keeper of the directory, a node with a copy of it.
    """


class MemberChange(msgspec.Struct, frozen=True):
    """The change of one member of a table since the last event."""

    member: GroupMember | None
    """The member, if it is new or its info or attributes changed; else None."""
    added: bytes
    """Packed entries (`groups/entries.py`) that the member has now, of a new member all."""
    removed: bytes
    """Packed entries that the member no longer has."""


class TableChanged(msgspec.Struct, frozen=True):
    """Report the changes of a watched table: first everything, even if empty, then every change."""

    group: GroupId
    """The table."""
    changes: dict[NodeId, MemberChange]
    """The new and changed members. The owner may keep them but must not change them."""
    removed: tuple[NodeId, ...]
    """The nodes that are no longer members, with all of their entries."""
    size: int
    """The number of members."""
    is_watched: bool = True
    """Whether changes will be reported. False if the table already has WATCHERS_MAX watchers: then call `use_group` on use."""
    promoted: bytes = b""
    """The packed entries that are promoted since the last event, for ever: too many nodes have them. The owner reaches these
    nodes in another way.
    """
    split: TableSplit = UNSPLIT
    """The split of the table, for ever: which further entries are in other tables."""


class Cast(msgspec.Struct, frozen=True):
    """Report a multicast to a group of the local node: at most once, in the order of its source."""

    group: GroupId
    """The group."""
    source: NodeId
    """The sender, possibly the local node."""
    payload: bytes
    """The message."""


class RootLocated(msgspec.Struct, frozen=True):
    """Report the answer to `Overlay.find_root`."""

    number: int
    """The number passed to `Overlay.find_root`."""
    root: NodeInfo
    """The claimed root, the authenticated sender of the answer."""
    key: bytes
    """The key."""
    path: tuple[NodeId, ...]
    """The nodes on the way of the question, from the local node to the last before the root; only the local node if it is the
    root.
    """
    held: tuple[int, ...]
    """The time in each of these nodes (microseconds); empty if a node withheld its time."""
    leaves: tuple[NodeInfo, ...]
    """The leaf set of the root, the nearest first."""
    member_count: int | None
    """The number of members of the group with that id; None if the root has no directory of it or withholds the number."""
    watcher_count: int | None
    """The number of watchers of the group with that id; None as for `member_count`."""


class Settled(msgspec.Struct, frozen=True):
    """Report the end of the initial search. From now on membership views are reliable, including empty ones."""


class Departed(msgspec.Struct, frozen=True):
    """Report the completed departure of the local node: all peers know, or the time limit passed.

    Close the links when all work is done. Until then keep passing messages on, so that other nodes get their acknowledgements.
    """


class ProtocolViolated(msgspec.Struct, frozen=True):
    """Ask the owner to close the link to a peer and then report `Overlay.link_lost`.

    The overlay ignores all messages of the peer until then.
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
    | TableChanged
    | EntriesPromoted
    | SplitTold
    | TableFull
    | CastsTaken
    | Cast
    | PacketReceived
    | EchoReturned
    | DialChecked
    | RootLocated
    | Settled
    | GroupJoined
    | GroupLeft
    | Claimed
    | ClaimConfirmed
    | Departed
)


class Counters(msgspec.Struct):
    """Counters of dropped messages and abandoned work, by reason: every loss is counted. Only the overlay writes them."""

    messages_invalid: int = 0
    """Link messages with a violation of the protocol, after which the link is closed."""
    messages_unknown: int = 0
    """Group messages of a kind known only to newer versions."""
    messages_unexpected: int = 0
    """Link messages from peers without a link or after a violation, and changes beyond the size limit of a membership view."""
    datagrams_invalid: int = 0
    """Datagrams that were no valid beacon or echo of their sender."""
    answers_suppressed: int = 0
    """Unanswered questions: beyond `answers_per_s_max`, with a full queue, or smaller than their answer."""
    dial_checks_refused: int = 0
    """Refused requests of nodes for a dial check: one was in progress, too many for other nodes, or too many failed before."""
    candidates_refused: int = 0
    """Unknown nodes not dialled because `candidates_max` others wait."""
    dials_timed_out: int = 0
    """Dials without a report from the owner within `OverlayConfig.dial_timeout_s`."""
    dials_rested: int = 0
    """Dials put off by the owner, because the resolved address rested."""
    changes_unconfirmed: int = 0
    """Joins and leaves completed by the time limit instead of all acknowledgements."""
    registrations_refused: int = 0
    """Refused registrations, groups, copies of groups and watchers in copies, beyond the bounds of directories and nodes."""
    claims_refused: int = 0
    """Claims of nodes that claimed more entries of tables in a time than a root takes."""
    casts_lost: int = 0
    """Multicasts of the local node that reached no root, because the ring was broken or too many were in progress."""
    casts_hurried: int = 0
    """Multicasts sent down a tree before its inner nodes had confirmed their children, because too many waited."""
    casts_skipped: int = 0
    """Multicasts of other nodes that failed to arrive before later ones of the same source had waited long enough."""
    permits_invalid: int = 0
    """Registrations, watches, multicasts and copies of directories without a valid permit of their group."""
    kinds_invalid: int = 0
    """Messages for a table as an ordinary group, or for an ordinary group as a table."""
    casts_invalid: int = 0
    """Multicasts not made by their claimed source, or with an impossible number of earlier ones to skip."""
    casts_early: int = 0
    """Multicasts made before the local node joined: kept and replayed by another node, or still in transit."""
    messages_undeliverable: int = 0
    """Messages of the groups layer that the ring could not deliver; their content is sent again."""
    questions_refused: int = 0
    """Unanswered questions for the root of a key, beyond `ANSWERS_PER_S_MAX`."""
    packets_undeliverable: int = 0
    """Packets of the owner for nodes without a link that the ring could not deliver."""
