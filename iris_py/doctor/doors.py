"""The check of `iris doctor` on NATS doors: whether they have the same users."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from iris_py.doctor.check import Finding, fault, ok, skipped, warning
from iris_py.doctor.connectivity import NOBODY
from iris_py.logs import one_line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from iris_py.api.door_survey import UsersAtDoor
    from iris_py.doctor.check import Subject

__all__ = ["doors"]

#: Maximum number of users, and of doors, named in one line.
NAMED_MAX: Final = 3


async def doors(subject: Subject) -> Finding:
    """Check that all NATS doors have the same users, because clients go from one door to the other."""
    reached = await subject.surroundings.reached()
    if not reached.peers:
        return skipped(NOBODY)
    found = await subject.surroundings.door_users()
    if not found:
        return ok("no NATS door answers, so none differs from another one")
    if len({each.digest for each in found}) == 1:
        count = found[0].total
        users = f"with the same {count} user{'s' * (count != 1)}" if count else "without users"
        return ok(f"{_doors(len(found))} {users}")
    known = [each for each in found if each.users or not each.total]
    differing, missing = _compare(known)
    advice = "Copy the tables [users.NAME] to the files of all doors, and send SIGHUP to the doors."
    hints = ("iris door nats FILE --check", "iris door clients")
    causes = []
    if differing:
        causes.append(f"{_join(differing)} {'have' if len(differing) > 1 else 'has'} other rights or credentials at some doors")
    causes += [f"{_join(names)} {'are' if len(names) > 1 else 'is'} missing at {at}" for at, names in missing.items()]
    if not causes:
        return warning(f"{_doors(len(found))} have different users, and changed their files during the check", advice, *hints)
    return (fault if differing else warning)(f"NATS doors have different users: {'; '.join(causes)}", advice, *hints)


def _compare(known: Sequence[UsersAtDoor]) -> tuple[list[str], dict[str, list[str]]]:
    """Return the users that differ, and the missing users by the address of their doors."""
    names = sorted({name for each in known for name in each.users})
    differing = [name for name in names if len({each.users[name] for each in known if name in each.users}) > 1]
    missing = {
        one_line(each.door.address or each.node[:8]): lacking
        for each in known
        if (lacking := [name for name in names if name not in each.users])
    }
    return differing, dict(list(missing.items())[:NAMED_MAX])


def _join(names: Sequence[str]) -> str:
    more = f" and {len(names) - NAMED_MAX} more" if len(names) > NAMED_MAX else ""
    return ", ".join(repr(one_line(name)) for name in names[:NAMED_MAX]) + more


def _doors(count: int) -> str:
    return f"{count} NATS door{'s' * (count != 1)}"
