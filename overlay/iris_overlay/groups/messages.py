"""The messages of the groups layer: msgpack arrays whose first element names the message.

They travel as payloads of the ring, routed to a key or sent to a node. Members say `Register` and `Unregister` to the root
of a group, which answers `Applied` when all who have to know were told. Watchers say `Watch` and `Unwatch`; the root sends
`View` (all of it) and `Change` (since a version), acknowledged by `Told`. The root keeps copies of its directory on its
neighbours by `Copy`, acknowledged by `Copied`, and a tree of the members by `Children`, acknowledged by `Adopted`. Members
entrust their neighbours with the list of their groups (`Entrust`), who accuse them at the roots when they die. Casts go up
to the root (`CastUp`), which answers `CastTaken`, and down the tree of the members (`CastDown`). Any node may ask a root who
it is (`FindRoot`, `RootFound`).

**Stamps** order what is said about a membership: `incarnation << 32 | sequence`. A node counts a sequence with each change, and
a new incarnation whenever it hears that it was declared dead, as in SWIM (Das, Gupta, Motivala 2002, section 4.2). The highest
stamp is right; an accusation has the highest of its incarnation.

**Versions** order the states of a directory: `epoch << 32 | counter`. Whoever takes a directory over begins a new epoch.

**Times** (`since`, `at`) are milliseconds since 1970, by the clock of whoever says them. A member takes no cast that was made
before it joined: so nobody can have an old one executed by a newcomer. Clocks may differ. So the root tells of the member with
the latest time (`Later`): a newcomer then says to have joined after that, and a source to have cast no earlier. So what
is cast after a member has joined reaches it, and what was cast before does not.

Bounds are checked while decoding, and nothing is allocated by a number that a stranger sent.
"""

from __future__ import annotations

from typing import Annotated, Final, TypeAlias, get_args

import msgspec
from msgspec import Meta

from iris_overlay.environment import SIGNATURE_BYTES_MAX
from iris_overlay.errors import MessageError, UnknownMessageError
from iris_overlay.ids import ID_BYTES, GroupId, NodeId
from iris_overlay.messages import (
    ATTRIBUTES_BYTES_MAX,
    GROUPS_PER_NODE_MAX,
    MESSAGE_BYTES_MAX,
    SEQUENCE_MAX,
    NodeInfo,
    is_of_unknown_kind,
)
from iris_overlay.ring.messages import LEAVES_TOLD_MAX, PATH_LENGTH_MAX, PAYLOAD_BYTES_MAX

#: Members in a view: enough for two choices among the live and near, and a copy of everything to all of them is cheap.
VIEW_MAX: Final = 32

#: Watchers of a group. The root sends each change to all of them: more would make one node a hot spot.
WATCHERS_MAX: Final = 256

#: Copies of a cast that one node sends: 1,000 members are two hops from the root, 30,000 three.
FANOUT_MAX: Final = 32

#: Groups in one message: with full attributes 95 KiB. Larger batches would hold up what follows on the link.
BATCH_MAX: Final = 256

#: Members in one part of a copy, and watchers: about 21 KiB together, and 350 KiB if every node has the longest addresses. More
#: could exceed what the ring carries.
COPY_MEMBERS_MAX: Final = 64

#: Removals in one part of a copy: about 30 KiB.
COPY_REMOVED_MAX: Final = 1024

#: What is cast, so that it fits into a message of a link with every header.
CAST_BYTES_MAX: Final = PAYLOAD_BYTES_MAX - 4096

STAMP_SHIFT: Final = 32
SEQUENCE_MASK: Final = (1 << STAMP_SHIFT) - 1

_NodeId: TypeAlias = Annotated[NodeId, Meta(min_length=ID_BYTES, max_length=ID_BYTES)]
_GroupId: TypeAlias = Annotated[GroupId, Meta(min_length=ID_BYTES, max_length=ID_BYTES)]
_Attributes: TypeAlias = Annotated[bytes, Meta(max_length=ATTRIBUTES_BYTES_MAX)]
_Number: TypeAlias = Annotated[int, Meta(ge=0, le=SEQUENCE_MAX)]
_Signature: TypeAlias = Annotated[bytes, Meta(max_length=SIGNATURE_BYTES_MAX)]
_Counts: TypeAlias = Annotated[tuple[_Number, ...], Meta(max_length=2)]
_Groups: TypeAlias = Annotated[list[_GroupId], Meta(max_length=GROUPS_PER_NODE_MAX)]


class MemberRecord(msgspec.Struct, frozen=True, array_like=True):
    """Describe a member of a group."""

    info: NodeInfo
    """The member."""
    attributes: _Attributes
    """See `Membership`."""
    stamp: _Number
    """Of its registration."""
    permit: _Signature = b""
    """Of the group, for all that: see `member_part`. Whoever keeps or passes on a record checks it."""
    since: _Number = 0
    """When the member joined: it takes no earlier casts."""


