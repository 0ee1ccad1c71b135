"""The events of publish and subscribe, for the owner of a node."""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from iris_py.patterns.topic.queue import SubscriptionQueue


class RoomMade(msgspec.Struct):
    """A link that was congested has room again, or is gone: who waited for room may try again."""


class SubscriptionReady(msgspec.Struct):
    """Something has arrived for a subscription, or it was cut off."""

    queue: SubscriptionQueue


class SubscriptionTold(msgspec.Struct):
    """Every publisher knows of a subscription."""

    queue: SubscriptionQueue


TopicEvent: TypeAlias = RoomMade | SubscriptionReady | SubscriptionTold
