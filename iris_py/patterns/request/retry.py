"""Retries of a request, where ``idempotent=True`` is too coarse: :class:`Retry` (docs/design.md 16.72)."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, get_args

from iris_py.errors import ConfigurationError

if TYPE_CHECKING:
    from iris_py.peers.hedging import Hedging

__all__ = ["HedgeAfter", "Retry", "RetryReason"]

#: Why a request is given to another member: the first was lost, its handler failed, or there is no member to begin with.
RetryReason: TypeAlias = Literal["lost", "failed", "no_members"]
#: When a second member is asked as well: after the time that so many of a hundred answers take, or ``auto``.
HedgeAfter: TypeAlias = Literal["auto", "p50", "p75", "p90", "p95", "p99"]

_REASONS: Final = get_args(RetryReason)
_TIMES: Final = get_args(HedgeAfter)


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """A rule for repeating a request. To give one says that executing the request twice is harmless.

    ``Retry()`` is what ``idempotent=True`` does. In any case everything ends with the timeout of the request, and what surely
    was not executed, as where a member was full, is tried elsewhere without counting.

    Raises:
        ConfigurationError: A value is wrong.
    """

    attempts: int | None = None
    """How many members may be given it at most, the first and those that it is hedged with included; None for as many as the
    timeout allows. It is executed at most so often. When the last of them is lost, fails or takes too long, that is the
    outcome."""
    attempt_timeout: float | None = None
    """Seconds after which those who have it are told to stop, and another one is asked: the same again, after a pause, where
    there is no other. A reply that comes later is not taken. None waits for as long as the member lives."""
    hedge_after: HedgeAfter | float | None = "auto"
    """When a second member is given it as well, if the first has neither answered nor died; whichever replies first counts.
    Seconds; or the time within which that share of the cluster's answers to this node came of late, at least 20 ms and at most
    half of the timeout; ``auto`` for one and a half times what 98 % take; None for never. At most every twentieth request of a
    cluster is hedged, and with a key only one whose member gives no sign of life."""
    on: tuple[RetryReason, ...] = ("lost", "no_members")
    """Why it is tried again: ``lost``, its member died or the link to it broke; ``failed``, its handler raised; ``no_members``,
    it waits for one where nobody serves the cluster. Without a reason, that is raised at once."""

    def __post_init__(self) -> None:
        attempts, after = self.attempts, self.hedge_after
        if attempts is not None and (not isinstance(attempts, int) or isinstance(attempts, bool) or attempts < 1):
            raise ConfigurationError(f"attempts={attempts!r} must be a whole number of at least 1, or None.")
        if self.attempt_timeout is not None and not _is_time(self.attempt_timeout):
            raise ConfigurationError(
                f"attempt_timeout={self.attempt_timeout!r} must be a positive and finite number of seconds, or None."
            )
        if after is not None and not (after in _TIMES if isinstance(after, str) else _is_time(after)):
            raise ConfigurationError(
                f"hedge_after={after!r} must be one of {', '.join(_TIMES)}, a positive and finite number of seconds, or None."
            )
        given: object = self.on
        on = (given,) if isinstance(given, str) else given
        if not isinstance(on, Collection) or not all(reason in _REASONS for reason in on):
            raise ConfigurationError(f"on={self.on!r} must be some of {', '.join(_REASONS)}.")
        object.__setattr__(self, "on", tuple(reason for reason in _REASONS if reason in on))

    def delay_s(self, hedging: Hedging, timeout_s: float) -> float:
        """Return how long a member is waited for alone, in seconds; for ever if it is never hedged.

        Args:
            hedging: The times of the cluster.
            timeout_s: The timeout of the request.
        """
        after = self.hedge_after
        if after is None:
            return math.inf
        if after == "auto":
            return hedging.delay_s(timeout_s)
        return hedging.share_s(int(after[1:]), timeout_s) if isinstance(after, str) else after


def _is_time(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < math.inf
