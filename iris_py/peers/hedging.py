"""Hedging: when an idempotent request is given to a second member as well, and how often (docs/design.md 6.12).

A member that has stopped says nothing, and one that is about to answer says nothing either. What tells them apart is time: an
answer that takes longer than nearly all did is not waited for alone (Dean and Barroso, *The Tail at Scale*, 2013). What that
costs is bounded by a budget, for when a whole cluster slows down every answer is late, and to ask twice would be the end of it.
"""

from __future__ import annotations

#: The quantile of the times to a reply that is followed: each one above raises the estimate by ``RAISED``, each one below
#: lowers it by ``LOWERED``, so it rests where 2 % are above. In the logarithm, for times differ by orders of magnitude.
RAISED = 1.1
LATE_SHARE = 0.02
LOWERED = RAISED ** (-LATE_SHARE / (1 - LATE_SHARE))
#: How many times that quantile is waited. With 1 what is merely slower than most would use the budget up.
DELAY_FACTOR = 1.5
#: The shortest delay (seconds). Below it a busy processor, and no member, is what is late; and a timer is to fire that often.
DELAY_S_MIN = 0.02
#: While nothing has been observed: this share of the timeout, and at most so long (seconds).
UNMEASURED_SHARE = 0.25
UNMEASURED_S_MAX = 0.5
#: The largest share of the timeout: the second member needs the rest.
TIMEOUT_SHARE_MAX = 0.5
#: How long a member whose key a request has may take for a sign of life (seconds), but at most ``UNMEASURED_SHARE`` of the
#: timeout. Too small: what has one member is executed twice, for that one was busy; too large: a frozen one beats the timeout.
SIGN_S = 0.5
#: How many requests may be given to a second member for each one that was answered: the load that hedging adds at most.
HEDGES_SHARE = 0.05
#: What of that may be saved up, and what there is at first. A member that stops holds what a node had under way there, all of
#: which is late at once. Too small: some of these run out of time; too large: a slow moment doubles the load for a while.
HEDGES_SAVED_MAX = 256.0
HEDGES_AT_FIRST = 32.0
#: A timer that is so late (seconds) says that this node itself stood still: what has come meanwhile is read first.
LATE_S = 0.1


class Hedging:
    """The times of one cluster, and the budget.

    Attributes:
        late_s: What 98 % of the answers took at most, about; 0.0 before the first.
    """

    __slots__ = ("_answered", "_budget", "_shares", "late_s")

    def __init__(self) -> None:
        self.late_s = 0.0
        self._answered = 0
        self._budget = HEDGES_AT_FIRST
        self._shares: dict[int, float] = {}  # by percent: what so many answers took at most; of those that were asked for

    def observe(self, duration_s: float) -> None:
        """Take in how long a member took for an idempotent request."""
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
        """Return how long so many of a hundred answers take at most, about, for a request of that time-out; as a delay.

        It is learnt from the first time on that it is asked for; until the next answer it is as :meth:`delay_s`.

        Args:
            percent: 1 to 99.
            timeout_s: The time-out.
        """
        share_s = self._shares.setdefault(percent, 0.0)
        if not share_s:
            return self.delay_s(timeout_s)
        return min(max(share_s, DELAY_S_MIN), timeout_s * TIMEOUT_SHARE_MAX)

    def delay_s(self, timeout_s: float) -> float:
        """Return how long a member is waited for alone, by a request of that time-out."""
        delay_s = DELAY_FACTOR * self.late_s
        if DELAY_S_MIN < delay_s < (longest_s := timeout_s * TIMEOUT_SHARE_MAX):
            return delay_s
        if not delay_s:
            return min(UNMEASURED_S_MAX, timeout_s * UNMEASURED_SHARE)
        return min(longest_s, delay_s) if delay_s > DELAY_S_MIN else min(DELAY_S_MIN, timeout_s * TIMEOUT_SHARE_MAX)

    def sign_s(self, timeout_s: float) -> float:
        """Return how long to wait for a sign of life, for a request of that time-out."""
        return max(self.delay_s(timeout_s), min(SIGN_S, timeout_s * UNMEASURED_SHARE))

    def take(self) -> bool:
        """Take one from the budget, if there is one."""
        self._budget = min(HEDGES_SAVED_MAX, self._budget + HEDGES_SHARE * self._answered)
        self._answered = 0
        if self._budget < 1.0:
            return False
        self._budget -= 1.0
        return True
