"""The seeds of a node (addresses to dial at the start), each with its last outcome.

Users configured the seeds, so errors, logs and health report their states. A *stranger* is a node that answers, but has another
secret.
"""

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

#: Connections to a seed in a row that must end in the middle of the handshake to count as a wrong secret. A node with another
#: secret ends each connection silently; a process killed at that moment does so only once, and then refuses connections.
#: Too small: a killed seed is taken for a stranger; too large: a wrong secret is reported later.
ENDS_MIN = 3
#: Time in seconds that :func:`connect` watches seeds that end connections in the middle of the handshake. Too small: the
#: deciding dials, a third of a second, do not fit; too large: a killed and silent seed delays the start.
SEEDS_TIMEOUT_S = 3.0

_UNTRIED = "has not answered yet"


class Seeds:
    """Keeps the outcome of the last dial to each seed, and decides whether the secret must be wrong.

    Args:
        addresses: The addresses of the seeds, without those of the node itself.
    """

    def __init__(self, addresses: Iterable[str]) -> None:
        self._outcomes = dict.fromkeys(addresses, _UNTRIED)  # of seeds without an answering node
        self._addresses = frozenset(self._outcomes)
        self._ends: dict[str, int] = {}  # connections in a row that ended in the middle of the handshake
        self._absent: set[str] = set()  # surely without a node of the network
        self._strangers: dict[str, str] = {}  # seeds without our secret, and the proof
        self._changed = asyncio.Event()

    def __contains__(self, address: str) -> bool:
        return address in self._addresses

    @property
    def unreached(self) -> dict[str, str]:
        """Return the seeds at which no node of the network answers: the state of each, such as "refuses connections"."""
        return dict(self._outcomes)

    @property
    def strangers(self) -> dict[str, str]:
        """Return the seeds that answer but do not have our secret, by address, with the reason of the failed handshake."""
        return dict(self._strangers)

    @property
    def is_unknown(self) -> bool:
        """Return whether a seed without an answer may still be a node of the network."""
        return not self._absent.issuperset(self._outcomes)

    @property
    def error(self) -> HandshakeError | None:
        """Return the error if every seed answers, but without our secret; otherwise None."""
        if not self._strangers or len(self._strangers) < len(self._addresses):
            return None
        address, reason = next(iter(self._strangers.items()))
        return HandshakeError(address, reason)

    @property
    def is_in_doubt(self) -> bool:
        """Return whether further dials decide if an :attr:`error` exists."""
        doubtful = [address for address in self._addresses if self._ends.get(address, 0) and address not in self._strangers]
        return bool(doubtful) and len(doubtful) + len(self._strangers) == len(self._addresses)

    async def check(self, has_peers: Callable[[], bool]) -> None:
        """Wait until further dials have decided whether the secret is wrong: every seed then answers, but without the secret.

        Args:
            has_peers: Returns whether the node has found the network, and the secret is right.

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
        """Note the outcome of a dial with an accepted connection. If the address is no seed, only log a failed handshake."""
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
            self.failed(event.address, f"accepted a connection but completed no handshake ({event.reason})")
        self._changed.set()

    def dial_failed(self, address: str, error: OSError | IrisError) -> None:
        """Note that a dial to a seed made no connection; ignore other addresses."""
        if address in self:
            self.failed(address, describe_dial_error(error), is_absent=is_absence(error))
            self._changed.set()

    def reached(self, address: str) -> None:
        """Note that a node of the network answers at the address of a seed."""
        self._forget(address)
        if self._outcomes.pop(address, _UNTRIED) is not _UNTRIED:
            logger.info("seed_reached", "reached the seed %s", address, about=address, seed=address)

    def refused(self, address: str, reason: str, *, is_end: bool) -> None:
        """Note that a seed accepted a connection but could not be authenticated.

        Args:
            address: The seed.
            reason: The reason for the failed handshake.
            is_end: Whether the connection merely ended: only several ends in a row prove another secret.
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
        """Note that no node answered at a seed.

        Args:
            address: The seed.
            reason: The state of the seed, such as "refuses connections".
            is_absent: Whether surely no node runs at the seed; otherwise a silent node may run there.
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
                "the seed %s %s. This node keeps dialling it.",
                address,
                reason,
                about=address,
                seed=address,
                reason=reason,
            )
        self._outcomes[address] = reason
