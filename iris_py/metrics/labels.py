"""Labels of metrics, of which there is a constant number whatever names a network uses (docs/design.md 16.33).

A label stays with the name that it was first given to. So a series never changes what it is about, and no counter falls: what
was counted under a name that the node has forgotten stays in its series, and is not counted again under ``_other``.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from iris_py.observe.statistics import OTHER

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

#: Names of clusters that have a series of their own, and as many of topics: the first that come. Too small: what matters is in
#: ``_other``; too large: each cluster is up to 50 lines of every scrape, and all nodes of a network are scraped.
NAMES_MAX: Final = 32
#: Reasons of one metric likewise. They are words of the code, so this bounds nothing but mistakes: there are up to 20.
REASONS_MAX: Final = 24
#: And of drops, of which there are some 45.
DROPS_MAX: Final = 64

Key = TypeVar("Key", bound=Hashable)


class Labels:
    """Gives labels to names, the first that come.

    Args:
        names_max: How many get one of their own.
    """

    def __init__(self, names_max: int) -> None:
        self._names_max = names_max
        self._names: dict[str, None] = {}

    def __call__(self, name: str) -> str:
        """Return the label of a name: the name itself, or ``_other``."""
        if name in self._names:
            return name
        if name == OTHER or len(self._names) >= self._names_max:
            return OTHER
        self._names[name] = None
        return name


class Totals(Generic[Key]):
    """Counters of many names, as series that never fall.

    Args:
        labels: The labels of the names.
    """

    def __init__(self, labels: Labels) -> None:
        self._labels = labels
        self._last: dict[str, Mapping[Key, float]] = {}  # by label, as the node has them
        self._moved: dict[str, dict[Key, float]] = {}  # by label, what the node has under OTHER by now
        self._other: dict[Key, float] = {}

    def take(self, counters: Mapping[str, Mapping[Key, float]]) -> dict[str, dict[Key, float]]:
        """Return the series, by label.

        Args:
            counters: What the node has, by name: those that it has forgotten are together under OTHER.
        """
        taking = self.begin()
        for name, numbers in counters.items():
            taking.add(name, numbers)
        return taking.finish()

    def begin(self) -> Taking[Key]:
        """Begin to take counters name by name, as :meth:`take` does at once: one look at a node with many takes a while."""
        return Taking(self._labels, self._series)

    def _series(self, current: dict[str, Mapping[Key, float]], other: dict[Key, float]) -> dict[str, dict[Key, float]]:
        for label, last in self._last.items():
            now = current.get(label)
            if now is None or any(now.get(key, 0) < value for key, value in last.items()):
                _add(self._moved.setdefault(label, {}), last)  # it was forgotten, and maybe is used again since
        series = {label: dict(numbers) for label, numbers in current.items()}
        for label, moved in self._moved.items():
            _add(series.setdefault(label, {}), moved)
            for key, value in moved.items():
                if value:
                    other[key] = other.get(key, 0) - value
        self._last = current
        for key, value in self._other.items():  # what was counted between two looks and a forgetting is told late, never twice
            other[key] = max(other.get(key, 0), value)
        self._other = other
        if other:
            series[OTHER] = other
        return series


class Taking(Generic[Key]):
    """Counters of one look at a node, until all names have been gone through.

    Args:
        labels: The labels of the names.
        series: Returns the series, of what there is by label, and of all other names together.
    """

    def __init__(
        self,
        labels: Labels,
        series: Callable[[dict[str, Mapping[Key, float]], dict[Key, float]], dict[str, dict[Key, float]]],
    ) -> None:
        self._labels = labels
        self._series = series
        self._current: dict[str, Mapping[Key, float]] = {}
        self._other: dict[Key, float] = {}

    def add(self, name: str, numbers: Mapping[Key, float]) -> None:
        """Take the counters of a name."""
        label = self._labels(name)
        if label == OTHER:
            _add(self._other, {key: value for key, value in numbers.items() if value})
        else:
            self._current[label] = numbers

    def finish(self) -> dict[str, dict[Key, float]]:
        """Return the series, by label."""
        return self._series(self._current, self._other)


def _add(sums: dict[Key, float], numbers: Mapping[Key, float]) -> None:
    get = sums.get
    for key, value in numbers.items():
        sums[key] = get(key, 0) + value  # also if it is 0: a series that was shown does not vanish
