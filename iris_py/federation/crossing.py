"""The headers by which a node tells a gateway what a tunnel to it is for (docs/design.md 15.81)."""

from __future__ import annotations

from typing import Final

#: The use: "subscribe", "publish", "survey" or "tunnel".
OP_HEADER: Final = "iris-op"
#: The name of the cluster in the other cloud.
NAME_HEADER: Final = "iris-name"
#: How long its caller waits for it to open, in seconds; of a survey, how long for everything.
TIME_HEADER: Final = "iris-time"
#: Whether it waits for a place where all members are full.
WAITS_HEADER: Final = "iris-waits"
#: How many replies are enough for a survey; 0: all.
STOP_HEADER: Final = "iris-stop"

#: The options with which a channel for a tunnel is opened: one byte, in which this bit says that it waits for a place.
WAITS: Final = 1
