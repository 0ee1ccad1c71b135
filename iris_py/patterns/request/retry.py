"""The retry policy of a request: when to repeat it, how often, and after which pause (docs/design.md 16.72)."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, get_args

from iris_py.errors import ConfigurationError

if TYPE_CHECKING:
    from iris_overlay.environment import Rng
    from iris_py.peers.hedging import Hedging

__all__ = ["HedgeAfter", "Retry", "RetryReason", "retry_of"]

#: Reasons to retry: the member was lost, its handler failed, or the cluster has no member at the start.
RetryReason: TypeAlias = Literal["lost", "failed", "no_members"]
#: When to ask a second member: after the time within which this percentage of answers arrives, or ``auto``.
HedgeAfter: TypeAlias = Literal["auto", "p50", "p75", "p90", "p95", "p99"]

#: Executions of a request whose handlers fail, if ``attempts`` is not set. Too small: a dependency that is down for a second
#: fails the request; too large: a faulty request occupies members in vain. Queues use the same number for messages whose
#: consumer fails (pynsq ``max_tries``, gRPC caps ``maxAttempts`` at it).
FAILED_ATTEMPTS = 5
#: Members that one idempotent request may lose. Without a bound, a request whose handler kills its process would kill one
#: member after the other. Too small (1): the death of a single machine fails its requests; too large: such a request costs that
#: many members.
MEMBERS_LOST_MAX = 2
#: The first pause after a failure (seconds), the factor of the following pauses, and the longest pause. Too small: members
#: whose database is down are asked again before it can be up; too large: a single failure delays callers that long.
BACKOFF_S = 0.1
BACKOFF_FACTOR = 2.0
BACKOFF_S_MAX = 10.0
#: Number of factors after which a pause stops growing, so that the power cannot overflow.
_POWER_MAX = 64

_REASONS: Final = get_args(RetryReason)
_TIMES: Final = get_args(HedgeAfter)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Retry:
    """A retry policy: when to repeat a request, how often, and after which pause. It implies ``idempotent=True``.

    ``Retry()`` equals ``idempotent=True``. The timeout of the request bounds all attempts. A request that surely was not
    executed, for example because a member was full, is tried elsewhere without counting as an attempt.

    Raises:
        ConfigurationError: A value is invalid.
    """

    attempts: int | None = None
    """Largest number of executions, including hedging; the last attempt's error is the outcome.

    None: five if handlers fail, otherwise limited by ``timeout`` and ``members_lost_max`` only.
    """
    attempt_timeout: float | None = None
    """Seconds after which the request is cancelled and given to another member. None: wait while the member lives.

    Without another member, the same one is asked again after a pause. A later reply is dropped.
    """
    hedge_after: HedgeAfter | float | None = "auto"
    """The delay before a silent member's request also goes to a second member; the first reply counts.

    Seconds; or a percentile of the cluster's recent answer times to this node, at least 20 ms and at most half of the timeout;
    ``auto`` for one and a half times the 98th percentile; None for never. At most every twentieth request of a cluster is
    hedged. A keyed request is hedged only if its member gives no sign of life.
    """
    on: tuple[RetryReason, ...] = ("lost", "no_members")
    """Reasons to try again; any other failure is raised at once.

    ``lost``: the member died or its link broke. ``failed``: its handler raised. ``no_members``: wait for a member while the
    cluster has none.
    """
    backoff_initial: float = BACKOFF_S
    """The longest first pause after a failure (``failed``), in seconds; 0 for no pauses.

    After the pause the request goes to a member that has not failed on the request, or else to the same member.
    """
    backoff_factor: float = BACKOFF_FACTOR
    """Growth factor of each further pause; at least 1."""
    backoff_max: float = BACKOFF_S_MAX
    """The longest pause, in seconds."""
    backoff_jitter: float = 1.0
    """The random share of a pause, from 0 to 1: 0 for the full pause, 1 for a random part of the pause ("full jitter").

    Random pauses keep callers that failed together from retrying together.
    """
    members_lost_max: int | None = MEMBERS_LOST_MAX
    """Number of members the request may lose before its outcome is :exc:`TooManyMembersLost`. None for no bound.

    The handler may be the cause of the losses, so no further member is risked. No more members have the request at the same
    time, so 1 disables hedging.
    """

    def __post_init__(self) -> None:
        _check_count("attempts", self.attempts)
        _check_count("members_lost_max", self.members_lost_max)
        after = self.hedge_after
        if self.attempt_timeout is not None and not _is_time(self.attempt_timeout):
            raise ConfigurationError(
                f"attempt_timeout={self.attempt_timeout!r} must be a positive and finite number of seconds, or None."
            )
        if after is not None and not (after in _TIMES if isinstance(after, str) else _is_time(after)):
            raise ConfigurationError(
                f"hedge_after={after!r} must be one of {', '.join(_TIMES)}, a positive and finite number of seconds, or None."
            )
        self._check_backoff()
        given: object = self.on
        on = (given,) if isinstance(given, str) else given
        if not isinstance(on, Collection) or not all(reason in _REASONS for reason in on):
            raise ConfigurationError(f"on={self.on!r} must be some of {', '.join(_REASONS)}.")
        object.__setattr__(self, "on", tuple(reason for reason in _REASONS if reason in on))

    def __repr__(self) -> str:
        values = ((field.name, getattr(self, field.name), field.default) for field in fields(self))
        return f"Retry({', '.join(f'{name}={value!r}' for name, value, default in values if value != default)})"

    def _check_backoff(self) -> None:
        for name in ("backoff_initial", "backoff_max"):
            value = getattr(self, name)
            if value != 0 and not _is_time(value):
                raise ConfigurationError(f"{name}={value!r} must be a finite number of seconds, at least 0.")
        if not _is_time(self.backoff_factor) or self.backoff_factor < 1:
            raise ConfigurationError(f"backoff_factor={self.backoff_factor!r} must be a finite number, at least 1.")
        jitter = self.backoff_jitter
        if not isinstance(jitter, int | float) or isinstance(jitter, bool) or not 0 <= jitter <= 1:
            raise ConfigurationError(f"backoff_jitter={jitter!r} must be a number from 0 to 1.")

    @property
    def failures_max(self) -> int:
        """Number of handlers that may fail the request before the failure is its outcome."""
        if "failed" not in self.on:
            return 1
        return FAILED_ATTEMPTS if self.attempts is None else self.attempts

    def backoff_s(self, failures: int, rng: Rng) -> float:
        """Return the pause before the next attempt, in seconds.

        Args:
            failures: Number of failed attempts, at least one.
            rng: The source of randomness for the jitter.
        """
        if not self.backoff_initial:
            return 0.0
        try:
            longest_s = self.backoff_initial * self.backoff_factor ** min(failures - 1, _POWER_MAX)
        except OverflowError:
            longest_s = self.backoff_max
        return min(longest_s, self.backoff_max) * (1.0 - self.backoff_jitter * rng.random())

    def delay_s(self, hedging: Hedging, timeout_s: float) -> float:
        """Return the time before the request is hedged, in seconds; infinity for never.

        Args:
            hedging: The reply times of the cluster.
            timeout_s: The timeout of the request.
        """
        after = self.hedge_after
        if after == "auto":
            return hedging.delay_s(timeout_s)
        if after is None:
            return math.inf
        return hedging.share_s(int(after[1:]), timeout_s) if isinstance(after, str) else after


def _check_count(name: str, value: object) -> None:
    if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 1):
        raise ConfigurationError(f"{name}={value!r} must be a whole number of at least 1, or None.")


def _is_time(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < math.inf


#: The policies of the flags ``idempotent`` and ``retry_failed``.
IDEMPOTENT: Final = Retry()
_RETRY_FAILED: Final = Retry(on=_REASONS)


def retry_of(*, idempotent: bool, retry_failed: bool = False) -> Retry | None:
    """Return the retry policy for two flags of a request; None means at most one execution."""
    if not idempotent:
        return None
    return _RETRY_FAILED if retry_failed else IDEMPOTENT
