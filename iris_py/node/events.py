"""The events of a node, for its owner, besides the outcomes of requests."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from iris_overlay.events import Departed, DialRequested, GroupJoined, GroupLeft, Settled
from iris_py.patterns.request.events import ServiceEvent
from iris_py.patterns.survey import SurveyEvent
from iris_py.patterns.topic.events import TopicEvent
from iris_py.patterns.tunnel.table import TunnelEvent
from iris_py.peers.rotation import RotationEvent

if TYPE_CHECKING:
    from iris_py.peers.group import Group


@dataclass(slots=True)
class DialRefused:
    """Somebody answers at the address, but could not be authenticated."""

    address: str
    reason: str
    is_end: bool = False
    """Whether the connection merely ended, which a node that is killed does as well."""


@dataclass(slots=True)
class DialBroken:
    """A connection to the address was made, and came to nothing for another reason."""

    address: str
    reason: str


@dataclass(slots=True)
class DialAnswered:
    """A node of the network answers at the address."""

    address: str


@dataclass(slots=True)
class ViewKnown:
    """The first view of a group has arrived."""

    group: Group


NodeEvent: TypeAlias = (
    DialRequested
    | DialRefused
    | DialBroken
    | DialAnswered
    | Settled
    | GroupJoined
    | GroupLeft
    | Departed
    | ViewKnown
    | TopicEvent
    | ServiceEvent
    | SurveyEvent
    | TunnelEvent
    | RotationEvent
)
