"""The messages of the groups layer: msgpack arrays with the message's tag first.

They travel as payloads of the ring, routed to a key or sent to a node:

* Members send `Register` and `Unregister` to the root of a group, which answers `Applied` when all followers were told.
* Watchers send `Watch` and `Unwatch`; the root sends `View` (everything) and `Change` (since a version), acknowledged by
  `Told`.
* The root keeps copies of its directory at its neighbours by `Copy`, acknowledged by `Copied`, and a tree of the members by
  `Children`, acknowledged by `Adopted`.
* Members give their neighbours the list of their groups (`Entrust`); the neighbours report a death to the roots (`Accuse`).
* Multicasts go up to the root (`CastUp`), which answers `CastTaken`, and down the tree of the members (`CastDown`).
* Any node may ask a root for its identity (`FindRoot`, `RootFound`).

A **table** is a group whose members register entries (entries.py). It has messages of its own:

* Members send `Claim` with the changes of their entries; the root answers `Applied`, or `Reclaim` to get all of them.
* Watchers send `WatchTable`; the root sends `TablePart`, acknowledged by `Told`. A new root sends the checksum of a large table
  first.
* The root keeps copies by `TableCopy`, acknowledged by `Copied`.

**Stamps** order statements about a membership: `incarnation << 32 | sequence`. A node increments the sequence with each change,
and the incarnation after each mistaken report of its death, as in SWIM (Das, Gupta, Motivala 2002, section 4.2). The highest
stamp is right; an accusation has the highest of its incarnation.

**Versions** order the states of a directory: `epoch << 32 | counter`. A node that takes a directory over begins a new epoch.

**Times** (`since`, `at`) are milliseconds since 1970, by the clock of the sender. A member rejects multicasts made before its
join, so that an attacker cannot have a new member execute an old multicast. Because clocks differ, the root reports the member
with the latest time (`Later`). A new member then moves its joining time, and a source its sending time, beyond it. So a new
member gets exactly the multicasts sent after its join.

Decoding checks all bounds, and never allocates by a received number.

This module omits `from __future__ import annotations`, which would make msgspec evaluate each annotation for the decoder.
"""

from hashlib import sha256
from typing import Annotated, Final, TypeAlias, get_args

import msgspec
from msgspec import Meta

from iris_overlay.environment import SIGNATURE_BYTES_MAX
from iris_overlay.errors import MessageError, UnknownMessageError
from iris_overlay.groups.entries import CHECKSUM_BYTES, ENTRIES_BYTES_MAX, ENTRIES_MAX, is_packed
from iris_overlay.groups.promotions import PROMOTED_BYTES_MAX
from iris_overlay.groups.splits import SPLIT_BYTES_MAX, is_split
from iris_overlay.ids import ID_BYTES, GroupId, NodeId
from iris_overlay.node_info import (
    ATTRIBUTES_BYTES_MAX,
    GROUPS_PER_NODE_MAX,
    MESSAGE_BYTES_MAX,
    SEQUENCE_MAX,
    NodeInfo,
    is_of_unknown_kind,
)
from iris_overlay.ring.messages import LEAVES_TOLD_MAX, PATH_LENGTH_MAX

#: The largest number of members in a whole membership view: their messages go directly, with one encryption and no signature.
#: Too small: broadcasts and publications go down a tree, at ten times the processor time. Too large: a view of 256 members has
#: 47 KB, each watcher is told each change, and a sender has a link to each member.
VIEW_MAX: Final = 256

#: The number of members in a sample of a larger group: enough for a choice of two among live and near ones. Too large: requests
#: gain nothing from more, and the root sends a sample to each of its watchers.
SAMPLE_MAX: Final = 32

#: The largest number of members that keep a link to their root, and that the root asks for after a takeover: both notice the
#: death of the other first. Too small: deaths behind a partition are found at the renewals. Too large: a root has many links.
PROBED_MEMBERS_MAX: Final = 32

#: The largest number of watchers of a group. Too small: more nodes have to poll. Too large: the root sends each change to all
#: of them, which overloads one node.
WATCHERS_MAX: Final = 256

#: The largest number of copies of a multicast sent by one node, the fan-out of the tree: 1,000 members are two hops from the
#: root, 30,000 three.
FANOUT_MAX: Final = 32

#: The largest number of groups in one message: with full attributes 95 KiB. Too small: more messages; too large: following
#: messages on the link are delayed.
BATCH_MAX: Final = 256

