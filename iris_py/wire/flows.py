"""Messages that count publications: FLOW, COUNT, FETCH, FETCHED, CAST and MOVED (docs/design.md 8).

All publications from one node to another form a *flow*. Its name is the publisher's last number when the flow began. FLOW is
the first message of each body with publications: its id is the name, and its argument the number of messages in the flow before
this body, modulo 2^32. So a receiver counts the messages that it missed.

COUNT follows a FLOW, for each counted pattern of the node that the messages of the body match: its id is the number of earlier
matches, and its payload says which pattern, and when the count began (:class:`MatchesBefore`).

FETCH asks the publisher for the entries that the missed messages matched; FETCHED answers with the same id. The argument of
FETCH says what it asks for, here ``MISSED_ENTRIES``. The argument of FETCHED is the number of missed messages.
FETCH with ``FLUSH`` asks for a FETCHED behind all publications to the subscriber so far, in a body with a FLOW.

Messages to the group of a promoted entry are counted likewise. CAST is the first message of each body to the group: its id is
the last number that the publisher sent directly for the entry (0: none), and its argument the number of messages to the group
before this body, modulo 2^32. MOVED follows the last message for the entry that comes in the flow: its id is the tag of the
entry, and its argument the number of messages to the group so far, modulo 2^32.
"""

from __future__ import annotations

import struct
from typing import Final

import msgspec

from iris_py.wire.packets import CAST, COUNT, COUNT_BYTES, FLOW, MESSAGE, MOVED

#: Argument of a FETCH for the entries that missed messages matched.
MISSED_ENTRIES: Final = 3
#: Argument of a FETCH that asks for an answer behind all publications so far.
FLUSH: Final = 4
#: Argument of a FETCHED without an answer: the publisher no longer knows the entries.
NO_ANSWER: Final = 0xFFFF_FFFF
#: Largest number of missed messages in one question. Too small: after a short break of a link, all subscriptions of a node
#: report the messages missed by a few. Too large: one question costs the publisher milliseconds.
FETCHED_MESSAGES_MAX: Final = 4096
#: Largest number of entries in one answer, 48 KiB: an answer fits a shared body. A publisher sends ``NO_ANSWER`` beyond it. Too
#: small: as above; too large: the answer delays other messages of the link.
FETCHED_ENTRIES_MAX: Final = 4096

#: flow, after, before
_FETCH: Final = struct.Struct(">QQQ")
#: tag, number of messages
_ENTRY: Final = struct.Struct(">QI")
#: tag, since, holder
_COUNT: Final = struct.Struct(">QQQ")
#: Counts of a flow are modulo 2^32.
COUNT_MASK: Final = 0xFFFF_FFFF


class MissedRange(msgspec.Struct, frozen=True, gc=False):
    """A range of missed messages in one flow: the payload of a FETCH.

    Attributes:
        flow: The name of the flow.
        after: The publisher's number of the last message received before the range.
        before: The number of the first message received after the range.
    """

    flow: int
    after: int
    before: int

    def encode(self) -> bytes:
        """Return the 24-byte payload."""
        return _FETCH.pack(self.flow, self.after, self.before)


class MissedEntries(msgspec.Struct, frozen=True, gc=False):
    """The entries that the messages of a range matched: the answer to a :class:`MissedRange`.

    Attributes:
        messages: The number of messages for the asking node in the range, 0 to ``FETCHED_MESSAGES_MAX``.
        counts: For each matched entry of the node, by tag, the number of messages that matched it, at least 1. A message may
            match several entries.
    """

    messages: int
    counts: dict[int, int]

    def encode(self) -> bytes:
        """Return the payload, in ascending order of the tags."""
        return b"".join([_ENTRY.pack(tag, count) for tag, count in sorted(self.counts.items())])


class MatchesBefore(msgspec.Struct, frozen=True, gc=False):
    """The publications of a node that matched a counted pattern: a COUNT.

    Attributes:
        tag: The tag of the pattern's entry.
        since: The publisher's number when its count began. Another number is another count.
        holder: The start of the id of the node for which the count began (64 bits).
        count: Number of matches before the publications of the body.
    """

    tag: int
    since: int
    holder: int
    count: int

    def encode(self) -> bytes:
        """Return the message."""
        return MESSAGE.pack(COUNT, 0, 0, COUNT_BYTES, self.count, 0) + _COUNT.pack(self.tag, self.since, self.holder)


def encode_flow(name: int, count: int) -> bytes:
    """Encode a FLOW.

    Args:
        name: The name of the flow.
        count: Number of messages in the flow before this body; the wire has it modulo 2^32.
    """
    return MESSAGE.pack(FLOW, 0, 0, 0, name, count & COUNT_MASK)


def encode_cast(direct: int, count: int) -> bytes:
    """Encode a CAST.

    Args:
        direct: The last number sent directly for the entry; 0 for none.
        count: Number of messages to the group before this body; the wire has it modulo 2^32.
    """
    return MESSAGE.pack(CAST, 0, 0, 0, direct, count & COUNT_MASK)


def encode_moved(tag: int, count: int) -> bytes:
    """Encode a MOVED.

    Args:
        tag: The tag of the entry.
        count: Number of messages to its group so far; the wire has it modulo 2^32.
    """
    return MESSAGE.pack(MOVED, 0, 0, 0, tag, count & COUNT_MASK)


def messages_between(earlier: int, later: int) -> int:
    """Return the number of messages between two counts of one flow, which the wire has modulo 2^32."""
    return (later - earlier) & COUNT_MASK


def decode_range(payload: bytes) -> MissedRange | None:
    """Decode the payload of a FETCH from a peer; return None if it is malformed. Never raises."""
    if len(payload) != _FETCH.size:
        return None
    flow, after, before = _FETCH.unpack(payload)
    return MissedRange(flow, after, before) if flow <= after < before else None


def decode_count(count: int, payload: bytes) -> MatchesBefore | None:
    """Decode a COUNT from a peer; return None if it is malformed. Never raises.

    Args:
        count: Its id.
        payload: Its payload.
    """
    if len(payload) != COUNT_BYTES:
        return None
    tag, since, holder = _COUNT.unpack(payload)
    return MatchesBefore(tag, since, holder, count)


def decode_entries(messages: int, payload: bytes) -> MissedEntries | None:
    """Decode a FETCHED from a peer; return None if it has no answer, or is malformed. Never raises.

    Args:
        messages: Its argument.
        payload: Its payload.
    """
    if messages > FETCHED_MESSAGES_MAX or len(payload) > FETCHED_ENTRIES_MAX * _ENTRY.size:
        return None
    if len(payload) % _ENTRY.size:
        return None
    pairs = list(_ENTRY.iter_unpack(payload))
    counts = dict(pairs)
    if len(counts) < len(pairs) or any(not 0 < count <= messages for count in counts.values()):
        return None
    return MissedEntries(messages, counts) if sum(counts.values()) >= messages else None
