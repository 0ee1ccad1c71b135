"""The seeds of a node: who answers there, and if nobody, why. People are told, for somebody has vouched for each seed."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from iris_py.errors import HandshakeError
from iris_py.logs import EventLogger
from iris_py.net.driver import describe_dial_error, is_absence
from iris_py.node.events import DialAnswered, DialBroken, DialRefused

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from iris_py.errors import IrisError

logger = EventLogger("iris_py")

#: So many connections one after the other must have ended in the middle of the handshake before that is taken for a wrong
#: secret: a node that does not know ours ends each of them without a word, and so does, once, a process that is killed at
#: that moment. Nobody listens where one was killed, which a further dial finds out. Too small: a killed seed is taken for a
#: stranger; too large: who has a wrong secret hears of it later.
ENDS_MIN = 3
#: How long :func:`connect` looks at seeds that end connections in the middle of the handshake. The dials that decide whether
#: they are nodes of another network take a third of a second; too large: a seed that is killed and goes silent holds it up.
SEEDS_TIMEOUT_S = 3.0

_UNTRIED = "has not answered yet"


class Seeds:
    """Keeps the last outcome of each seed.

    Args:
        addresses: The seeds, but for the node itself.
    """

    def __init__(self, addresses: Iterable[str]) -> None:
        self._outcomes = dict.fromkeys(addresses, _UNTRIED)  # of those where nobody answers
        self._addresses = frozenset(self._outcomes)
        self._ends: dict[str, int] = {}  # connections in a row that ended in the middle of the handshake
        self._absent: set[str] = set()  # where surely no node of the network is
        self._strangers: dict[str, str] = {}  # where somebody has no secret of ours, and what proved it
        self._changed = asyncio.Event()

    def __contains__(self, address: str) -> bool:
        return address in self._addresses

    @property
    def unreached(self) -> dict[str, str]:
        """Return where nobody answers, each with what is known of it: "refuses connections" and the like."""
        return dict(self._outcomes)

    @property
    def strangers(self) -> dict[str, str]:
        """Return where somebody answers who does not hold our secret, each with what proved it."""
        return dict(self._strangers)

    @property
    def is_unknown(self) -> bool:
        """Return whether there may be a node of the network at a seed that has not answered."""
        return not self._absent.issuperset(self._outcomes)

    @property
    def error(self) -> HandshakeError | None:
        """Return what to raise if somebody answers at every seed, and none of them holds our secret."""
        if not self._strangers or len(self._strangers) < len(self._addresses):
            return None
        address, reason = next(iter(self._strangers.items()))
        return HandshakeError(address, reason)

    @property
    def is_in_doubt(self) -> bool:
        """Return whether further dials decide if there is an :attr:`error`."""
        doubtful = [address for address in self._addresses if self._ends.get(address, 0) and address not in self._strangers]
        return bool(doubtful) and len(doubtful) + len(self._strangers) == len(self._addresses)

    async def check(self, has_peers: Callable[[], bool]) -> None:
        """Wait while further dials decide whether the secret is wrong: when every seed answers and none of them holds it.

        Args:
            has_peers: Returns whether the node has found its network, so that the secret is right.

        Raises:
            HandshakeError: The secret must be wrong.
        """
        try:
            async with asyncio.timeout(SEEDS_TIMEOUT_S):
                while self.is_in_doubt and not has_peers():
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            return
        if self.error is not None and not has_peers():
            raise self.error

    def dialled(self, event: DialAnswered | DialBroken | DialRefused) -> None:
        """Note the outcome of a dial that reached somebody. Of addresses that are no seeds only strangers are logged."""
        if event.address not in self:
            if isinstance(event, DialRefused):
                logger.debug(
                    "stranger",
                    "%s is not a node of this network: %s",
                    event.address,
                    event.reason,
                    address=event.address,
                    reason=event.reason,
                )
            return
        if isinstance(event, DialAnswered):
            self.reached(event.address)
        elif isinstance(event, DialRefused):
            self.refused(event.address, event.reason, is_end=event.is_end)
        else:
            self.failed(event.address, f"took a connection that came to nothing ({event.reason})")
        self._changed.set()

    def dial_failed(self, address: str, error: OSError | IrisError) -> None:
        """Note that a dial reached nobody; of addresses that are no seeds this is not kept."""
        if address in self:
            self.failed(address, describe_dial_error(error), is_absent=is_absence(error))
            self._changed.set()

    def reached(self, address: str) -> None:
        """A node of the network answers there."""
        self._forget(address)
        if self._outcomes.pop(address, _UNTRIED) is not _UNTRIED:
            logger.info("seed_reached", "the seed %s is reached", address, about=address, seed=address)

    def refused(self, address: str, reason: str, *, is_end: bool) -> None:
        """Somebody answers there who could not be authenticated.

        Args:
            address: The seed.
            reason: What the handshake has failed for.
            is_end: Whether the connection merely ended: only several in a row prove something.
        """
        if is_end:
            self._absent.discard(address)
        else:
            self._absent.add(address)
        ends = self._ends[address] = self._ends.get(address, 0) + 1
        if not is_end or ends >= ENDS_MIN:
            self._strangers[address] = reason
            self._note(address, f"is not a node of this network: {reason}")
        else:
            self._outcomes[address] = f"may hold another secret: {reason}"

    def failed(self, address: str, reason: str, *, is_absent: bool = False) -> None:
        """Nobody answers there.

        Args:
            address: The seed.
            reason: What one can say of it: "refuses connections".
            is_absent: Whether surely nobody is there; else somebody may be, who does not answer.
        """
        self._forget(address)
        if is_absent:
            self._absent.add(address)
        self._note(address, reason)

    def _forget(self, address: str) -> None:
        self._ends.pop(address, None)
        self._absent.discard(address)
        self._strangers.pop(address, None)

    def _note(self, address: str, reason: str) -> None:
        if self._outcomes.get(address) != reason:
            logger.warning(
                "seed_unreached",
                "the seed %s %s. It is tried again and again.",
                address,
                reason,
                about=address,
                seed=address,
                reason=reason,
            )
        self._outcomes[address] = reason
