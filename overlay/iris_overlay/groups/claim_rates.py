"""The rate at which a node claims entries, and at which a root takes the claims of one node.

A claim costs the root a check of its permit (0.1 ms), work for each entry of the member, and a message with the changed entries
to every watcher. The *cost* of a claim counts this in changed entries. A node keeps to `COST_PER_S` and gathers the changes
that come meanwhile, so its claims are never refused. A root refuses the claims of a node beyond the same rate.

Method: a token bucket (RFC 2697) whose last grant may exceed the tokens, so that a claim of any size is possible.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Final

from iris_overlay.groups.entries import ENTRIES_MAX, count

if TYPE_CHECKING:
    from iris_overlay.groups.messages import Claim
    from iris_overlay.ids import NodeId

#: The cost of a claim without changed entries: the check of its permit takes as long as 10 entries.
CLAIM_COST: Final = 10

#: The number of entries of a member that cost as much as one changed entry, because each claim is checked against all of them.
ENTRIES_PER_COST: Final = 1024

#: The cost of the claims of one node in each second: 450 claims of one entry, or 5,000 changed entries. Too small: a program
#: that changes many subscriptions waits. Too large: one hostile node takes more than a tenth of the root's processor time, and
#: more than 100 KB/s of each watcher.
COST_PER_S: Final = 5000.0

#: The cost of the claims that a node makes without a wait: two replacements of all entries. Too small: a program with many
#: subscriptions waits at its start, or while a table is split. Too large: a burst delays the claims of others at the root.
OWN_COST_MAX: Final = 2 * ENTRIES_MAX

#: The same as a root takes it. Too small: claims that a slow network delivers together, or that are repeated, are refused. Too
#: large: as for `OWN_COST_MAX`.
COST_MAX: Final = 3 * OWN_COST_MAX

#: The largest number of nodes whose rate a root knows; beyond it the node with the oldest claim begins anew. Too small: a node
#: with many identities gets further bursts. Too large: memory of some 300 bytes for each.
NODES_MAX: Final = 4096


def cost_of(claim: Claim) -> int:
    """Return the cost of a claim."""
    return CLAIM_COST + claim.count // ENTRIES_PER_COST + count(claim.added) + count(claim.removed)


class ClaimRate:
    """The claims of one node.

    Args:
        cost_max: The cost without a wait.
        now: Monotonic seconds.
    """

    __slots__ = ("_at", "_cost_max", "_left")

    def __init__(self, cost_max: float, now: float) -> None:
        self._cost_max = cost_max
        self._left = cost_max  # negative after a claim that cost more than was left
        self._at = now

    def wait_s(self, now: float) -> float:
        """Return the time until a claim may follow (seconds); 0 if at once."""
        if now > self._at:
            self._left = min(self._cost_max, self._left + (now - self._at) * COST_PER_S)
            self._at = now
        return 0.0 if self._left > 0.0 else (1.0 - self._left) / COST_PER_S

    def charge(self, cost: float) -> None:
        """Count a claim."""
        self._left -= cost


class ClaimRates:
    """The claims of all nodes at a root."""

    __slots__ = ("_rates",)

    def __init__(self) -> None:
        self._rates: OrderedDict[NodeId, ClaimRate] = OrderedDict()  # the node with the oldest claim first

    def take(self, claim: Claim, now: float) -> bool:
        """Count a claim. Return False if the node has claimed too much, and the claim must be dropped."""
        node = claim.info.id
        rate = self._rates.get(node)
        if rate is None:
            if len(self._rates) >= NODES_MAX:
                self._rates.popitem(last=False)
            rate = self._rates[node] = ClaimRate(COST_MAX, now)
        self._rates.move_to_end(node)
        if rate.wait_s(now):
            return False
        rate.charge(cost_of(claim))
        return True
