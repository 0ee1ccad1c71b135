"""The generations of the network's secret at each node, and whether all nodes have taken the same steps of a rotation."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from iris_py.observe.statistics import SecurityStatistics

__all__ = [
    "GenerationsHolder",
    "Holding",
    "describe_generations",
    "describe_holdings",
    "holdings_of",
    "is_split",
    "short_generations",
]

#: Digits of a generation's id in texts: enough to distinguish the generations of a network.
DIGITS: Final = 8
#: Maximum number of nodes named in a text.
NAMED_MAX: Final = 3


@dataclass(frozen=True, slots=True)
class GenerationsHolder:
    """A node, and the ids of its generations of the secret."""

    name: str
    """The address or id of the node."""
    seals: str
    """The id of the generation used to encrypt; empty if not reported."""
    accepts: tuple[str, ...] = ()
    """The ids of the generations that are only accepted for decryption."""

    @classmethod
    def of(cls, name: str, security: SecurityStatistics) -> GenerationsHolder:
        """Make a holder from the statistics of a node."""
        return cls(name, security.primary, tuple(security.accepted))


@dataclass(frozen=True, slots=True)
class Holding:
    """A set of generations, and the nodes with exactly this set."""

    seals: str
    accepts: tuple[str, ...]
    nodes: tuple[str, ...]
    """The names of the nodes."""


def holdings_of(holders: Iterable[GenerationsHolder]) -> list[Holding]:
    """Group nodes by their generations, the largest group first. Nodes without a report are left out."""
    found: dict[tuple[str, tuple[str, ...]], list[str]] = defaultdict(list)
    for holder in holders:
        if holder.seals:
            found[holder.seals, tuple(sorted(holder.accepts))].append(holder.name)
    held = [Holding(seals, accepts, tuple(sorted(nodes))) for (seals, accepts), nodes in found.items()]
    return sorted(held, key=lambda each: (-len(each.nodes), each.seals, each.accepts))


def is_split(holdings: Sequence[Holding]) -> bool:
    """Return whether some node cannot decrypt the messages of another node."""
    sealing = {each.seals for each in holdings}
    return any(sealing - {each.seals, *each.accepts} for each in holdings)


def describe_holdings(holdings: Sequence[Holding]) -> str:
    """Return a sentence about the generations of each group of nodes, with names in all but the largest group."""
    parts = [_describe(each, has_names=place > 0) for place, each in enumerate(holdings)]
    return "; ".join(parts)


def short_generations(seals: str, accepts: Sequence[str]) -> str:
    """Return a table cell: the id of the encrypting generation, and the number of accepted ones."""
    return seals[:DIGITS] + (f"+{len(accepts)}" if accepts else "")


def describe_generations(seals: str, accepts: Sequence[str], *, is_plural: bool) -> str:
    """Return the part of a sentence about a node's generations: ``seals with 6fa01dec and accepts 5ee837c9``."""
    ending = "" if is_plural else "s"
    others = " and ".join(each[:DIGITS] for each in accepts)
    rest = f" and accept{ending} {others}" if others else " alone"
    return f"seal{ending} with {seals[:DIGITS]}{rest}"


def _describe(holding: Holding, *, has_names: bool) -> str:
    count = len(holding.nodes)
    names = ", ".join(holding.nodes[:NAMED_MAX]) + (f" and {count - NAMED_MAX} more" if count > NAMED_MAX else "")
    who = f"{count} node{'s' * (count != 1)}" + (f" ({names})" if has_names else "")
    return f"{who} {describe_generations(holding.seals, holding.accepts, is_plural=count != 1)}"
