"""Open uses of grants end with the grant, or with the needed right."""

from __future__ import annotations

from operator import attrgetter

import msgspec
import pytest

from iris_py.doors.grant_uses import GrantUseTable
from iris_py.doors.problems import DoorRefusal
from iris_py.doors.rights import Grant, Rights

ANN, BOB = (Grant(subject, (Rights(observe=True),)) for subject in ("ann", "bob"))


class Changes:
    """The present rights of grants."""

    def __init__(self) -> None:
        self.refused: dict[str, str] = {}
        self.rights = ANN.rights

    def renew(self, grant: Grant) -> Grant:
        if grant.subject in self.refused:
            raise DoorRefusal(self.refused[grant.subject])
        return msgspec.structs.replace(grant, rights=self.rights)


def test_a_use_ends_once_with_the_problem_of_its_grant() -> None:
    changes, ended = Changes(), list[str]()
    table = GrantUseTable(changes.renew)
    ann, bob = table.open(ANN, on_end=ended.append), table.open(BOB, on_end=ended.append)
    assert table.review() == 0
    changes.refused["ann"] = "token-revoked"
    assert table.review() == 1
    assert table.review() == 0
    assert ended == ["token-revoked"]
    assert (ann.problem, bob.problem, len(table)) == ("token-revoked", "", 1)
    with pytest.raises(DoorRefusal) as caught:
        ann.check()
    assert caught.value.name == "token-revoked"
    bob.check()
    bob.close()
    ann.close()
    assert len(table) == 0


def test_uses_of_revoked_grants_end_and_no_others() -> None:
    ended = list[str]()
    table = GrantUseTable(lambda _grant: pytest.fail("no grant is renewed"))
    ann, bob = table.open_verified(ANN), table.open_verified(BOB)
    ann.on_end = bob.on_end = ended.append
    assert table.end_revoked(lambda grant: grant.subject == "ann") == 1
    assert (ended, ann.problem, bob.problem, len(table)) == (["token-revoked"], "token-revoked", "", 1)
    assert table.end_revoked(lambda grant: grant.subject == "ann") == 0


def test_a_use_ends_without_its_right() -> None:
    changes, ended = Changes(), list[str]()
    table = GrantUseTable(changes.renew)
    with table.open(ANN, attrgetter("observes"), ended.append), table.open(BOB) as other:
        changes.rights = (Rights(),)
        assert table.review() == 1
        assert ended == ["forbidden"]
        assert other.grant.rights == (Rights(),)
    assert len(table) == 0


def test_a_grant_that_has_ended_since_opens_nothing() -> None:
    changes = Changes()
    table = GrantUseTable(changes.renew)
    changes.refused["ann"] = "token-revoked"
    with pytest.raises(DoorRefusal):
        table.open(ANN)
    changes.rights = (Rights(),)
    with pytest.raises(DoorRefusal) as caught:
        table.open(BOB, attrgetter("observes"))
    assert caught.value.name == "forbidden"
    assert len(table) == 0
