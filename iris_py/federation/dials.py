"""The dials of a gateway to another cloud: to several gateways there, without a second bundle to any (docs/design.md 15.93).

A *slot* stands for one wanted bundle. A slot dials address after address, without those in use by other slots, until a gateway
without a bundle answers. Behind a load balancer, only the hello tells which gateway has answered. Between tries the slot waits
for a random time with a doubling bound (full jitter); a bundle that lived for a while resets the bound.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from iris_overlay.environment import Rng
    from iris_py.federation.bundle import Bundle

#: The bound of the first wait (seconds); each further bound is twice the last. Too small: a cloud that is down is dialled in
#: vain; too large: a restarted gateway is found late.
BACK_OFF_S_MIN = 0.1
#: The largest bound of a wait (seconds). Too small: an unreachable cloud is dialled in vain; too large: a cloud link that was
#: cut for long recovers late.
BACK_OFF_S_MAX = 5.0
#: The lifetime (seconds) of a bundle after which its slot starts again with short waits.
LIFE_S = 60.0
#: Mean wait (seconds) of a slot after an answer by a gateway that already has a bundle: behind a load balancer, the next dial
#: may reach another gateway. The mean doubles up to DUPLICATE_S_MAX. Too small: useless handshakes; too large: another gateway,
#: or a gateway started later, is found late.
DUPLICATE_S_MIN = 0.5
DUPLICATE_S_MAX = 15.0
#: The longest pause, in mean pauses: an exponential distribution has no end.
PAUSES_MAX = 3.0
#: The wait (seconds) of a slot while another slot dials the only remaining address.
TURN_S = 0.5


def draw_pause(mean_s: float, rng: Rng) -> float:
    """Draw a pause (seconds) from an exponential distribution, for dials to a possible load balancer.

    Random pauses have no rhythm. Two gateways that dial a round-robin load balancer in the same rhythm would take turns, and
    each would always reach the gateway needed by the other.
    """
    return mean_s * min(PAUSES_MAX, -math.log(1.0 - rng.random()))


class Slot:
    """One wanted bundle (connections to one gateway of the other cloud), and the dials for it.

    Attributes:
        address: The address of the running dial or of the bundle; empty while the slot waits.
        tried: The address dialled last.
        bundle: The bundle; None while the slot has none.
        dial_at: The time of the next dial.
        failures: Consecutive failed tries.
        duplicates: Answers by gateways that already had a bundle, since the slot's last bundle.
        error: The error of the last failed try, for people.
    """

    def __init__(self, now: float) -> None:
        self.address = self.tried = ""
        self.bundle: Bundle | None = None
        self.dial_at = now
        self.failures = 0
        self.duplicates = 0
        self.error = ""

    @property
    def is_idle(self) -> bool:
        """Whether the slot has no bundle and is not dialling."""
        return self.bundle is None and not self.address


class Dials:
    """The dials to one neighbour (other cloud).

    Args:
        addresses: The addresses of the neighbour's gateways; empty if only the neighbour dials.

    Attributes:
        slots: One slot for each bundle.
    """

    def __init__(self, addresses: Sequence[str], bundles: int, rng: Rng, now: float) -> None:
        self._rng = rng
        self._next = 0
        self.slots: list[Slot] = []
        self.change(addresses, bundles, now)

    def change(self, addresses: Sequence[str], bundles: int, now: float) -> None:
        """Change the addresses or the number of wanted bundles. Existing bundles and running dials continue."""
        self._addresses = list(addresses)
        self._wanted = bundles if addresses else 0
        self.slots += [Slot(now) for _ in range(self._wanted - len(self.slots))]
        for slot in [slot for slot in self.slots if slot.is_idle][: max(0, len(self.slots) - self._wanted)]:
            self.slots.remove(slot)

    def handle_leaving(self, now: float) -> None:
        """Dial an unused address, if any, in place of a leaving gateway: with a further slot, until a slot ends."""
        used = {slot.address for slot in self.slots}
        if len(self.slots) == self._wanted and not used.issuperset(self._addresses):
            self.slots.append(Slot(now))

    def due(self, now: float) -> list[Slot]:
        """Return the slots (wanted bundles) to dial now, each with its ``address`` set."""
        due = []
        for slot in self.slots:
            if slot.is_idle and slot.dial_at <= now:
                slot.address = self._choose_address()
                if slot.address:
                    due.append(slot)
                else:
                    slot.dial_at = now + TURN_S
        return due

    def failed(self, slot: Slot, error: str, now: float, *, is_duplicate: bool = False) -> None:
        """Schedule the next dial of a slot (wanted bundle) after a failed dial or the end of its bundle.

        Args:
            is_duplicate: Whether another bundle to the same gateway exists.
        """
        bundle, slot.bundle, slot.tried, slot.address = slot.bundle, None, slot.address, ""
        if len(self.slots) > self._wanted:
            self.slots.remove(slot)
            return
        if is_duplicate:
            mean_s = min(DUPLICATE_S_MAX, DUPLICATE_S_MIN * 2.0 ** min(slot.duplicates, 16))
            slot.dial_at = now + draw_pause(mean_s, self._rng)
            slot.duplicates += 1
            slot.error, slot.failures = "", 0  # the gateway that answered works
            return
        slot.error = error
        if bundle is not None:
            slot.duplicates = 0
        if bundle is not None and now - bundle.opened_at >= LIFE_S:
            slot.failures = 0
        slot.failures += 1
        slot.dial_at = now + self._rng.random() * min(BACK_OFF_S_MAX, BACK_OFF_S_MIN * 2.0 ** min(slot.failures, 16))

    def deadline(self) -> float | None:
        """Return the time of the next dial."""
        return min((slot.dial_at for slot in self.slots if slot.is_idle), default=None)

    def _choose_address(self) -> str:
        """Return the next address, preferably unused by other slots; empty if another slot is dialling the last candidate.

        Two simultaneous dials to one address may reach the same gateway, and each would displace the other.
        """
        used = {slot.address for slot in self.slots}
        dialled = {slot.address for slot in self.slots if slot.bundle is None}
        for busy in (used, dialled):
            for _ in self._addresses:
                address = self._addresses[self._next % len(self._addresses)]
                self._next += 1
                if address not in busy:
                    return address
        return ""
