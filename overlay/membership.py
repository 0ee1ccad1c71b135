"""Peers, and what they have been told: welcomes, changes and acknowledgements.

Theory of operation. Every node numbers the changes of its own memberships: its **sequence**. For each peer it keeps `told`,
what the peer acknowledged of ours, and `heard`, what we applied of its. A snapshot (`Welcome`, or `Leaving` once the node
left) is sent on every new link, and again to a peer that acknowledged too little for `told_timeout_s`, with growing
intervals. A change (`Joined`, `Left`) is applied only if it is the next one, so lost or reordered changes, which can happen
while two links to one peer become one, wait for the next snapshot.

A command completes when every live peer acknowledged its sequence. Acknowledgements are cumulative, so commands complete in
order, and only the first one needs to know whom it waits for.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from overlay.events import Departed, GroupJoined, GroupLeft, PeerJoined, PeerLost, ProtocolViolated
from overlay.messages import Joined, Leaving, Left, Told, Welcome, encode_message
from overlay.timers import DeadlineTable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from overlay.config import OverlayConfig, Rng
    from overlay.counters import Counters
    from overlay.events import Event
    from overlay.groups import Directory
    from overlay.ids import GroupId, NodeId
    from overlay.messages import LinkMessage, NodeInfo

COMMANDS_MAX: Final = 4096
"""Commands that wait for acknowledgements. A caller that joins and leaves in a loop reaches it; the oldest command then
completes at once, as if its bound had passed."""

RESEND_DELAY_S_MAX: Final = 30.0
"""The longest interval between snapshots to a peer that does not acknowledge. Its link is likely to break long before."""

WELCOME_PEERS_BYTES_MAX: Final = 512 * 1024
"""The room of a Welcome for peers; the other half of MESSAGE_BYTES_MAX is for memberships. Reached only when most nodes
have many long addresses; each Welcome begins at a random peer, so the next one names the others."""


@dataclass(slots=True)
class Peer:
    """Hold what is known about a live peer."""

    info: NodeInfo
    told: int = -1
    """The peer acknowledged our changes up to here. Invariant: -1 <= told <= our sequence."""
    heard: int = -1
    """We applied the peer's changes up to here; -1 before its first Welcome."""
    resend_delay_s: float = 0.0
    is_leaving: bool = False
    """It said Leaving: it is named to nobody, but told as long as its link holds, since it may still be sending."""
    is_violator: bool = False
    """It broke the protocol: it is ignored until the owner has closed the link."""


class _Command(NamedTuple):
    sequence: int
    completion: GroupJoined | GroupLeft | Departed
    deadline: float


