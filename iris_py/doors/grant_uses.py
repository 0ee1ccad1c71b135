"""The open uses of grants at a door: event streams and operations under way, which end with their grants."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from iris_py.doors.problems import DoorRefusal

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from iris_py.doors.rights import Grant

__all__ = ["GrantUse", "GrantUseTable"]


class GrantUse:
    """An open use of a grant. Close the use, or open the use in a ``with`` block.

    Args:
        table: The table of the door.
        grant: The client and its rights.
        is_allowed: Tells whether a changed grant still allows the use.
        on_end: Called when the grant has ended, or allows the use no more, with the name of a problem.

    Attributes:
        grant: The grant, with the rights of the last review.
        on_end: As passed.
        problem: The name of the problem at the end of the use; empty while the use is allowed.
    """

    __slots__ = ("_is_allowed", "_table", "grant", "on_end", "problem")

    def __init__(
        self,
        table: GrantUseTable,
        grant: Grant,
        is_allowed: Callable[[Grant], bool],
        on_end: Callable[[str], object] | None,
    ) -> None:
        self.grant = grant
        self.on_end = on_end
        self.problem = ""
        self._table = table
        self._is_allowed = is_allowed

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    def review(self, renew: Callable[[Grant], Grant]) -> None:
        """Renew the grant, and note the problem if the use has to end."""
        try:
            self.grant = renew(self.grant)
        except DoorRefusal as refusal:
            self.problem = refusal.name
        else:
            self.problem = "" if self._is_allowed(self.grant) else "forbidden"

    def check(self) -> None:
        """Check the use.

        Raises:
            DoorRefusal: The grant has ended, or does not allow the use.
        """
        if self.problem:
            raise DoorRefusal(self.problem)

    def close(self) -> None:
        """Forget the use. Harmless if repeated."""
        self._table.forget(self)


def _allow(_grant: Grant) -> bool:
    return True


class GrantUseTable:
    """The open uses at a door.

    Args:
        renew: Returns a grant with its present rights, or raises a `DoorRefusal`.
    """

    def __init__(self, renew: Callable[[Grant], Grant] = lambda grant: grant) -> None:
        self._renew = renew
        self._open: dict[GrantUse, None] = {}

    def __len__(self) -> int:
        return len(self._open)

    def open(
        self,
        grant: Grant,
        is_allowed: Callable[[Grant], bool] = _allow,
        on_end: Callable[[str], object] | None = None,
    ) -> GrantUse:
        """Add a use of a grant, verified some time ago.

        Args:
            grant: The client and its rights.
            is_allowed: Tells whether a changed grant still allows the use.
            on_end: Called at most once, when the use has to end, with the name of a problem.

        Raises:
            DoorRefusal: The grant has ended since the verification, or does not allow the use.
        """
        use = GrantUse(self, grant, is_allowed, on_end)
        use.review(self._renew)
        use.check()
        self._open[use] = None
        return use

    def open_verified(self, grant: Grant) -> GrantUse:
        """Add a use of a grant, verified in this turn of the event loop."""
        use = GrantUse(self, grant, _allow, None)
        self._open[use] = None
        return use

    def forget(self, use: GrantUse) -> None:
        """Remove a use. Harmless if repeated."""
        self._open.pop(use, None)

    def review(self) -> int:
        """End all uses without a valid grant or their right; return the number of ended uses."""
        for use in self._open:
            use.review(self._renew)
        return self._end([use for use in self._open if use.problem])

    def end_revoked(self, is_revoked: Callable[[Grant], bool]) -> int:
        """End the uses of revoked grants; return their number. This costs a tenth of a review."""
        revoked = [use for use in self._open if is_revoked(use.grant)]
        for use in revoked:
            use.problem = "token-revoked"
        return self._end(revoked)

    def _end(self, uses: Sequence[GrantUse]) -> int:
        for use in uses:
            self.forget(use)
            if use.on_end is not None:
                use.on_end(use.problem)
        return len(uses)
