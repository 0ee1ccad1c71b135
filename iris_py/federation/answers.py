"""The messages of a survey of another cloud, between the node that asks and the gateway there (docs/design.md 15.83).

They travel through a tunnel and a channel, one message each; the gateway on the way looks at none. The caller sends a
QUESTION; the other side says with ASKED who is asked, with ANSWER what became of each, and with ENDED that nothing more comes.
Members have pseudonyms and zones, and no addresses. Nothing here raises because of what another process has sent.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple, TypeAlias

from iris_overlay.messages import ZONE_LENGTH_MAX
from iris_py.peers.group import DIRECT_MEMBERS_MAX
from iris_py.wire import packets

QUESTION, ASKED, ANSWER, ENDED = range(1, 5)
#: Of an answer that the gateway had no memory for: nobody says that on a link.
DROPPED: Final = 0
#: The pseudonym of a member.
PSEUDONYM_BYTES: Final = 16

_TYPE: Final = struct.Struct(">B")
#: Type, how many members are asked, how many of them follow.
_ASKED: Final = struct.Struct(">BIB")
#: A member: its pseudonym, and the bytes of its zone, which follows.
_MEMBER: Final = struct.Struct(f">{PSEUDONYM_BYTES}sB")
#: Type, the kind of the message that the member has sent, whether it has nothing more to say; a member and a payload follow.
_ANSWER: Final = struct.Struct(">BBB")
#: What a message has besides the payload at most.
OVERHEAD_BYTES: Final = _ANSWER.size + _MEMBER.size + 0xFF
#: How many replies are enough, for the gateway there: what a channel for a survey is opened with; 0: all.
_STOP_AFTER: Final = struct.Struct(">I")
_KINDS: Final = frozenset((packets.REPLY, packets.FAILURE, packets.DECLINE, packets.REJECTION, DROPPED))


class Place(NamedTuple):
    """A member, as another cloud sees it."""

    pseudonym: bytes
    """The same at all gateways of its cloud, for one neighbour."""
    zone: str
    """Where it says it is."""


class Asked(NamedTuple):
    """The question leaves for the members."""

    expected: int
    """How many are asked."""
    members: tuple[Place, ...] = ()
    """The members; empty if there are too many to know."""


class Answer(NamedTuple):
    """A member has said something."""

    member: Place
    """The member."""
    kind: int
    """REPLY, FAILURE, DECLINE or REJECTION of :mod:`iris_py.wire.packets`, or DROPPED."""
    is_last: bool
    """Whether it has nothing more to say."""
    payload: bytes = b""
    """The reply, or the encoded failure."""


class Ended(NamedTuple):
    """Nothing more comes."""

    outcome: bytes
    """Why nobody was asked, as :mod:`iris_py.federation.calling` has it; an empty reply if somebody was."""


Said: TypeAlias = Asked | Answer | Ended


def encode_question(payload: bytes) -> bytes:
    """Encode what the caller asks."""
    return _TYPE.pack(QUESTION) + payload


def decode_question(data: bytes) -> bytes | None:
    """Decode what the caller asks; None if it is no question."""
    return data[_TYPE.size :] if data[:1] == b"\x01" else None


def encode_said(message: Said) -> bytes:
    """Encode what the gateway says. Of more members than are told by name it tells none."""
    if isinstance(message, Asked):
        members = message.members if len(message.members) <= DIRECT_MEMBERS_MAX else ()
        head = _ASKED.pack(ASKED, min(message.expected, 0xFFFF_FFFF), len(members))
        return head + b"".join(map(_encode_place, members))
    if isinstance(message, Answer):
        head = _ANSWER.pack(ANSWER, message.kind, message.is_last)
        return head + _encode_place(message.member) + message.payload
    return _TYPE.pack(ENDED) + message.outcome


def decode_said(data: bytes) -> Said | None:
    """Decode what the gateway says; None if it is malformed. Never raises."""
    kind = data[0] if data else 0
    if kind == ENDED:
        return Ended(data[_TYPE.size :]) if len(data) > _TYPE.size else None
    if kind == ASKED and len(data) >= _ASKED.size:
        return _decode_asked(data)
    if kind == ANSWER and len(data) >= _ANSWER.size:
        _type, said, is_last = _ANSWER.unpack_from(data)
        member = _decode_place(data, _ANSWER.size)
        if member is None or said not in _KINDS or is_last > 1:
            return None
        return Answer(member[0], said, bool(is_last), data[member[1] :])
    return None


def encode_stop_after(stop_after: int | None) -> bytes:
    """Encode how many replies are enough; None for all."""
    return _STOP_AFTER.pack(min(stop_after or 0, 0xFFFF_FFFF))


def decode_stop_after(options: bytes) -> int | None:
    """Decode how many replies are enough; None for all, also where it is malformed."""
    return _STOP_AFTER.unpack(options)[0] or None if len(options) == _STOP_AFTER.size else None


# --


def _decode_asked(data: bytes) -> Asked | None:
    _type, count, told = _ASKED.unpack_from(data)
    if told > min(count, DIRECT_MEMBERS_MAX):
        return None
    members, at = [], _ASKED.size
    for _ in range(told):
        member = _decode_place(data, at)
        if member is None:
            return None
        members.append(member[0])
        at = member[1]
    return Asked(count, tuple(members)) if at == len(data) else None


def _encode_place(place: Place) -> bytes:
    zone = place.zone.encode()
    return _MEMBER.pack(place.pseudonym, len(zone)) + zone


def _decode_place(data: bytes, at: int) -> tuple[Place, int] | None:
    """Return a member, and where it ends."""
    if len(data) - at < _MEMBER.size:
        return None
    pseudonym, zone_bytes = _MEMBER.unpack_from(data, at)
    start = at + _MEMBER.size
    end = start + zone_bytes
    if end > len(data):
        return None
    try:
        zone = data[start:end].decode()
    except UnicodeDecodeError:
        return None
    return (Place(pseudonym, zone), end) if len(zone) <= ZONE_LENGTH_MAX else None
