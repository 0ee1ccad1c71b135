"""The ring as seen by the groups layer, and the outbox of the layer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeAlias

import msgspec

from iris_overlay.groups.messages import FindRoot, encode_group_message
from iris_overlay.ids import GroupId, NodeId
from iris_overlay.node_info import NodeInfo

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from iris_overlay.groups.messages import GroupMessage
    from iris_overlay.ring.pastry import Pastry

Key: TypeAlias = GroupId | NodeId
Path: TypeAlias = tuple[NodeId, ...]


class GroupRing(Protocol):
    """The ring as the groups layer sees it. `Pastry` implements it; a simulation may use a perfect ring."""

    def is_root(self, key: bytes, /) -> bool:
        """Return whether the local node is active and the nearest to a key."""

    def replicas(self, key: bytes, count: int, /) -> Sequence[NodeInfo]:
        """Return the leaves nearest to a key, without the local node."""


class RouteTo(msgspec.Struct, frozen=True):
    """Ask the owner to route a message to the root of a key (`Pastry.route`)."""

    key: bytes
    """A group, or a node: if another node gets the message as the nearest one, the node is gone."""
    payload: bytes
    """The message."""
    around: NodeId | None = None
    """A node to avoid: the message goes by an unusual way to the node nearest to the key except this one and the local node."""
    is_timed: bool = False
    """Whether `GroupLayer.delivered` needs the time in each node on the way."""


class SendTo(msgspec.Struct, frozen=True):
    """Ask the owner to send a message to a node directly, in order with earlier ones (`Pastry.send`)."""

    info: NodeInfo
    """The receiver; never the local node."""
    payload: bytes
    """The message; for several receivers the same object."""


class AnswerTo(msgspec.Struct, frozen=True):
    """Ask the owner to send a message back along the path of a delivered one (`Pastry.answer`)."""

    path: Path
    """The path of the delivered message."""
    payload: bytes
    """The message."""


class HandoverDone(msgspec.Struct, frozen=True):
    """Report that all directories for a new root were sent (`Pastry.handover_done`)."""

    to: NodeInfo
    """The new root, as passed to `GroupLayer.handover_wanted`."""


GroupOutput: TypeAlias = RouteTo | SendTo | AnswerTo | HandoverDone


def carry(output: GroupOutput, ring: Pastry, now: float) -> None:
    """Pass an output of the groups layer to the ring."""
    if isinstance(output, RouteTo):
        is_around = output.around is not None
        ring.route(output.key, output.payload, now, exclude_self=is_around, around=output.around, is_timed=output.is_timed)
    elif isinstance(output, SendTo):
        ring.send(output.info, output.payload, now)
    elif isinstance(output, HandoverDone):
        ring.handover_done(output.to, now)
    else:
        ring.answer(output.path, output.payload, now)


class Outbox:
    """The messages of all components of the groups layer, in one order, unencoded: local messages need no encoding."""

    __slots__ = ("detours", "posts")

    def __init__(self) -> None:
        self.posts: list[tuple[NodeInfo | bytes | Path, GroupMessage]] = []
        # The rare messages that avoid a node.
        self.detours: list[tuple[Key, NodeId, GroupMessage]] = []

    def send(self, info: NodeInfo, message: GroupMessage) -> None:
        """Send a message to a node."""
        self.posts.append((info, message))

    def send_all(self, info: NodeInfo, messages: Iterable[GroupMessage]) -> None:
        """Send several messages to a node."""
        self.posts += [(info, message) for message in messages]

    def route(self, key: Key, message: GroupMessage) -> None:
        """Send a message to the root of a key."""
        self.posts.append((key, message))

    def route_around(self, around: NodeId, key: Key, message: GroupMessage) -> None:
        """Send a message to the node nearest to a key, except the given and the local node."""
        self.detours.append((key, around, message))

    def answer(self, path: Path, message: GroupMessage) -> None:
        """Send a message back along a path."""
        self.posts.append((path, message))

    def take(self, local: NodeId, ring: GroupRing) -> tuple[list[GroupOutput], list[tuple[GroupMessage, Path | None]]]:
        """Remove and return the messages: encoded for other nodes; unencoded for the local node, with their path if routed."""
        posts, self.posts = self.posts, []
        detours, self.detours = self.detours, []
        outputs: list[GroupOutput] = [RouteTo(key, encode_group_message(each), around) for key, around, each in detours]
        loopback: list[tuple[GroupMessage, Path | None]] = []
        # A message to many receivers is encoded once; a table goes to each in the same messages.
        encoded: dict[int, bytes] = {}
        for target, message in posts:
            is_routed = isinstance(target, bytes)
            if isinstance(target, NodeInfo):
                is_local = target.id == local
            elif isinstance(target, bytes):
                is_local = ring.is_root(target)
            else:
                is_local = target[0] == local
            if is_local:
                loopback.append((message, (local,) if is_routed else None))
                continue
            data = encoded.get(id(message))
            if data is None:
                data = encoded[id(message)] = encode_group_message(message)
            if isinstance(target, NodeInfo):
                outputs.append(SendTo(target, data))
            elif isinstance(target, bytes):
                outputs.append(RouteTo(target, data, is_timed=isinstance(message, FindRoot)))
            else:
                outputs.append(AnswerTo(target, data))
        return outputs, loopback
