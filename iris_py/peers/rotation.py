"""Rotation of the network secret in running nodes: generations signed by the administrator spread from peer to peer.

Both sides of each link announce the rank of their signed generations. A node with the higher rank sends its generations to the
other (docs/design.md 2.10).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import msgspec

from iris_py.link.events import GenerationsTold, RankTold
from iris_security import AuthenticationError, SignedGenerations
from iris_security.administration import Rank

if TYPE_CHECKING:
    from collections.abc import Callable

    from iris_py.link.link import Link
    from iris_security import Keyring


class GenerationsSigned(msgspec.Struct):
    """Newly signed generations of the network's secret have arrived; the owner must use them."""

    signed: SignedGenerations


class RotationMissed(msgspec.Struct):
    """Peers have signed generations of the network's secret this node cannot use, for the given reason."""

    reason: str


class RotationHeard(msgspec.Struct):
    """A peer has announced the rank of its signed generations (which of two nodes has the newer ones)."""


RotationEvent: TypeAlias = GenerationsSigned | RotationMissed | RotationHeard


class _LinkPeer:
    """The state of the exchange with the peer at the other end of a link."""

    __slots__ = ("rank", "sent", "told")

    def __init__(self) -> None:
        self.rank: Rank | None = None  # the rank it announced
        self.told: Rank | None = None  # the rank it was told
        # the rank of the generations it was sent; sent once, or a peer that only claims to be behind would get them repeatedly
        self.sent: Rank | None = None


class Rotation:
    """Receives and spreads generations signed by the network's administrator.

    Attributes:
        signed: The latest signed generations; None before the first rotation.
        unsigned: Number of received generations without the administrator's valid signature.
    """

    def __init__(self, keyring: Keyring, emit: Callable[[RotationEvent], None]) -> None:
        self.signed: SignedGenerations | None = None
        self.unsigned = 0
        self._emit = emit
        self._sides: dict[Link, _LinkPeer] = {}  # of open links
        self.rekey(keyring)

    @property
    def rank(self) -> Rank:
        """The rank of this node's signed generations."""
        return Rank() if self.signed is None else self.signed.rank

    def ranks(self) -> dict[Link, Rank | None]:
        """Return the announced rank of every connected peer, or None without an announcement."""
        return {link: side.rank for link, side in self._sides.items()}

    def rekey(self, keyring: Keyring) -> None:
        """Continue with a new keyring, and the administrator's key in it."""
        self._keyring = keyring
        self._secrets = frozenset(keyring.secrets)

    def link_opened(self, link: Link) -> None:
        """Announce this node's rank to a new peer, if the network has an administrator."""
        self._sides[link] = _LinkPeer()
        self._tell(link)

    def link_closed(self, link: Link) -> None:
        """Forget a link."""
        self._sides.pop(link, None)

    def receive(self, link: Link, event: RankTold | GenerationsTold) -> None:
        """Handle an announced rank, or generations, from the peer of an open link."""
        side, administrator = self._sides.get(link), self._keyring.administrator
        if side is None:
            return
        if administrator is None:
            if isinstance(event, RankTold) and event.rank.number:
                self._emit(RotationMissed("this node has no administrator"))
        elif isinstance(event, RankTold):
            side.rank = event.rank
            self._tell(link)
            self._emit(RotationHeard())
        else:
            self._receive_generations(side, event.encoded, administrator)

    def take(self, signed: SignedGenerations) -> None:
        """Use new signed generations, and send or announce them to all peers."""
        self.signed = signed
        self._secrets = frozenset(signed.secrets)
        self._emit(GenerationsSigned(signed))
        for link in self._sides:
            self._tell(link)

    def _receive_generations(self, side: _LinkPeer, encoded: bytes, administrator: bytes) -> None:
        try:
            signed = SignedGenerations.open(encoded, self._keyring.network, administrator)
        except AuthenticationError:
            self.unsigned += 1
            return
        side.rank = max(signed.rank, side.rank or signed.rank)
        if signed.rank <= self.rank:
            return
        if self._secrets.isdisjoint(signed.secrets):
            # The secrets were since replaced in files, to exclude a node; older signed generations must not restore them.
            self._emit(RotationMissed("this node holds none of the generations that count now"))
            return
        self.take(signed)

    def _tell(self, link: Link) -> None:
        """Send generations to a peer with a lower rank; announce the rank to any other peer."""
        if self._keyring.administrator is None:
            return
        side, rank = self._sides[link], self.rank
        if self.signed is not None and side.rank is not None and side.rank < rank:
            if side.sent != rank:
                side.sent = side.told = rank
                link.tell_generations(self.signed)
        elif side.told != rank:
            side.told = rank
            link.tell_rank(rank)
