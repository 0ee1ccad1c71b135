"""Properties of the fence: each publication of another cloud at most once, in order, and nothing missing without a gap.

Numbers of a few sequences are published; some of them nobody wants. Several paths follow each sequence, each in order and at
its own pace; each leaves out what nobody wants and loses some, which it counts. Now and then a path begins anew: it is another
one then, somewhere in what was published, and knows of no losses. The model keeps every number, and looks at what is delivered.
"""

from __future__ import annotations

import itertools
from unittest.mock import patch

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from iris_py.patterns.topic import imported_sequences as tables
from iris_py.patterns.topic.imported_sequences import Fence, GapBook, MissedTotals
from tests.profiles import examples

SEQUENCES = 3
PATHS = 3
INDEX = st.integers(0, 8)
#: So few that something is forgotten.
FEW = 2


def key(sequence: int) -> tuple[bytes, bytes]:
    return bytes((sequence % 2,)) * 16, bytes((sequence,)) * 4


class Path:
    """A gateway that follows the sequences, as far as the receiver sees it: a hop behind some upstream.

    Attributes:
        name: By which the fence knows it.
        at: By sequence, the last number that it has looked at.
        sent: By sequence, whether it has sent anything.
    """

    def __init__(self, name: int, at: list[int]) -> None:
        self.name = name
        self.at = at
        self.sent = [False] * SEQUENCES
        self.totals = MissedTotals()
        self.book = GapBook()
        self.gaps = [0] * SEQUENCES  # lost on the way to it since what it got last


class FenceMachine(RuleBasedStateMachine):
    """One subscriber, sequences, and the paths that they come by."""

    bound = 100

    def __init__(self) -> None:
        super().__init__()
        self.patches = [patch.object(tables, "SEQUENCES_MAX", self.bound), patch.object(tables, "PATHS_MAX", 2 * self.bound)]
        for each in self.patches:
            each.start()
        self.fence = Fence()
        self.published: list[list[bool]] = [[] for _ in range(SEQUENCES)]  # whether somebody wants it
        self.delivered: list[list[int]] = [[] for _ in range(SEQUENCES)]
        self.paths: list[Path] = []
        self.names = 0

    @initialize()
    def begin(self) -> None:
        for _ in range(PATHS):
            self.paths.append(self.new_path([0] * SEQUENCES))

    def new_path(self, at: list[int]) -> Path:
        self.names += 1
        return Path(self.names, at)

    @rule(sequence=INDEX, wanted=st.lists(st.booleans(), min_size=1, max_size=6))
    def publish(self, sequence: int, wanted: list[bool]) -> None:
        self.published[sequence % SEQUENCES] += wanted

    @rule(path=INDEX, sequence=INDEX, most=st.integers(1, 4))
    def bring(self, path: int, sequence: int, most: int) -> None:
        """A path brings what follows: as many wanted ones as have numbers that follow one another."""
        path, sequence = path % PATHS, sequence % SEQUENCES
        each, published = self.paths[path], self.published[sequence]
        number = each.at[sequence] + 1
        while number <= len(published) and not published[number - 1]:
            number += 1
        count = 0
        while count < most and number + count <= len(published) and published[number + count - 1]:
            count += 1
        each.at[sequence] = max(each.at[sequence], number + count - 1)
        if count:
            gap, each.gaps[sequence] = each.gaps[sequence], 0
            self.take(each, sequence, number, count, each.book.pass_on(*key(sequence), number, count, gap))

    def take(self, path: Path, sequence: int, number: int, count: int, gap: int) -> None:
        path.sent[sequence] = True
        missed = path.totals.add(*key(sequence), gap)
        before = self.delivered[sequence][-1] if self.delivered[sequence] else None
        late, told = self.fence.take(*key(sequence), path.name, number, count, missed)
        fresh = list(range(number + late, number + count))
        self.check(path, sequence, number, count, before, late, told)
        self.delivered[sequence] += fresh

    def check(
        self, path: Path, sequence: int, number: int, count: int, before: int | None, late: int, told: int | None
    ) -> None:
        if before is None:
            assert (late, told) == (0, 0)
            return
        assert late == min(count, max(0, before + 1 - number)), "what is above the last number is taken, and nothing else"
        if late == count:
            return
        first = number + late
        missing = sum(self.published[sequence][before : first - 1])
        assert told is not None
        assert missing <= told <= first - before - 1, "lost in silence"

    @rule(path=INDEX, sequence=INDEX, count=st.integers(1, 4), is_dropped=st.booleans())
    def lose(self, path: int, sequence: int, count: int, is_dropped: bool) -> None:
        """Lose what comes next: on the way to the gateway, which is told of it with the next one, or by its own full queue."""
        path, sequence = path % PATHS, sequence % SEQUENCES
        each, published = self.paths[path], self.published[sequence]
        lost = published[each.at[sequence] : each.at[sequence] + count]
        each.at[sequence] += len(lost)
        if is_dropped:
            gap, each.gaps[sequence] = each.gaps[sequence], 0
            each.book.owe(*key(sequence), sum(lost) + gap)
        else:
            each.gaps[sequence] += sum(lost)

    @rule(path=INDEX, back=st.integers(-5, 5))
    def restart(self, path: int, back: int) -> None:
        """A gateway dies, and another process takes its place: a little before what it had, or behind."""
        path %= PATHS
        at = [min(len(self.published[sequence]), max(0, self.paths[path].at[sequence] + back)) for sequence in range(SEQUENCES)]
        self.paths[path] = self.new_path(at)

    @rule(path=INDEX, back=st.integers(-5, 5))
    def change_upstream(self, path: int, back: int) -> None:
        """A gateway goes on with another upstream, that was before or behind the old one; nobody tells what was between."""
        each = self.paths[path % PATHS]
        for sequence in range(SEQUENCES):
            each.at[sequence] = min(len(self.published[sequence]), max(0, each.at[sequence] + back))
            each.gaps[sequence] = 0
        each.book.change_upstream()

    @invariant()
    def is_in_order(self) -> None:
        for sequence, numbers in enumerate(self.delivered):
            assert all(one < other for one, other in itertools.pairwise(numbers))
            assert all(self.published[sequence][number - 1] for number in numbers)

    @invariant()
    def is_bounded(self) -> None:
        assert len(self.fence._lasts) <= tables.SEQUENCES_MAX
        assert len(self.fence._totals) <= tables.PATHS_MAX

    def teardown(self) -> None:
        for each in self.patches:
            each.stop()


class ForgetfulMachine(FenceMachine):
    """The same with tables for fewer sequences than there are: what was forgotten may come twice, and a loss still shows."""

    bound = FEW

    def check(
        self, path: Path, sequence: int, number: int, count: int, before: int | None, late: int, told: int | None
    ) -> None:
        first = number + late
        if before is not None and late < count and told is not None:
            assert told >= sum(self.published[sequence][before : first - 1]), "lost in silence"

    @invariant()
    def is_in_order(self) -> None:
        for sequence, numbers in enumerate(self.delivered):
            assert all(self.published[sequence][number - 1] for number in numbers)


TestFence = FenceMachine.TestCase
TestForgetfulFence = ForgetfulMachine.TestCase
TestFence.settings = settings(max_examples=examples(200), stateful_step_count=60, deadline=None)
TestForgetfulFence.settings = settings(max_examples=examples(200), stateful_step_count=60, deadline=None)