class Registration(msgspec.Struct, frozen=True, array_like=True):
    """Describe a membership of the sender."""

    group: _GroupId
    """The group."""
    attributes: _Attributes
    """See `Membership`."""
    stamp: _Number
    """Of this registration; a renewal has the same."""
    permit: _Signature = b""
    """Of the group: see `MemberRecord`."""
    since: _Number = 0
    """See `MemberRecord`."""


class Register(msgspec.Struct, frozen=True, array_like=True, tag=0):
    """Make a node a member, or renew that it is one."""

    info: NodeInfo
    """The member, and the sender."""
    items: Annotated[list[Registration], Meta(max_length=BATCH_MAX)]
    """Its memberships at this root."""


class Unregister(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """Take a node out of groups."""

    info: NodeInfo
    """The former member, and the sender."""
    items: Annotated[list[tuple[_GroupId, _Number]], Meta(max_length=BATCH_MAX)]
    """The groups and the stamps of leaving."""


class Applied(msgspec.Struct, frozen=True, array_like=True, tag=2):
    """Acknowledge registrations and their ends: whoever has to know was told, or had its time."""

    root: NodeInfo
    """The root that acknowledges: the next renewals go there directly."""
    items: Annotated[list[tuple[_GroupId, _Number, _Number, bool]], Meta(max_length=BATCH_MAX)]
    """Group, stamp, number of members, and whether the receiver is one of them: an old copy may say so by mistake."""


class Accused(msgspec.Struct, frozen=True, array_like=True, tag=3):
    """Tell a node that it was declared dead, in case it is not. Routed to its id."""

    node: _NodeId
    """The node."""
    stamp: _Number
    """Registrations up to here do not count any more."""


class Entrust(msgspec.Struct, frozen=True, array_like=True, tag=4):
    """Ask a neighbour to accuse the sender at the roots of its groups when it dies, and to tell it when that was wrong."""

    stamp: _Number
    """The highest stamp of the sender."""
    is_needed: bool
    """Whether there is anything to do: a node that only watches has to be told as well."""
    is_whole: bool
    """Whether to forget what was entrusted before."""
    groups: _Groups
    """Groups that it is a member of."""
    dropped: _Groups
    """Groups that it is no member of any more."""


class Accuse(msgspec.Struct, frozen=True, array_like=True, tag=5):
    """Declare a member dead."""

    node: _NodeId
    """The member."""
    stamp: _Number
    """Of its registrations that the accuser knows."""
    group: _GroupId
    """The group."""


class Doubt(msgspec.Struct, frozen=True, array_like=True, tag=6):
    """Tell the root that a member cannot be reached."""

    group: _GroupId
    """The group."""
    node: _NodeId
    """The member."""


class Check(msgspec.Struct, frozen=True, array_like=True, tag=7):
    """Ask whether a node lives. Routed to its id: whoever else gets it accuses the node."""

    root: NodeInfo
    """The root to tell."""
    accusation: Accuse
    """The accusation to tell it."""


class Watch(msgspec.Struct, frozen=True, array_like=True, tag=8):
    """Ask for the views of groups, now and after every change; or renew that."""

    info: NodeInfo
    """The watcher, and the sender."""
    stamp: _Number
    """Its highest stamp: an earlier incarnation that is accused takes its watch with it, this one not."""
    items: Annotated[list[tuple[_GroupId, _Number, _Signature]], Meta(max_length=BATCH_MAX)]
    """The groups, the version that the watcher has from this root, 0 for none, and the permit of the group: see `user_part`."""


class Unwatch(msgspec.Struct, frozen=True, array_like=True, tag=9):
    """End watches."""

    node: _NodeId
    """The watcher, and the sender."""
    groups: Annotated[list[_GroupId], Meta(max_length=BATCH_MAX)]
    """The groups."""


class View(msgspec.Struct, frozen=True, array_like=True, tag=10):
    """Tell a watcher the members of a group."""

    root: NodeInfo
    """The root that tells: the next renewals go there directly."""
    group: _GroupId
    """The group."""
    version: _Number
    """Of the directory."""
    size: _Number
    """The number of members."""
    is_watched: bool
    """Whether changes will be told."""
    members: Annotated[list[MemberRecord], Meta(max_length=VIEW_MAX)]
    """All members, or a sample of VIEW_MAX."""


class Change(msgspec.Struct, frozen=True, array_like=True, tag=11):
    """Tell a watcher what changed in a group."""

    group: _GroupId
    """The group."""
    base: _Number
    """The version that the watcher has; with another one, this does not apply."""
    version: _Number
    """The version that it has then."""
    size: _Number
    """The number of members."""
    members: Annotated[list[MemberRecord], Meta(max_length=VIEW_MAX)]
    """The members that are new, or described in another way."""
    removed: Annotated[list[_NodeId], Meta(max_length=COPY_REMOVED_MAX)]
    """The nodes that are no members any more."""


class Told(msgspec.Struct, frozen=True, array_like=True, tag=12):
    """Acknowledge a view."""

    group: _GroupId
    """The group."""
    version: _Number
    """The version that the watcher has now; 0 for none."""


class Copy(msgspec.Struct, frozen=True, array_like=True, tag=13):
    """Keep a copy of a directory at a neighbour, or hand it over: whoever is the root takes it into its own directory."""

    group: _GroupId
    """The group."""
    base: _Number
    """The version that it changes; 0 for a whole copy, which may have several parts."""
    version: _Number
    """The version of the copy then."""
    is_first: bool
    """Whether this is the first part."""
    is_last: bool
    """Whether this is the last part."""
    members: Annotated[list[MemberRecord], Meta(max_length=COPY_MEMBERS_MAX)]
    """Members."""
    removed: Annotated[list[tuple[_NodeId, _Number]], Meta(max_length=COPY_REMOVED_MAX)]
    """The nodes that are no members any more, and up to which stamp."""
    watchers: Annotated[list[NodeInfo], Meta(max_length=COPY_MEMBERS_MAX)]
    """Watchers."""
    unwatched: Annotated[list[_NodeId], Meta(max_length=COPY_REMOVED_MAX)]
    """The nodes that watch no more."""
    is_passed_on: bool = False
    """Whether it is what the sender holds of another root: added to what is held, never replacing it, not acknowledged."""


class Copied(msgspec.Struct, frozen=True, array_like=True, tag=14):
    """Acknowledge a copy."""

    group: _GroupId
    """The group."""
    version: _Number
    """The version that the neighbour has now; 0 for none."""


class Drop(msgspec.Struct, frozen=True, array_like=True, tag=15):
    """Tell a neighbour that its copy is not kept up to date any more."""

    group: _GroupId
    """The group."""


class Children(msgspec.Struct, frozen=True, array_like=True, tag=16):
    """Tell a member to whom it passes casts on."""

    root: NodeInfo
    """The root that tells: the one to ask when a child cannot be reached."""
    group: _GroupId
    """The group."""
    version: _Number
    """Of the directory."""
    children: Annotated[list[NodeInfo], Meta(max_length=FANOUT_MAX)]
    """The children, none if it is an inner node no more."""


class Adopted(msgspec.Struct, frozen=True, array_like=True, tag=17):
    """Acknowledge the children."""

    group: _GroupId
    """The group."""
    version: _Number
    """As it was told."""


class CastUp(msgspec.Struct, frozen=True, array_like=True, tag=18):
    """Ask the root to cast."""

    info: NodeInfo
    """The source, and the sender."""
    group: _GroupId
    """The group."""
    sequence: _Number
    """One more than the source's last cast to this group; the upper half changes when the source starts over."""
    base: _Number
    """The first one that no root has taken: a new root waits for it, as messages through the ring may overtake each other."""
    payload: Annotated[bytes, Meta(max_length=CAST_BYTES_MAX)]
    """The message to cast."""
    signature: _Signature = b""
    """Of the source, for every member: see `cast_part`."""
    permit: _Signature = b""
    """Of the group, for the root: see `user_part`."""
    at: _Number = 0
    """When it was cast, and no earlier than any member that the source was told of had joined."""


class CastTaken(msgspec.Struct, frozen=True, array_like=True, tag=19):
    """Acknowledge a cast: the root sent it down the tree."""

    group: _GroupId
    """The group."""
    sequence: _Number
    """The last one that was taken."""


class CastDown(msgspec.Struct, frozen=True, array_like=True, tag=20):
    """Carry a cast down the tree."""

    group: _GroupId
    """The group."""
    source: _NodeId
    """The source."""
    sequence: _Number
    """See `CastUp`."""
    is_replay: bool
    """Whether the receiver took the place of a lost node: it passes the cast on even if it has it itself."""
    base: _Number
    """From which sequence on the root sent every cast of this source: nobody waits for an earlier one."""
    payload: Annotated[bytes, Meta(max_length=CAST_BYTES_MAX)]
    """The message that is cast."""
    signature: _Signature = b""
    """As in `CastUp`."""
    at: _Number = 0
    """As in `CastUp`."""


class Forgotten(msgspec.Struct, frozen=True, array_like=True, tag=21):
    """Tell a node that acknowledged a view that it is no watcher: it was taken for dead, or the root is one no more."""

    group: _GroupId
    """The group."""


class Moved(msgspec.Struct, frozen=True, array_like=True, tag=22):
    """Tell a node that the sender, which it asked, is not the root: it says so itself to who is, through the ring.

    The sender does not pass the message on: to the root it would be the word of the sender about another node.
    """

    groups: Annotated[list[_GroupId], Meta(max_length=BATCH_MAX)]
    """The groups."""


class Later(msgspec.Struct, frozen=True, array_like=True, tag=23):
    """Tell a node that a member joined at a later time, by its clock: later than the node itself, which then says a later time,
    too, or than the node has cast, which then casts again.
    """

    group: _GroupId
    """The group."""
    member: MemberRecord
    """The member that joined last, with its permit."""


class Look(msgspec.Struct, frozen=True, array_like=True, tag=24):
    """Ask another keeper of a directory for the members, where the root says that there is none. Routed around that root."""

    info: NodeInfo
    """The node that asks, and the sender."""
    group: _GroupId
    """The group."""
    permit: _Signature
    """Of the group: see `user_part`."""
    number: _Number
    """A random number, for the answer: nobody but those on this way can have it."""


class Seen(msgspec.Struct, frozen=True, array_like=True, tag=25):
    """Tell the members that the sender knows: of its own directory, or of its copy of another one."""

    group: _GroupId
    """The group."""
    number: _Number
    """As it was asked."""
    members: Annotated[list[MemberRecord], Meta(max_length=VIEW_MAX)]
    """Members, VIEW_MAX at most; each has its permit, which the asker checks."""


class FindRoot(msgspec.Struct, frozen=True, array_like=True, tag=26):
    """Ask the root of a key who it is. It changes nothing there."""

    key: _GroupId
    """A group, or any other place in the ring."""
    number: _Number
    """A random number, for the answer: nobody but those on this way can have it."""


class RootFound(msgspec.Struct, frozen=True, array_like=True, tag=27):
    """Tell the asker who the root of a key is, its neighbours, and the way that the question took."""

    root: NodeInfo
    """The root, and the sender."""
    key: _GroupId
    """As it was asked."""
    number: _Number
    """As it was asked."""
    path: Annotated[tuple[_NodeId, ...], Meta(max_length=PATH_LENGTH_MAX)]
    """The nodes that the question passed, the asker first, the root not among them."""
    held: Annotated[tuple[_Number, ...], Meta(max_length=PATH_LENGTH_MAX)]
    """How long each of them kept it (microseconds); nothing if one did not say so."""
    leaves: Annotated[list[NodeInfo], Meta(max_length=LEAVES_TOLD_MAX)]
    """The leaf set of the root."""
    counts: _Counts = ()
    """How many members and how many watchers a group has; nothing if there is no directory of it, or the root does not tell."""


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
)