class PeerTable:
    """Keep the live peers informed about the local node's memberships, and the directory about theirs."""

    def __init__(self, local: NodeInfo, config: OverlayConfig, rng: Rng, directory: Directory, counters: Counters) -> None:
        self.peers: dict[NodeId, Peer] = {}
        self.messages: list[tuple[NodeId, bytes]] = []
        self.events: list[Event] = []
        self.completions: list[Event] = []
        self.is_leaving = False
        self._local = local
        self._config = config
        self._rng = rng
        self._directory = directory
        self._counters = counters
        self._sequence = 0
        self._is_released = False
        self._commands: deque[_Command] = deque()
        # Whom the first command waits for; None before that was found out.
        self._waiting: dict[NodeId, None] | None = None
        # Acknowledgements are collected until the owner takes messages: one Told answers a burst of changes.
        self._acknowledge: dict[NodeId, None] = {}
        self._resend: DeadlineTable[NodeId] = DeadlineTable()
        self._refresh_at: float | None = None

    @property
    def commands_count(self) -> int:
        """Return how many commands wait for acknowledgements."""
        return len(self._commands)

    # Links

    def open(self, info: NodeInfo, now: float) -> bool:
        """Add a peer, or start over with one that has a new link. Return whether there was room."""
        peer = self.peers.get(info.id)
        if peer is None:
            if len(self.peers) >= self._config.peers_max:
                self._counters.links_refused += 1
                self.events.append(ProtocolViolated(info.id, f"more than {self._config.peers_max} peers"))
                return False
            peer = self.peers[info.id] = Peer(info)
            self.events.append(PeerJoined(info))
        # What went through an earlier link to this peer may have been lost with it, so it counts as untold.
        peer.info = info
        peer.told = -1
        peer.resend_delay_s = 0.0
        if self._waiting is not None and not peer.is_violator:
            self._waiting[info.id] = None
        self._resend.cancel(info.id)
        self._send_snapshot(peer, now)
        if self._refresh_at is None:
            self._refresh_at = now + self._config.refresh_interval_s
        return True

    def close(self, node: NodeId, now: float) -> Peer | None:
        """Remove a peer and its memberships; return what was known about it."""
        peer = self.peers.pop(node, None)
        if peer is None:
            return None
        self._resend.cancel(node)
        self._acknowledge.pop(node, None)
        self._directory.remove_node(node)
        self.events.append(PeerLost(node))
        if not self.peers:
            self._refresh_at = None
        self._stop_waiting_for(node, now)
        return peer

    def violate(self, node: NodeId, reason: str, now: float) -> None:
        """Ask the owner to close the link to a peer that broke the protocol."""
        self._counters.messages_invalid += 1
        peer = self.peers.get(node)
        if peer is not None:
            peer.is_violator = True
            self._directory.remove_node(node)
            self._resend.cancel(node)
            self._acknowledge.pop(node, None)
        self.events.append(ProtocolViolated(node, reason))
        self._stop_waiting_for(node, now)

    # Commands

    def join_group(self, group: GroupId, attributes: bytes, now: float) -> None:
        """Become a member and tell everybody."""
        self._directory.add_member(self._local, group, attributes)
        self._sequence += 1
        self._tell(Joined(self._sequence, group, attributes), now)
        self._wait_for(GroupJoined(group), now)

    def leave_group(self, group: GroupId, now: float) -> None:
        """Stop being a member and tell everybody."""
        if self._directory.is_member(self._local.id, group):
            self._directory.remove_member(self._local.id, group)
            self._sequence += 1
            self._tell(Left(self._sequence, group), now)
        self._wait_for(GroupLeft(group), now)

    def leave(self, now: float) -> None:
        """Tell everybody that this node goes."""
        self.is_leaving = True
        self._directory.remove_node(self._local.id)
        self._sequence += 1
        self._tell(Leaving(self._sequence), now)
        self._wait_for(Departed(), now)

    def release(self, now: float) -> None:
        """Let commands complete from now on: the search at the start is over.

        The bound of those given before counts from here: who was found by the search was told during the search.
        """
        self._is_released = True
        deadline = now + self._config.told_timeout_s
        self._commands = deque(command._replace(deadline=deadline) for command in self._commands)
        self._maybe_complete(now)

    # Messages

    def receive_message(self, node: NodeId, message: LinkMessage, now: float) -> Sequence[NodeInfo]:
        """Handle a message of a live peer that did not break the protocol; return the nodes that it names."""
        peer = self.peers[node]
        if isinstance(message, Told):
            self._handle_told(peer, message, now)
        elif isinstance(message, Leaving):
            self._handle_leaving(peer, message)
        elif peer.is_leaving:
            self._counters.messages_unexpected += 1
        elif isinstance(message, Welcome):
            # An older snapshot than what was applied can arrive when two links become one. Its peers are still good to know.
            if message.sequence >= peer.heard:
                peer.heard = message.sequence
                self._directory.replace_memberships(peer.info, message.memberships)
            self._acknowledge[node] = None
            return message.peers
        else:
            self._handle_change(peer, message, now)
        return ()

    def handle_timeout(self, now: float) -> None:
        """Tell again who did not acknowledge, refresh one peer, and complete what waited for too long."""
        for node in self._resend.expired(now):
            peer = self.peers[node]
            peer.resend_delay_s = min(RESEND_DELAY_S_MAX, 2 * max(peer.resend_delay_s, self._config.told_timeout_s))
            self._send_snapshot(peer, now)
        if self._refresh_at is not None and now >= self._refresh_at:
            self._refresh_at = now + self._config.refresh_interval_s
            peer = list(self.peers.values())[self._rng.randrange(len(self.peers))]
            if not peer.is_violator:
                self._send_snapshot(peer, now)
        self._maybe_complete(now)

    def deadline(self) -> float | None:
        """Return the earliest time to call `handle_timeout`."""
        deadlines = [self._resend.deadline(), self._refresh_at]
        if self._commands and self._is_released:
            deadlines.append(self._commands[0].deadline)
        return min((deadline for deadline in deadlines if deadline is not None), default=None)

    def messages_to_send(self) -> list[tuple[NodeId, bytes]]:
        """Take the messages to send, acknowledgements last."""
        for node in self._acknowledge:
            self.messages.append((node, encode_message(Told(self.peers[node].heard))))
        self._acknowledge.clear()
        messages, self.messages = self.messages, []
        return messages

    def _handle_told(self, peer: Peer, message: Told, now: float) -> None:
        if message.sequence > self._sequence:
            self.violate(peer.info.id, f"acknowledged {message.sequence}, but the last change is {self._sequence}", now)
            return
        peer.told = max(peer.told, message.sequence)
        if peer.told == self._sequence:
            self._resend.cancel(peer.info.id)
            peer.resend_delay_s = 0.0
        if self._commands and peer.told >= self._commands[0].sequence:
            self._stop_waiting_for(peer.info.id, now)

    def _handle_leaving(self, peer: Peer, message: Leaving) -> None:
        peer.is_leaving = True
        peer.heard = max(peer.heard, message.sequence)
        self._directory.remove_node(peer.info.id)
        self._acknowledge[peer.info.id] = None

    def _handle_change(self, peer: Peer, message: Joined | Left, now: float) -> None:
        if peer.heard < 0 or message.sequence > peer.heard + 1:
            # Something is missing. Without an acknowledgement the peer will send a snapshot.
            self._counters.messages_unexpected += 1
            return
        if message.sequence == peer.heard + 1:
            if isinstance(message, Left):
                self._directory.remove_member(peer.info.id, message.group)
            elif self._directory.has_room(peer.info.id, message.group):
                self._directory.add_member(peer.info, message.group, message.attributes)
            else:
                self.violate(peer.info.id, "too many memberships", now)
                return
            peer.heard = message.sequence
        self._acknowledge[peer.info.id] = None

    def _tell(self, change: Joined | Left | Leaving, now: float) -> None:
        data = encode_message(change)
        for node, peer in self.peers.items():
            if not peer.is_violator:
                self.messages.append((node, data))
                self._expect_told(node, peer, now)

    def _send_snapshot(self, peer: Peer, now: float) -> None:
        snapshot = Leaving(self._sequence) if self.is_leaving else self._welcome(peer.info.id)
        self.messages.append((peer.info.id, encode_message(snapshot)))
        if peer.told < self._sequence and not peer.is_violator:
            self._expect_told(peer.info.id, peer, now)

    def _expect_told(self, node: NodeId, peer: Peer, now: float) -> None:
        if node not in self._resend:
            self._resend.set(node, now + max(peer.resend_delay_s, self._config.told_timeout_s))

    def _welcome(self, receiver: NodeId) -> Welcome:
        infos = [
            peer.info
            for peer in self.peers.values()
            if not peer.is_leaving and not peer.is_violator and peer.info.id != receiver
        ]
        # Newcomers dial in the order they read: a random beginning spreads them over the network.
        start = self._rng.randrange(len(infos)) if infos else 0
        named: list[NodeInfo] = []
        room = WELCOME_PEERS_BYTES_MAX
        for info in infos[start:] + infos[:start]:
            room -= 32 + len(info.zone) + sum(len(address) + 3 for address in info.addresses)
            if room < 0:
                break
            named.append(info)
        return Welcome(named, self._directory.memberships(self._local.id), self._sequence)

    def _wait_for(self, completion: GroupJoined | GroupLeft | Departed, now: float) -> None:
        if len(self._commands) >= COMMANDS_MAX:
            self._complete_first()
            self._counters.changes_unconfirmed += 1
        self._commands.append(_Command(self._sequence, completion, now + self._config.told_timeout_s))
        self._maybe_complete(now)

    def _stop_waiting_for(self, node: NodeId, now: float) -> None:
        if self._waiting is not None and node in self._waiting:
            del self._waiting[node]
            self._maybe_complete(now)

    def _maybe_complete(self, now: float) -> None:
        while self._commands and self._is_released:
            first = self._commands[0]
            if self._waiting is None:
                untold = [node for node, peer in self.peers.items() if not peer.is_violator and peer.told < first.sequence]
                self._waiting = dict.fromkeys(untold)
            if self._waiting:
                if now < first.deadline:
                    return
                self._counters.changes_unconfirmed += 1
            self._complete_first()

    def _complete_first(self) -> None:
        self.completions.append(self._commands.popleft().completion)
        self._waiting = None
