"""The groups of one node: memberships, watches, directories and trees, over a ring."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from overlay.config import Rng
    from overlay.counters import Counters
    from overlay.events import Event
    from overlay.group_config import GroupConfig
    from overlay.group_io import GroupOutput, Path, Ring
    from overlay.ids import GroupId, NodeId
    from overlay.messages import NodeInfo


class GroupLayer:
    """Know who takes part in which group, and reach all of them.

    After any input or command the owner applies, and repeats while something moved: `outputs_to_send` (in order, each to the
    ring), `events_received`, `deadline`. Nothing from a peer raises: a malformed message becomes `ProtocolViolated`.
    """

    def __init__(self, local: NodeInfo, config: GroupConfig, rng: Rng, ring: Ring, counters: Counters) -> None:
        """Create the layer of a node."""

    # Inputs

    def activated(self, now: float) -> None:
        """Handle that the ring is joined: what waited is sent."""

    def delivered(self, key: bytes, payload: bytes, source: NodeInfo, path: Path, now: float) -> None:
        """Handle a routed message whose root is the local node."""

    def received(self, source: NodeInfo, payload: bytes, now: float) -> None:
        """Handle a direct message or an answer."""

    def undeliverable(self, key: bytes, payload: bytes, now: float) -> None:
        """Handle that the ring gave a message up."""

    def leaves_changed(self, added: list[NodeInfo], removed: list[NodeId], now: float) -> None:
        """Handle a change of the leaf set; the ring answers `is_root` and `replicas` with the new one."""

    def handover_wanted(self, to: NodeInfo, now: float) -> None:
        """Hand over what is no longer ours. `HandoverDone` follows."""

    def peer_dead(self, peer: NodeId, now: float) -> None:
        """Handle that a node is dead or left: not that merely a link to it ended."""

    def handle_timeout(self, now: float) -> None:
        """Handle that time has come; harmless if early."""

    # Commands

    def join_group(self, group: GroupId, attributes: bytes, now: float) -> None:
        """Become a member, or change the attributes. `GroupJoined` follows."""

    def leave_group(self, group: GroupId, now: float) -> None:
        """Stop being a member. `GroupLeft` follows, also when the node was none."""

    def watch_group(self, group: GroupId, now: float) -> None:
        """Ask for `ViewChanged`: when the view is known, and after every change."""

    def use_group(self, group: GroupId, now: float) -> None:
        """Say that a watched group is used: a view that nobody keeps fresh, for too many watch, is asked for again if it is old."""

    def unwatch_group(self, group: GroupId, now: float) -> None:
        """Stop watching; harmless if it is not watched."""

    def cast(self, group: GroupId, payload: bytes, now: float) -> None:
        """Send to all members, the local node too if it is one, down a tree. `Cast` follows at each of them."""

    def leave(self, now: float) -> None:
        """Leave all groups. `Departed` follows when everybody was told, or the bound passed."""

    # Outputs

    def outputs_to_send(self) -> list[GroupOutput]:
        """Take what to send."""
        raise NotImplementedError

    def events_received(self) -> list[Event]:
        """Take what happened."""
        raise NotImplementedError

    def deadline(self) -> float | None:
        """Return the earliest time to call `handle_timeout`, None for never."""
        raise NotImplementedError

    def needs(self, peer: NodeId) -> bool:
        """Return whether a link to a peer should be kept: a watcher, a root of a watch, a neighbour in a tree."""
        raise NotImplementedError
