"""One check of `iris doctor`: its name, its prerequisites, and its finding."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from iris_py.doctor.surroundings import Surroundings


class FindingStatus(enum.StrEnum):
    """The status of a check's finding."""

    OK = "ok"
    WARNING = "warning"
    """Something works, but perhaps not as intended."""
    FAULT = "FAULT"
    """Something does not work."""
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of a check: its status, and the text for the user."""

    status: FindingStatus
    cause: str
    """The state that the check found; for a fault, the defect."""
    advice: str = ""
    """The remedy, a sentence; empty if none is needed."""
    hints: tuple[str, ...] = ()
    """Commands that show details or apply the remedy."""
    is_blocking: bool = False
    """Whether the checks with this check as a prerequisite are impossible."""


def ok(cause: str) -> Finding:
    """Return the finding of a check without a problem."""
    return Finding(FindingStatus.OK, cause)


def warning(cause: str, advice: str, *hints: str, is_blocking: bool = False) -> Finding:
    """Return the finding of a check whose subject works, but perhaps not as intended."""
    return Finding(FindingStatus.WARNING, cause, advice, hints, is_blocking)


def fault(cause: str, advice: str, *hints: str, is_blocking: bool = False) -> Finding:
    """Return the finding of a check whose subject does not work."""
    return Finding(FindingStatus.FAULT, cause, advice, hints, is_blocking)


def skipped(because: str) -> Finding:
    """Return the finding of an impossible check, with the reason."""
    return Finding(FindingStatus.SKIPPED, f"because {because}")


class Named(Protocol):
    """A node named in the text of a finding."""

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
    """Return the text for a node: its address, otherwise the start of its id; and its label, if any."""
    where = node.address or node.id[:8]
    return f"{where} ({node.name})" if node.name else where


def show_ago(s_ago: float) -> str:
    """Return the text for an age in seconds, such as ``5 minutes ago``."""
    if s_ago < 120:
        return f"{s_ago:.0f} s ago"
    return f"{s_ago / 60:.0f} minutes ago" if s_ago < 7200 else f"{s_ago / 3600:.0f} hours ago"


def names_of(nodes: Iterable[Named]) -> dict[str, str]:
    """Return the text for each node, by node id."""
    return {node.id: show_node(node) for node in nodes}


@dataclass(frozen=True, slots=True)
class Subject:
    """The input of a check: the surroundings, and the cluster to examine."""

    surroundings: Surroundings
    cluster: str | None = None
    """The cluster to check; None for none."""


Examine: TypeAlias = "Callable[[Subject], Awaitable[Finding]]"


@dataclass(frozen=True, slots=True)
class DoctorCheck:
    """One check of `iris doctor`.

    Attributes:
        limit_s: The timeout of the check, in seconds. After the timeout the result is unknown. Too small: a busy machine
            leaves checks undone; too large: the user waits.
    """

    name: str
    summary: str
    """The subject, as shown during the check."""
    examine: Examine
    needs: tuple[str, ...] = ()
    """The checks that must not have a blocking finding; the first blocking check is named as the reason."""
    limit_s: float = 10.0
