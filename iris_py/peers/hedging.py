"""Hedging: when to give an idempotent request to a second member as well, and how often (docs/design.md 6.12).

A stopped member and a member about to answer are equally silent; only time tells them apart. A request slower than nearly all
earlier requests goes to a second member too (Dean and Barroso, *The Tail at Scale*, 2013). A budget bounds the extra load: when
a whole cluster slows down every answer is late, and doubled requests would overload the cluster.
"""

from __future__ import annotations

#: Steps of the estimated quantile of reply times: each longer time raises the estimate by ``RAISED``, each shorter time lowers
#: it by ``LOWERED``, so that 2 % of the times exceed it. Steps are factors, because times differ by orders of magnitude.
RAISED = 1.1
LATE_SHARE = 0.02
LOWERED = RAISED ** (-LATE_SHARE / (1 - LATE_SHARE))
#: Factor on the estimated quantile (see ``RAISED``). With 1, members merely slower than most would use up the budget.
DELAY_FACTOR = 1.5
#: The shortest delay (seconds). Shorter delays measure a busy processor rather than a member, and need too many timers.
DELAY_S_MIN = 0.02
#: The delay before the first measurement: this share of the timeout, at most ``UNMEASURED_S_MAX`` (seconds).
UNMEASURED_SHARE = 0.25
UNMEASURED_S_MAX = 0.5
#: The largest share of the timeout; the second member needs the rest.
TIMEOUT_SHARE_MAX = 0.5
#: Time (seconds) that a member has to show a sign of life for a keyed request, at most ``UNMEASURED_SHARE`` of the timeout. Too
#: small: a keyed request is executed twice because its member was busy; too large: a frozen member outlasts the timeout.
SIGN_S = 0.5
#: Hedged requests (sent to a second member) allowed for each answered request: the most load that hedging adds.
HEDGES_SHARE = 0.05
#: Largest saved budget, and the budget at first. A member that stops holds all requests a node had in flight there, which are
#: late at once. Too small: some of them time out; too large: a slow moment doubles the load for a while.
HEDGES_SAVED_MAX = 256.0
HEDGES_AT_FIRST = 32.0
#: A timer later than this (seconds) means that this node itself stood still, so it reads its input first.
LATE_S = 0.1


class Hedging:
    """The reply times of one cluster, and its budget of hedged requests (sent to a second member as well).

    Attributes:
        late_s: Estimated time within which 98 % of the answers arrive; 0.0 before the first.
    """

    __slots__ = ("_answered", "_budget", "_shares", "late_s")

    def __init__(self) -> None:
        self.late_s = 0.0
        self._answered = 0
        self._budget = HEDGES_AT_FIRST
        # percent -> estimated time within which that many answers arrive, for requested percents
        self._shares: dict[int, float] = {}

    def observe(self, duration_s: float) -> None:
        """Record a member's reply time for an idempotent request."""
        self._answered += 1
        late_s = self.late_s
        if duration_s <= late_s:
            self.late_s = late_s * LOWERED
        else:
            self.late_s = late_s * RAISED if late_s else 2 * duration_s
        for percent, share_s in self._shares.items():
            if duration_s <= share_s:
                self._shares[percent] = share_s * RAISED ** (1 - 100 / percent)
            else:
                self._shares[percent] = share_s * RAISED if share_s else duration_s

    def share_s(self, percent: int, timeout_s: float) -> float:
        """Return the delay after which a request is hedged: the estimated time within which ``percent`` of the answers arrive.

        Args:
            percent: 1 to 99.
        """
        share_s = self._shares.setdefault(percent, 0.0)
        if not share_s:
            return self.delay_s(timeout_s)
        return min(max(share_s, DELAY_S_MIN), timeout_s * TIMEOUT_SHARE_MAX)

    def delay_s(self, timeout_s: float) -> float:
        """Return the delay after which a request with this timeout is hedged (sent to a second member)."""
        delay_s = DELAY_FACTOR * self.late_s
        if DELAY_S_MIN < delay_s < (longest_s := timeout_s * TIMEOUT_SHARE_MAX):
            return delay_s
        if not delay_s:
            return min(UNMEASURED_S_MAX, timeout_s * UNMEASURED_SHARE)
        return min(longest_s, delay_s) if delay_s > DELAY_S_MIN else min(DELAY_S_MIN, timeout_s * TIMEOUT_SHARE_MAX)

    def sign_s(self, timeout_s: float) -> float:
        """Return the time to wait for a sign of life, for a request with this timeout."""
        return max(self.delay_s(timeout_s), min(SIGN_S, timeout_s * UNMEASURED_SHARE))

    def take(self) -> bool:
        """Take one hedged request from the budget; return False if the budget is empty."""
        self._budget = min(HEDGES_SAVED_MAX, self._budget + HEDGES_SHARE * self._answered)
        self._answered = 0
        if self._budget < 1.0:
            return False
        self._budget -= 1.0
        return True
