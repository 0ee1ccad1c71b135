"""The events of a node for its owner, without the outcomes of requests."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import msgspec

from iris_py.peers.group import Group

if TYPE_CHECKING:
    from iris_overlay.events import (
        Departed,
        DialChecked,
        DialRequested,
        EchoReturned,
        GroupJoined,
        GroupLeft,
        RootLocated,
        Settled,
    )
    from iris_py.node.questions import NodeAnswered, NodeAsked
    from iris_py.patterns.request.registration import ServiceEvent
    from iris_py.patterns.survey import SurveyEvent
    from iris_py.patterns.topic.queue import TopicEvent
    from iris_py.patterns.tunnel.table import TunnelEvent
    from iris_py.peers.outbound import RoomMade
    from iris_py.peers.peer_table import StrangerRefused
    from iris_py.peers.rotation import RotationEvent


class DialRefused(msgspec.Struct):
    """A peer answers at the address but could not be authenticated."""

    address: str
    reason: str
    is_end: bool = False
    """Whether the connection merely ended, as with a killed node."""


class DialBroken(msgspec.Struct):
    """A connection to the address was made and failed for another reason."""

    address: str
    reason: str


class DialAnswered(msgspec.Struct):
    """A node of the network answers at the address."""

    address: str


class ViewKnown(msgspec.Struct):
    """The first membership view of a group has arrived."""

    group: Group


#: A string, so that no process loads the modules of patterns that it does not use.
NodeEvent: TypeAlias = """(
    DialRequested
    | DialRefused
    | DialBroken
    | DialAnswered
    | StrangerRefused
    | Settled
    | EchoReturned
    | DialChecked
    | GroupJoined
    | GroupLeft
    | Departed
    | RootLocated
    | ViewKnown
    | NodeAsked
    | NodeAnswered
    | RoomMade
    | TopicEvent
    | ServiceEvent
    | SurveyEvent
    | TunnelEvent
    | RotationEvent
)"""
