"""The secret of the network, exchanged while it runs: what the administrator has signed goes from peer to peer.

Both sides of each link say which signed generations count there, and who is behind is sent what counts (docs/design.md 2.10).
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
    """Signed generations count from now on: the owner uses them."""

    signed: SignedGenerations


class RotationMissed(msgspec.Struct):
    """Generations count among the peers that this node cannot use."""

    reason: str


class RotationHeard(msgspec.Struct):
    """A peer has said which generations count there."""


RotationEvent: TypeAlias = GenerationsSigned | RotationMissed | RotationHeard


class _Side:
    """The other end of a link."""

    __slots__ = ("rank", "sent", "told")

    def __init__(self) -> None:
        self.rank: Rank | None = None  # what it says to count there
        self.told: Rank | None = None  # what it was told to count here
        self.sent: Rank | None = None  # what it was sent: once, or who only says to be behind would get it again and again


class Rotation:
    """Take and pass on what the administrator of the network has signed.

    Args:
        keyring: The secrets of the network.
        emit: Takes what happened.

    Attributes:
        signed: What counts here; None before the first rotation.
        unsigned: How often a peer has sent what the administrator has not signed.
    """

    def __init__(self, keyring: Keyring, emit: Callable[[RotationEvent], None]) -> None:
        self.signed: SignedGenerations | None = None
        self.unsigned = 0
        self._emit = emit
        self._sides: dict[Link, _Side] = {}  # of open links
        self.rekey(keyring)

    @property
    def rank(self) -> Rank:
        """Of what counts here."""
        return Rank() if self.signed is None else self.signed.rank

    def ranks(self) -> dict[Link, Rank | None]:
        """Return what the peers of open links say to count there; None for one that says nothing of it."""
        return {link: side.rank for link, side in self._sides.items()}

    def rekey(self, keyring: Keyring) -> None:
        """Handle that the node uses other secrets."""
        self._keyring = keyring
        self._secrets = frozenset(keyring.secrets)

    def link_opened(self, link: Link) -> None:
        """Tell a peer which generations count here, if there is anybody who may exchange them."""
        self._sides[link] = _Side()
        self._tell(link)

    def link_closed(self, link: Link) -> None:
        """Forget a link."""
        self._sides.pop(link, None)

    def receive(self, link: Link, event: RankTold | GenerationsTold) -> None:
        """Handle what the peer of an open link says."""
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
        """Use signed generations from now on, and tell all peers."""
        self.signed = signed
        self._secrets = frozenset(signed.secrets)
        self._emit(GenerationsSigned(signed))
        for link in self._sides:
            self._tell(link)

    def _receive_generations(self, side: _Side, encoded: bytes, administrator: bytes) -> None:
        try:
            signed = SignedGenerations.open(encoded, self._keyring.network, administrator)
        except AuthenticationError:
            self.unsigned += 1
            return
        side.rank = max(signed.rank, side.rank or signed.rank)
        if signed.rank <= self.rank:
            return
        if self._secrets.isdisjoint(signed.secrets):
            # Where secrets were exchanged in files since, to put somebody out, what was signed before brings nothing back.
            self._emit(RotationMissed("this node holds none of the generations that count now"))
            return
        self.take(signed)

    def _tell(self, link: Link) -> None:
        """Send what counts here to a peer that is behind, and tell others that it does."""
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
