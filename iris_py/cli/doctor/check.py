"""One check of the doctor: its name, its prerequisites, and its finding."""

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
    """Something works, but perhaps not as intended."""
    FAULT = "FAULT"
    """Something does not work."""
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True)
class Finding:
    """The outcome of a check, as text."""

    status: Status
    cause: str
    """The state; for a fault, the defect."""
    advice: str = ""
    """The remedy, a sentence; empty if none is needed."""
    hints: tuple[str, ...] = ()
    """Commands that show details or apply the remedy."""
    is_blocking: bool = False
    """Whether dependent checks are impossible."""


def ok(cause: str) -> Finding:
    """Return a finding without a problem."""
    return Finding(Status.OK, cause)


def warning(cause: str, advice: str, *hints: str, is_blocking: bool = False) -> Finding:
    """Return the finding of a check whose subject works, but perhaps not as intended."""
    return Finding(Status.WARNING, cause, advice, hints, is_blocking)


def fault(cause: str, advice: str, *hints: str, is_blocking: bool = False) -> Finding:
    """Return the finding of a check whose subject does not work."""
    return Finding(Status.FAULT, cause, advice, hints, is_blocking)


def skipped(because: str) -> Finding:
    """Return a finding that the check was impossible, with the reason."""
    return Finding(Status.SKIPPED, f"because {because}")


class Named(Protocol):
    """A node named in a line."""

    @property
    def id(self) -> str:
        """The node id."""

    @property
    def address(self) -> str:
        """The address of the node; empty if unknown."""

    @property
    def name(self) -> str:
        """The label of the node; empty without one."""


def show_node(node: Named) -> str:
    """Return a node as text: address, or else id, and label."""
    where = node.address or node.id[:8]
    return f"{where} ({node.name})" if node.name else where


def show_ago(s_ago: float) -> str:
    """Return an age as text."""
    if s_ago < 120:
        return f"{s_ago:.0f} s ago"
    return f"{s_ago / 60:.0f} minutes ago" if s_ago < 7200 else f"{s_ago / 3600:.0f} hours ago"


def names_of(nodes: Iterable[Named]) -> dict[str, str]:
    """Return nodes as text, by id."""
    return {node.id: show_node(node) for node in nodes}


@dataclass(frozen=True, slots=True)
class Subject:
    """The subject of the examination."""

    surroundings: Surroundings
    cluster: str | None = None
    """The cluster to check; None for none."""


Examine: TypeAlias = "Callable[[Subject], Awaitable[Finding]]"


@dataclass(frozen=True, slots=True)
class Check:
    """One check.

    Attributes:
        limit_s: The timeout of the check, in seconds, after which its subject counts as unknown. Too small: a busy machine
            leaves checks undone; too large: the user waits.
    """

    name: str
    summary: str
    """The subject, as shown during the check."""
    examine: Examine
    needs: tuple[str, ...] = ()
    """The checks that must not have a blocking finding; the first blocking check is named as the reason."""
    limit_s: float = 10.0