_ENCODER = msgspec.msgpack.Encoder()
_DECODER: msgspec.msgpack.Decoder[GroupMessage] = msgspec.msgpack.Decoder(GroupMessage)
_TAGS: Final = frozenset(each.__struct_config__.tag for each in get_args(GroupMessage))
_DECODE_ERRORS = (msgspec.MsgspecError, ValueError, RecursionError)


def member_part(record: MemberRecord | Registration, node: NodeId) -> bytes:
    """Return what the permit of a member is for: this node, with these attributes, in this registration."""
    return _ENCODER.encode((1, node, record.stamp, record.since, record.attributes))


def user_part(node: NodeId) -> bytes:
    """Return what the permit of a node is for that watches a group, or casts to it."""
    return _ENCODER.encode((2, node))


def cast_part(group: GroupId, sequence: int, at: int, payload: bytes) -> bytes:
    """Return what the source of a cast signs: what neither the root nor an inner node of the tree may change."""
    return _ENCODER.encode((20, group, sequence, at, payload))


def encode_group_message(message: GroupMessage) -> bytes:
    """Write a message."""
    return _ENCODER.encode(message)


def decode_group_message(data: bytes) -> GroupMessage:
    """Read a message.

    Raises:
        UnknownMessageError: It is a message of a kind that this version does not know.
        MessageError: The bytes are no message, or break a bound.
    """
    if len(data) > MESSAGE_BYTES_MAX:
        raise MessageError(f"a message of {len(data)} bytes exceeds {MESSAGE_BYTES_MAX}")
    try:
        return _DECODER.decode(data)
    except _DECODE_ERRORS as exc:
        if is_of_unknown_kind(data, _TAGS):
            raise UnknownMessageError(f"a message of an unknown kind: {exc}") from exc
        raise MessageError(f"no valid message: {exc}") from exc
