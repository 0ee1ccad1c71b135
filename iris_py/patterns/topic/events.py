"""The events of publish and subscribe, for the owner of a node."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from iris_py.patterns.topic.queue import SubscriptionQueue


@dataclass(slots=True)
class RoomMade:
    """A link that was congested has room again, or is gone: who waited for room may try again."""


@dataclass(slots=True)
class SubscriptionReady:
    """Something has arrived for a subscription, or it was cut off."""

    queue: SubscriptionQueue


@dataclass(slots=True)
class SubscriptionTold:
    """Every publisher knows of a subscription."""

    queue: SubscriptionQueue


TopicEvent: TypeAlias = RoomMade | SubscriptionReady | SubscriptionTold