#: The largest number of members, and of watchers, in one part of a copy: about 21 KiB together, and 350 KiB with the longest
#: addresses. Too small: more messages; too large: the ring may refuse them.
COPY_MEMBERS_MAX: Final = 64

#: The largest number of removals in one part of a copy: about 30 KiB.
COPY_REMOVED_MAX: Final = 1024

#: The largest size of one part of a view of a table, or of a whole copy. Too small: more messages. Too large: it delays the
#: following messages on the link.
TABLE_PART_BYTES_MAX: Final = 64 * 1024

#: The largest size of a change of a copy of a table; a copy that misses more is sent the whole table. Too small: a root with
#: many changes sends its copies everything. Too large: the ring may refuse it.
TABLE_CHANGE_BYTES_MAX: Final = 256 * 1024

#: The largest number of parts of a view of a table: 32 MiB. Too small: a full table does not fit. Too large: a lying root fills
#: the memory of its watchers.
TABLE_PARTS_MAX: Final = 512

#: The largest number of removed nodes in one part of a view, about 20 KiB.
TABLE_REMOVED_MAX: Final = 1024

#: The size of the checksum of a whole table: nobody finds two tables with the same one.
TABLE_CHECKSUM_BYTES: Final = 16

#: The largest numbers of records and of rows in one part: no more fit into it.
_TABLE_RECORDS_MAX: Final = TABLE_CHANGE_BYTES_MAX // 32

#: The largest payload of a multicast: with all headers it fits into a message of the ring. Too small: a body is cut into more
#: pieces. Too large: a piece delays what follows it on the links of the tree.
CAST_BYTES_MAX: Final = 508 * 1024

STAMP_SHIFT: Final = 32
SEQUENCE_MASK: Final = (1 << STAMP_SHIFT) - 1

_NodeId: TypeAlias = Annotated[NodeId, Meta(min_length=ID_BYTES, max_length=ID_BYTES)]
_GroupId: TypeAlias = Annotated[GroupId, Meta(min_length=ID_BYTES, max_length=ID_BYTES)]
_Attributes: TypeAlias = Annotated[bytes, Meta(max_length=ATTRIBUTES_BYTES_MAX)]
_Number: TypeAlias = Annotated[int, Meta(ge=0, le=SEQUENCE_MAX)]
_Signature: TypeAlias = Annotated[bytes, Meta(max_length=SIGNATURE_BYTES_MAX)]
_Counts: TypeAlias = Annotated[tuple[_Number, ...], Meta(max_length=2)]
_Groups: TypeAlias = Annotated[list[_GroupId], Meta(max_length=GROUPS_PER_NODE_MAX)]
_Entries: TypeAlias = Annotated[bytes, Meta(max_length=ENTRIES_BYTES_MAX)]
_Promoted: TypeAlias = Annotated[bytes, Meta(max_length=PROMOTED_BYTES_MAX)]
_Split: TypeAlias = Annotated[bytes, Meta(max_length=SPLIT_BYTES_MAX)]
_Count: TypeAlias = Annotated[int, Meta(ge=0, le=ENTRIES_MAX)]
_TableChecksum: TypeAlias = Annotated[bytes, Meta(max_length=TABLE_CHECKSUM_BYTES)]
_Checksum: TypeAlias = Annotated[bytes, Meta(min_length=CHECKSUM_BYTES, max_length=CHECKSUM_BYTES)]


class MemberRecord(msgspec.Struct, frozen=True, array_like=True):
    """A member of a group, as directories keep it and membership views report it."""

    info: NodeInfo
    """The member."""
    attributes: _Attributes
    """Data of the layer above about the member; opaque here."""
    stamp: _Number
    """The stamp of the registration."""
    permit: _Signature = b""
    """The group's permit for the record: a signature with the keys of the group, see `member_part`. Every node that keeps or
    passes on the record verifies it.
    """
    since: _Number = 0
    """The joining time; the member rejects earlier multicasts."""


class GroupRegistration(msgspec.Struct, frozen=True, array_like=True):
    """A membership of the sender, as part of `Register`."""

    group: _GroupId
    """The group."""
    attributes: _Attributes
    """Data of the layer above about the member; opaque here."""
    stamp: _Number
    """The stamp of this registration, unchanged by renewals."""
    permit: _Signature = b""
    """The group's permit, see `MemberRecord`."""
    since: _Number = 0
    """See `MemberRecord`."""


