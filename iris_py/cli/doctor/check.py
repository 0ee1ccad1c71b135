"""One check: what it is called, what must hold before it, and what it finds."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from iris_py.cli.doctor.surroundings import Surroundings


class Status(enum.StrEnum):
    """The outcome of a check."""

    OK = "ok"
    WARNING = "warning"
    """Something works, and may not be meant so."""
    FAULT = "FAULT"
    """Something does not work."""
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True)
class Finding:
    """The outcome of a check, in words."""

    status: Status
    cause: str
    """The state of things; of a fault what is wrong."""
    advice: str = ""
    """The remedy, in a sentence; empty where there is nothing to do."""
    hints: tuple[str, ...] = ()
    """Commands that show more, or that do it."""
    is_blocking: bool = False
    """Whether checks that need this one can say nothing."""


def ok(cause: str) -> Finding:
    """Return that all is well."""
    return Finding(Status.OK, cause)


def warning(cause: str, advice: str, *hints: str, is_blocking: bool = False) -> Finding:
    """Return that something may not be meant as it is."""
    return Finding(Status.WARNING, cause, advice, hints, is_blocking)


def fault(cause: str, advice: str, *hints: str, is_blocking: bool = False) -> Finding:
    """Return that something does not work."""
    return Finding(Status.FAULT, cause, advice, hints, is_blocking)


def skipped(because: str) -> Finding:
    """Return that nothing can be said, and why."""
    return Finding(Status.SKIPPED, f"because {because}")


class Named(Protocol):
    """A node that a line names."""

    @property
    def id(self) -> str:
        """Its id."""

    @property
    def address(self) -> str:
        """The address where it listens; empty if that is not known."""

    @property
    def name(self) -> str:
        """Its name; empty if it tells none."""


def show_node(node: Named) -> str:
    """Return a node for people: where it listens, or else its id, and its name."""
    where = node.address or node.id[:8]
    return f"{where} ({node.name})" if node.name else where


def show_ago(s_ago: float) -> str:
    """Return how long ago something was, for people."""
    if s_ago < 120:
        return f"{s_ago:.0f} s ago"
    return f"{s_ago / 60:.0f} minutes ago" if s_ago < 7200 else f"{s_ago / 3600:.0f} hours ago"


def names_of(nodes: Iterable[Named]) -> dict[str, str]:
    """Return nodes for people, by id."""
    return {node.id: show_node(node) for node in nodes}


@dataclass(frozen=True, slots=True)
class Subject:
    """The object of the examination."""

    surroundings: Surroundings
    cluster: str | None = None
    """The cluster to look at; None for none."""


Examine: TypeAlias = "Callable[[Subject], Awaitable[Finding]]"


@dataclass(frozen=True, slots=True)
class Check:
    """One check.

    Attributes:
        limit_s: The longest time that it may take, in seconds, after which its subject counts as unknown. Too small: a busy
            machine leaves checks undone; too large: whoever looks for a fault waits for it.
    """

    name: str
    summary: str
    """The subject, as `iris doctor` says while it waits."""
    examine: Examine
    needs: tuple[str, ...] = ()
    """The checks that must not have found what blocks them; the first of these that has is to blame."""
    limit_s: float = 10.0
