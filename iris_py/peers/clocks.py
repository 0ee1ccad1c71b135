"""The clocks of other nodes, as far as it takes to know how old at most something is that one of them sent.

Theory of operation. What goes through the ring says when its source sent it, by the source's own monotonic clock. Clocks of
two nodes have nothing to do with each other, so the receiver asks the source for its clock, with a nonce that nobody can guess.
The source reads its clock after it got the nonce, and so after the question was sent: ``behind``, the receiver's clock at the
question less the source's clock in the answer, is at most what lies between the two clocks. Then ``now - behind - sent_at`` is
at least the age. It is too much by the time that the question was on its way, and by nothing else: whoever holds up a question
only makes everything seem older, and to hold up an answer changes nothing. This is Cristian's *Probabilistic clock
synchronization* (1989), of which only the safe side is used.

Of several answers the one that says most about a source counts, for ``RENEWED_S``: so a question that was slow once does no
harm for longer than until the next one.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from iris_overlay.ids import NodeId

#: Random bytes in a question: nobody can have an answer to a question that was not asked yet.
NONCE_BYTES = 16
#: Sources whose clocks are known or asked for; beyond it the one that was asked the longest ago is forgotten. Too small: their
#: requests wait for a question each time. Too large: memory, 500 bytes each.
CLOCKS_MAX = 4096
#: Questions to one source that may still be answered; beyond it the oldest is forgotten.
QUESTIONS_MAX = 4
#: How soon a source may be asked again. Too small: whoever holds requests up makes nodes talk. Too large: a question that was
#: lost costs its requests that much.
ASKED_AGAIN_S = 1.0
#: From which age on the clock is asked for again, in case the question was slow, or the source was suspended.
DOUBTED_S = 0.25
#: When a clock is asked for again because the two may have run at different speeds. Clocks that are disciplined differ by 1,000
#: parts in a million at the very most, and commonly by ten.
RENEWED_S = 120.0
#: How long an answer is believed: at 1,000 parts in a million, what is thought of an age is 0.3 s too little by then.
BELIEVED_S = 300.0


def read(now: float, *, is_rounded_up: bool = False) -> int:
    """Return a clock in milliseconds, as it goes to others.

    Args:
        now: Monotonic seconds.
        is_rounded_up: Whether to err upwards, as whoever is asked for its clock does; what is sent errs downwards.
    """
    return max(0, math.ceil(now * 1000) if is_rounded_up else math.floor(now * 1000))


class _Clock:
    """One source: what is known of its clock, and what it was asked."""

    __slots__ = ("asked_at", "behind", "known_at", "questions")

    def __init__(self) -> None:
        self.behind: int | None = None  # at most what is between the clocks (ms); None if that is not known
        self.known_at = 0.0  # when the question to which that is the answer was asked
        self.asked_at = -math.inf
        self.questions: dict[bytes, float] = {}  # nonce -> when it was asked, the oldest first


class Clocks:
    """The clocks of other nodes, as this node knows them.

    Args:
        entropy: Randomness that nobody can guess, for nonces.
    """

    def __init__(self, entropy: Callable[[int], bytes]) -> None:
        self._entropy = entropy
        self._clocks: dict[NodeId, _Clock] = {}  # the one that was asked the longest ago first

    def __len__(self) -> int:
        return len(self._clocks)

    def age_of(self, source: NodeId, sent_at: int, now: float) -> int | None:
        """Return how old at most something is (milliseconds); None if the clock of its source has to be asked for first.

        Args:
            source: The node that sent it.
            sent_at: When, by the clock of the source (milliseconds).
            now: The time.
        """
        clock = self._clocks.get(source)
        if clock is None or clock.behind is None or now - clock.known_at > BELIEVED_S:
            return None
        age = read(now, is_rounded_up=True) - clock.behind - sent_at
        if age < 0:  # Nothing comes from the future: one of the clocks has stood still, this node's with its machine.
            clock.behind = None
            return None
        return age

    def is_doubtful(self, source: NodeId, age: int, now: float) -> bool:
        """Tell whether to ask for a clock again although it is known.

        Args:
            source: The node whose clock it is.
            age: What :meth:`age_of` said last.
            now: The time.
        """
        clock = self._clocks.get(source)
        return clock is None or age > DOUBTED_S * 1000 or now - clock.known_at > RENEWED_S

    def is_asked(self, source: NodeId, now: float) -> bool:
        """Tell whether a source was asked so lately that it need not be asked again."""
        clock = self._clocks.get(source)
        return clock is not None and now - clock.asked_at < ASKED_AGAIN_S

    def is_awaited(self, source: NodeId) -> bool:
        """Tell whether a source may still answer a question."""
        clock = self._clocks.get(source)
        return clock is not None and bool(clock.questions)

    def ask(self, source: NodeId, now: float) -> bytes:
        """Begin a question; returns its nonce, for the source alone."""
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
        """Take the answer of a source; returns whether it was asked that.

        Args:
            source: The node that surely said it.
            nonce: The nonce of the question.
            told: Its clock (milliseconds).
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
