"""The clocks of other nodes, to bound the age of messages that travel through the ring.

The message carries the send time by the source's monotonic clock. Clocks of two nodes are unrelated, so the receiver asks the
source for its clock, with an unpredictable nonce. The source reads its clock after the question was sent. So ``behind``, the
receiver's clock at the question minus the source's clock in the answer, is a lower bound of the offset between the two clocks,
and ``now - behind - sent_at`` is an upper bound of the age. The bound is too high by the travel time of the question only: an
attacker who delays the question makes messages seem older, and delaying the answer has no effect. This is Cristian's
*Probabilistic clock synchronization* (1989), used on the safe side only.

The tightest answer of a source counts for ``RENEWED_S``, so a single slow question has no effect after the next question.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from iris_overlay.ids import NodeId

#: Random bytes in a question, so that no answer precedes its question.
NONCE_BYTES = 16
#: Sources with a known or requested clock; beyond this bound the source asked longest ago is forgotten. Too small: their
#: requests wait for a question each time. Too large: memory, 500 bytes each.
CLOCKS_MAX = 4096
#: Unanswered questions to one source; beyond this bound the oldest is forgotten.
QUESTIONS_MAX = 4
#: Shortest interval between questions to one source. Too small: an attacker who delays requests causes traffic. Too large:
#: after a lost question the source's requests wait for this time.
ASKED_AGAIN_S = 1.0
#: Age from which the clock is requested again, in case the question was slow or the source was suspended.
DOUBTED_S = 0.25
#: Time after which a clock is requested again, because the two clocks may have drifted. Disciplined clocks differ by 1,000
#: parts per million at most, and commonly by ten.
RENEWED_S = 120.0
#: Time for which an answer is trusted: at 1,000 parts per million an age is then underestimated by 0.3 s.
BELIEVED_S = 300.0


def read(now: float, *, is_rounded_up: bool = False) -> int:
    """Return a time as whole milliseconds, the form of clocks on the wire.

    Args:
        now: Monotonic seconds.
        is_rounded_up: Whether to round up, as in answers; send times are rounded down.
    """
    return max(0, math.ceil(now * 1000) if is_rounded_up else math.floor(now * 1000))


class _Clock:
    """The known clock of another node (a source of messages), and the unanswered questions for it."""

    __slots__ = ("asked_at", "behind", "known_at", "questions")

    def __init__(self) -> None:
        self.behind: int | None = None  # lower bound of the offset between the clocks (ms); None if unknown
        self.known_at = 0.0  # send time of the question behind that answer
        self.asked_at = -math.inf
        self.questions: dict[bytes, float] = {}  # nonce -> send time, oldest first


class Clocks:
    """The clocks of other nodes, to bound the age of messages that arrive through the ring.

    Args:
        entropy: Unpredictable randomness for nonces.
    """

    def __init__(self, entropy: Callable[[int], bytes]) -> None:
        self._entropy = entropy
        self._clocks: dict[NodeId, _Clock] = {}  # in the order of the last question, oldest first

    def __len__(self) -> int:
        return len(self._clocks)

    def age_of(self, source: NodeId, sent_at: int, now: float) -> int | None:
        """Return the highest possible age of a message (milliseconds); None if the source must be asked first.

        Args:
            source: The sending node.
            sent_at: The send time by the source's clock (milliseconds).
        """
        clock = self._clocks.get(source)
        if clock is None or clock.behind is None or now - clock.known_at > BELIEVED_S:
            return None
        age = read(now, is_rounded_up=True) - clock.behind - sent_at
        if age < 0:  # A negative age means that a clock has stopped, such as this node's while its machine was suspended.
            clock.behind = None
            return None
        return age

    def is_doubtful(self, source: NodeId, age: int, now: float) -> bool:
        """Tell whether to ask a source for its clock again, given the last result of :meth:`age_of` (milliseconds).

        The clock is in doubt if the message seems old, or the last answer is old.
        """
        clock = self._clocks.get(source)
        return clock is None or age > DOUBTED_S * 1000 or now - clock.known_at > RENEWED_S

    def is_asked(self, source: NodeId, now: float) -> bool:
        """Tell whether a source was asked within ``ASKED_AGAIN_S``."""
        clock = self._clocks.get(source)
        return clock is not None and now - clock.asked_at < ASKED_AGAIN_S

    def is_awaited(self, source: NodeId) -> bool:
        """Tell whether the source has yet to answer a question for its clock."""
        clock = self._clocks.get(source)
        return clock is not None and bool(clock.questions)

    def ask(self, source: NodeId, now: float) -> bytes:
        """Record a question for a source's clock; return the secret nonce to send with it."""
        clock = self._clocks.pop(source, None) or _Clock()
        if len(self._clocks) >= CLOCKS_MAX:
            del self._clocks[next(iter(self._clocks))]
        self._clocks[source] = clock
        if len(clock.questions) >= QUESTIONS_MAX:
            del clock.questions[next(iter(clock.questions))]
        nonce = self._entropy(NONCE_BYTES)
        clock.questions[nonce] = clock.asked_at = now
        return nonce

    def told(self, source: NodeId, nonce: bytes, told: int) -> bool:
        """Record a source's answer with its clock; return False if the nonce is of no question.

        Args:
            source: The authenticated source.
            nonce: The nonce of the question.
            told: The source's clock (milliseconds).
        """
        clock = self._clocks.get(source)
        asked_at = None if clock is None else clock.questions.get(nonce)
        if clock is None or asked_at is None:
            return False
        for each in [each for each, at in clock.questions.items() if at <= asked_at]:
            del clock.questions[each]
        behind = read(asked_at) - told
        if clock.behind is None or asked_at - clock.known_at > RENEWED_S:
            clock.behind, clock.known_at = behind, asked_at
        else:
            clock.behind = max(clock.behind, behind)
        return True