class Register(msgspec.Struct, frozen=True, array_like=True, tag=0):
    """Register memberships of the sender, or renew them."""

    info: NodeInfo
    """The member, and the sender."""
    items: Annotated[list[GroupRegistration], Meta(max_length=BATCH_MAX)]
    """Its memberships at this root."""


class Unregister(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """End memberships of the sender."""

    info: NodeInfo
    """The former member, and the sender."""
    items: Annotated[list[tuple[_GroupId, _Number]], Meta(max_length=BATCH_MAX)]
    """The groups, with the stamps of leaving."""


class Applied(msgspec.Struct, frozen=True, array_like=True, tag=2):
    """Acknowledge registrations and unregistrations: all followers of the directory know, or the time limit passed."""

    root: NodeInfo
    """The acknowledging root, the direct receiver of the next renewals."""
    items: Annotated[list[tuple[_GroupId, _Number, _Number, bool]], Meta(max_length=BATCH_MAX)]
    """Group, stamp, number of members, and whether the receiver is a member, possibly by mistake of an old copy."""


class Accused(msgspec.Struct, frozen=True, array_like=True, tag=3):
    """Tell a node of the report of its death, to let the node refute. Routed to the id of the node."""

    node: _NodeId
    """The node."""
    stamp: _Number
    """The highest stamp that no longer counts."""


class Entrust(msgspec.Struct, frozen=True, array_like=True, tag=4):
    """Ask a neighbour to report the sender's death to the roots of its groups, and to tell the sender of a mistaken report."""

    stamp: _Number
    """The highest stamp of the sender."""
    is_needed: bool
    """Whether the receiver is a reporter; true also for a sender without memberships that watches groups."""
    is_whole: bool
    """Whether to forget earlier groups."""
    groups: _Groups
    """The sender's groups."""
    dropped: _Groups
    """The sender's former groups."""


class Accuse(msgspec.Struct, frozen=True, array_like=True, tag=5):
    """Report the death of a member to the root of its group."""

    node: _NodeId
    """The member."""
    stamp: _Number
    """The highest stamp of its registrations known to the accuser."""
    group: _GroupId
    """The group."""


class Doubt(msgspec.Struct, frozen=True, array_like=True, tag=6):
    """Tell the root that a member is unreachable."""

    group: _GroupId
    """The group."""
    node: _NodeId
    """The member."""


class Check(msgspec.Struct, frozen=True, array_like=True, tag=7):
    """Ask whether a node lives. Routed to its id: any other node that gets the message accuses the node."""

    root: NodeInfo
    """The root to tell."""
    accusation: Accuse
    """The accusation to send to the root."""


class Watch(msgspec.Struct, frozen=True, array_like=True, tag=8):
    """Ask for the membership views of groups, now and after every change; or renew this request."""

    info: NodeInfo
    """The watcher, and the sender."""
    stamp: _Number
    """Its highest stamp: an accusation of an earlier incarnation ends only the watches of that incarnation."""
    items: Annotated[list[tuple[_GroupId, _Number, _Signature]], Meta(max_length=BATCH_MAX)]
    """The groups; the watcher's version from this root, 0 for none; and the permit of the group, see `user_part`."""


class Unwatch(msgspec.Struct, frozen=True, array_like=True, tag=9):
    """End watches."""

    node: _NodeId
    """The watcher, and the sender."""
    groups: Annotated[list[_GroupId], Meta(max_length=BATCH_MAX)]
    """The groups."""


class View(msgspec.Struct, frozen=True, array_like=True, tag=10):
    """Tell a watcher the members of a group."""

    root: NodeInfo
    """The root, the direct receiver of the next renewals."""
    group: _GroupId
    """The group."""
    version: _Number
    """The version of the directory."""
    size: _Number
    """The number of members."""
    is_watched: bool
    """Whether the root will report changes."""
    members: Annotated[list[MemberRecord], Meta(max_length=VIEW_MAX)]
    """All members if they are at most VIEW_MAX, else a sample of SAMPLE_MAX."""


class Change(msgspec.Struct, frozen=True, array_like=True, tag=11):
    """Tell a watcher the changes of a group."""

    group: _GroupId
    """The group."""
    base: _Number
    """The version that the watcher must have for the change to apply."""
    version: _Number
    """The version after the change."""
    size: _Number
    """The number of members."""
    members: Annotated[list[MemberRecord], Meta(max_length=VIEW_MAX)]
    """The new members, and members with new attributes or addresses."""
    removed: Annotated[list[_NodeId], Meta(max_length=COPY_REMOVED_MAX)]
    """The nodes that are no longer members."""


class Told(msgspec.Struct, frozen=True, array_like=True, tag=12):
    """Acknowledge a membership view or a change of it."""

    group: _GroupId
    """The group."""
    version: _Number
    """The present version of the watcher; 0 to ask for everything, because it has no view or a change does not apply."""


class Copy(msgspec.Struct, frozen=True, array_like=True, tag=13):
    """Keep a copy of a directory at a neighbour, or hand the directory over; a receiving root merges it into its own."""

    group: _GroupId
    """The group."""
    base: _Number
    """The version to which this change applies; 0 for a whole copy, which may have several parts."""
    version: _Number
    """The version of the copy afterwards."""
    is_first: bool
    """Whether this is the first part."""
    is_last: bool
    """Whether this is the last part."""
    members: Annotated[list[MemberRecord], Meta(max_length=COPY_MEMBERS_MAX)]
    """The members; in a change only the new and changed ones."""
    removed: Annotated[list[tuple[_NodeId, _Number]], Meta(max_length=COPY_REMOVED_MAX)]
    """The former members, with the highest stamp that no longer counts."""
    watchers: Annotated[list[NodeInfo], Meta(max_length=COPY_MEMBERS_MAX)]
    """The watchers; in a change only the new ones."""
    unwatched: Annotated[list[_NodeId], Meta(max_length=COPY_REMOVED_MAX)]
    """The nodes that watch no more."""
    is_passed_on: bool = False
    """Whether the sender passes on a copy of another root's directory: the receiver merges it, never replaces its own entries,
    and sends no acknowledgement.
    """


class Copied(msgspec.Struct, frozen=True, array_like=True, tag=14):
    """Acknowledge a copy."""

    group: _GroupId
    """The group."""
    version: _Number
    """The present version of the neighbour; 0 for none."""


class Drop(msgspec.Struct, frozen=True, array_like=True, tag=15):
    """Tell a neighbour to delete its copy, which the sender no longer updates."""

    group: _GroupId
    """The group."""


class Children(msgspec.Struct, frozen=True, array_like=True, tag=16):
    """Tell a member its children in the tree, to which it passes multicasts on."""

    root: NodeInfo
    """The root, which has to be told of an unreachable child."""
    group: _GroupId
    """The group."""
    version: _Number
    """The version of the directory."""
    children: Annotated[list[NodeInfo], Meta(max_length=FANOUT_MAX)]
    """The children; empty if the member is no longer an inner node."""


class Adopted(msgspec.Struct, frozen=True, array_like=True, tag=17):
    """Acknowledge `Children`."""

    group: _GroupId
    """The group."""
    version: _Number
    """The version of the `Children`."""


class CastUp(msgspec.Struct, frozen=True, array_like=True, tag=18):
    """Ask the root to send a multicast down the tree."""

    info: NodeInfo
    """The source, and the sender."""
    group: _GroupId
    """The group."""
    sequence: _Number
    """The number of the source's previous multicast to this group, plus one; the upper half changes when the source starts
    over.
    """
    base: _Number
    """The first sequence that no root has taken: a new root waits for it, because messages through the ring may be reordered.
    """
    payload: Annotated[bytes, Meta(max_length=CAST_BYTES_MAX)]
    """The payload."""
    signature: _Signature = b""
    """The source's signature, verified by every member: see `cast_part`."""
    permit: _Signature = b""
    """The group's permit, verified by the root: see `user_part`."""
    at: _Number = 0
    """The sending time, never before the joining time of a member known to the source."""


class CastTaken(msgspec.Struct, frozen=True, array_like=True, tag=19):
    """Acknowledge multicasts: the root sent them down the tree."""

    group: _GroupId
    """The group."""
    sequence: _Number
    """The last sequence taken."""


class CastDown(msgspec.Struct, frozen=True, array_like=True, tag=20):
    """Carry a multicast down the tree."""

    group: _GroupId
    """The group."""
    source: _NodeId
    """The source."""
    sequence: _Number
    """See `CastUp`."""
    is_replay: bool
    """Whether the receiver replaces a lost node: it then passes even a known multicast on."""
    base: _Number
    """The sequence from which on the root sent every multicast of this source: receivers wait for no earlier one."""
    payload: Annotated[bytes, Meta(max_length=CAST_BYTES_MAX)]
    """The payload."""
    signature: _Signature = b""
    """As in `CastUp`."""
    at: _Number = 0
    """As in `CastUp`."""


class Forgotten(msgspec.Struct, frozen=True, array_like=True, tag=21):
    """Tell a node that it is no watcher at the sender: the node was declared dead, or the sender is not the root any more."""

    group: _GroupId
    """The group."""


class Moved(msgspec.Struct, frozen=True, array_like=True, tag=22):
    """Tell the author of a message to repeat the message through the ring, because the sender is not the root of the group.

    The sender does not pass the message on, because only the author may send it to the root.
    """

    groups: Annotated[list[_GroupId], Meta(max_length=BATCH_MAX)]
    """The groups."""


class Later(msgspec.Struct, frozen=True, array_like=True, tag=23):
    """Tell a node of a member with a later joining time: a new member then joins after that time, and a source sends again."""

    group: _GroupId
    """The group."""
    member: MemberRecord
    """The member that joined last, with its permit."""


class Look(msgspec.Struct, frozen=True, array_like=True, tag=24):
    """Ask another keeper of a directory for the members if the root reports none. Routed around that root."""

    info: NodeInfo
    """The requesting node, and the sender."""
    group: _GroupId
    """The group."""
    permit: _Signature
    """The group's permit, see `user_part`."""
    number: _Number
    """A random number for the answer: only nodes on the path know it."""


class Seen(msgspec.Struct, frozen=True, array_like=True, tag=25):
    """Tell the members known to the sender, from a directory or a copy of one."""

    group: _GroupId
    """The group."""
    number: _Number
    """The number of the question."""
    members: Annotated[list[MemberRecord], Meta(max_length=SAMPLE_MAX)]
    """At most SAMPLE_MAX members; the requester verifies their permits."""


class FindRoot(msgspec.Struct, frozen=True, array_like=True, tag=26):
    """Ask the root of a key for its identity. It changes no state."""

    key: _GroupId
    """A group, or any other position on the ring."""
    number: _Number
    """A random number for the answer: only nodes on the path know it."""


class RootFound(msgspec.Struct, frozen=True, array_like=True, tag=27):
    """Tell the root of a key, its neighbours, and the path of the question."""

    root: NodeInfo
    """The root, and the sender."""
    key: _GroupId
    """The key of the question."""
    number: _Number
    """The number of the question."""
    path: Annotated[tuple[_NodeId, ...], Meta(max_length=PATH_LENGTH_MAX)]
    """The nodes on the way of the question, the requester first, without the root."""
    held: Annotated[tuple[_Number, ...], Meta(max_length=PATH_LENGTH_MAX)]
    """The time in each of these nodes (microseconds); empty if a node withheld its time."""
    leaves: Annotated[list[NodeInfo], Meta(max_length=LEAVES_TOLD_MAX)]
    """The leaf set of the root."""
    counts: _Counts = ()
    """The numbers of a group's members and watchers; empty without a directory, or if the root withholds them."""


class EntryRow(msgspec.Struct, frozen=True, array_like=True):
    """The entries of one member of a table, or their change. The long entries of a member may take several rows."""

    node: _NodeId
    """The member."""
    base: _Number
    """The stamp of the entries to which the row applies; 0 for none. A further row of the same member has the stamp itself."""
    stamp: _Number
    """The stamp of the entries after the row."""
    added: _Entries
    """Packed entries."""
    removed: _Entries = b""
    """Packed entries."""


class Claim(msgspec.Struct, frozen=True, array_like=True, tag=28):
    """Register the entries of the sender in a table, change them, or renew them."""

    info: NodeInfo
    """The member, and the sender."""
    group: _GroupId
    """The table."""
    attributes: _Attributes
    """Data of the layer above about the member; opaque here."""
    stamp: _Number
    """The stamp of the registration."""
    permit: _Signature
    """The group's permit, see `MemberRecord`. It does not cover the entries."""
    base: _Number
    """The stamp of the entries to which the change applies: 0 for all entries, the stamp itself for a renewal."""
    count: _Count
    """The number of entries after the change."""
    checksum: _Checksum
    """The checksum of the entries after the change, see `entries.checksum`."""
    added: _Entries = b""
    """Packed entries."""
    removed: _Entries = b""
    """Packed entries."""
    promoted: _Promoted = b""
    """In a claim of all entries: the packed entries that a root called promoted, whether the member still has them or not."""
    split: _Split = b""
    """In a claim of all entries: the split of the table that a root told the member, see `splits.TableSplit`."""


class Reclaim(msgspec.Struct, frozen=True, array_like=True, tag=29):
    """Ask a member of a table for all of its entries, because its claim does not apply at the root."""

    group: _GroupId
    """The table."""
    stamp: _Number
    """The stamp of the claim."""


class WatchTable(msgspec.Struct, frozen=True, array_like=True, tag=30):
    """Ask for a table, now and after every change; or renew this request."""

    info: NodeInfo
    """The watcher, and the sender."""
    stamp: _Number
    """Its highest stamp, see `Watch`."""
    group: _GroupId
    """The table."""
    version: _Number
    """The watcher's version from this root, 0 for none."""
    permit: _Signature
    """The permit of the group, see `user_part`."""
    has_table: bool = False
    """Whether the watcher has the table of an earlier root, so that the checksum may be enough."""


class TablePart(msgspec.Struct, frozen=True, array_like=True, tag=31):
    """Tell a watcher a table, or its changes, in parts that may arrive in any order."""

    root: NodeInfo
    """The root, the direct receiver of the next renewals."""
    group: _GroupId
    """The table."""
    base: _Number
    """The version that the watcher must have for the changes to apply; 0 for the whole table."""
    version: _Number
    """The version afterwards."""
    size: _Number
    """The number of members."""
    is_watched: bool
    """Whether the root will report changes."""
    number: Annotated[int, Meta(ge=0, lt=TABLE_PARTS_MAX)]
    """The number of this part, from 0."""
    parts: Annotated[int, Meta(ge=1, le=TABLE_PARTS_MAX)]
    """The number of parts."""
    members: Annotated[list[MemberRecord], Meta(max_length=_TABLE_RECORDS_MAX)]
    """The new members, and members with new attributes or addresses. Each has a row, too."""
    rows: Annotated[list[EntryRow], Meta(max_length=_TABLE_RECORDS_MAX)]
    """The entries of new and changed members."""
    removed: Annotated[list[_NodeId], Meta(max_length=TABLE_REMOVED_MAX)]
    """The nodes that are no longer members."""
    promoted: _Promoted = b""
    """The packed entries that are promoted since; in the first part alone."""
    checksum: _TableChecksum = b""
    """In place of a whole table: the checksum of its rows (`table_parts.checksum_of`). A watcher with another table answers
    with version 0, and gets the rows. Empty in all other parts.
    """
    split: _Split = b""
    """The split of the table; in the first part alone."""


class TableCopy(msgspec.Struct, frozen=True, array_like=True, tag=32):
    """Keep a copy of a table, as `Copy` for other groups."""

    group: _GroupId
    """The table."""
    base: _Number
    """The version to which this change applies; 0 for a whole copy, which may have several parts."""
    version: _Number
    """The version of the copy afterwards."""
    is_first: bool
    """Whether this is the first part."""
    is_last: bool
    """Whether this is the last part."""
    members: Annotated[list[MemberRecord], Meta(max_length=_TABLE_RECORDS_MAX)]
    """The members; in a change only the new and changed ones."""
    removed: Annotated[list[tuple[_NodeId, _Number]], Meta(max_length=COPY_REMOVED_MAX)]
    """The former members, with the highest stamp that no longer counts."""
    watchers: Annotated[list[NodeInfo], Meta(max_length=COPY_MEMBERS_MAX)]
    """The watchers; in a change only the new ones."""
    unwatched: Annotated[list[_NodeId], Meta(max_length=COPY_REMOVED_MAX)]
    """The nodes that watch no more."""
    is_passed_on: bool
    """See `Copy`."""
    rows: Annotated[list[EntryRow], Meta(max_length=_TABLE_RECORDS_MAX)]
    """The entries of these members."""
    promoted: _Promoted = b""
    """The packed entries that are promoted since; in the first part alone."""
    split: _Split = b""
    """The split of the table; in the first part alone."""


class Promoted(msgspec.Struct, frozen=True, array_like=True, tag=33):
    """Tell a member of a table which of its entries are promoted (promotions.py)."""

    group: _GroupId
    """The table."""
    entries: _Promoted
    """Packed entries."""


class Split(msgspec.Struct, frozen=True, array_like=True, tag=34):
    """Tell a member of a table which of its entries belong into other tables, as far as all watchers know it (splits.py)."""

    group: _GroupId
    """The table."""
    split: _Split
    """The split of the table."""


class Full(msgspec.Struct, frozen=True, array_like=True, tag=35):
    """Ask the member with most entries in a table that is full to describe them by fewer."""

    group: _GroupId
    """The table."""
    count: _Count
    """The number of entries that the member should have at most."""


#: A copy of a directory of either kind.
AnyCopy: TypeAlias = Copy | TableCopy

GroupMessage: TypeAlias = (
    Register
    | Unregister
    | Applied
    | Accused
    | Entrust
    | Accuse
    | Doubt
    | Check
    | Watch
    | Unwatch
    | View
    | Change
    | Told
    | Copy
    | Copied
    | Drop
    | Children
    | Adopted
    | CastUp
    | CastTaken
    | CastDown
    | Forgotten
    | Moved
    | Later
    | Look
    | Seen
    | FindRoot
    | RootFound
    | Claim
    | Reclaim
    | WatchTable
    | TablePart
    | TableCopy
    | Promoted
    | Split
    | Full
)

_ENCODER = msgspec.msgpack.Encoder()
_DECODER: msgspec.msgpack.Decoder[GroupMessage] = msgspec.msgpack.Decoder(GroupMessage)
_TAGS: Final = frozenset(each.__struct_config__.tag for each in get_args(GroupMessage))
_DECODE_ERRORS = (msgspec.MsgspecError, ValueError, RecursionError)


def member_part(record: MemberRecord | GroupRegistration, node: NodeId) -> bytes:
    """Return the bytes signed by a member's permit: the node, its attributes, and the registration's stamp and time."""
    return _ENCODER.encode((1, node, record.stamp, record.since, record.attributes))


def user_part(node: NodeId) -> bytes:
    """Return the bytes signed by the permit of a watcher or multicast source: the node."""
    return _ENCODER.encode((2, node))


def cast_part(group: GroupId, sequence: int, at: int, payload: bytes) -> bytes:
    """Return the bytes of a multicast signed by its source: fields that neither the root nor an inner node may change.

    The hash stands for the payload. Ed25519 hashes its input with SHA-512, which takes most of the time of a large multicast;
    processors have instructions for SHA-256.
    """
    return _ENCODER.encode((20, group, sequence, at, sha256(payload).digest()))


def encode_group_message(message: GroupMessage) -> bytes:
    """Encode a message of the groups layer."""
    return _ENCODER.encode(message)


def decode_group_message(data: bytes) -> GroupMessage:
    """Decode a message of the groups layer.

    Raises:
        UnknownMessageError: The message is of a kind unknown to this version.
        MessageError: The bytes are no message, or exceed a bound.
    """
    if len(data) > MESSAGE_BYTES_MAX:
        raise MessageError(f"a message of {len(data)} bytes exceeds {MESSAGE_BYTES_MAX}")
    try:
        message = _DECODER.decode(data)
    except _DECODE_ERRORS as exc:
        if is_of_unknown_kind(data, _TAGS):
            raise UnknownMessageError(f"a message of an unknown kind: {exc}") from exc
        raise MessageError(f"not a valid message: {exc}") from exc
    if isinstance(message, TablePart) and (len(data) > TABLE_PART_BYTES_MAX or message.number >= message.parts):
        raise MessageError(f"not a part of a table: {len(data)} bytes, number {message.number} of {message.parts}")
    if isinstance(message, TablePart) and message.checksum and (message.base or message.rows or message.parts > 1):
        raise MessageError("not a part of a table: a checksum beside rows")
    if isinstance(message, Claim | TablePart | TableCopy | Split) and not is_split(message.split):
        raise MessageError("not a valid message: its split is malformed")
    if isinstance(message, Claim):
        packed = [message.added, message.removed, message.promoted]
    elif isinstance(message, TablePart | TableCopy):
        packed = [message.promoted, *(entries for row in message.rows for entries in (row.added, row.removed))]
    elif isinstance(message, Promoted):
        packed = [message.entries]
    else:
        return message
    if not all(map(is_packed, packed)):
        raise MessageError("not a valid message: its entries are not sorted")
    return message
