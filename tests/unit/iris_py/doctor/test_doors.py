"""The check of NATS doors: which users differ, and which are missing where."""

from __future__ import annotations

import asyncio

from iris_py.doctor.check import Finding, FindingStatus, Subject
from iris_py.doctor.doors import doors
from tests.unit.iris_py.doctor.made_up import MadeUp, door_with


def look(*found: object) -> Finding:
    return asyncio.run(doors(Subject(MadeUp(doors_found=found))))  # type: ignore[arg-type]


def test_a_network_without_doors_is_well() -> None:
    assert look().status is FindingStatus.OK


def test_doors_with_the_same_users_are_well() -> None:
    found = look(door_with(1, ann=b"1", bob=b"2"), door_with(2, ann=b"1", bob=b"2"))
    assert (found.status, found.cause) == (FindingStatus.OK, "2 NATS doors with the same 2 users")
    assert look(door_with(1)).cause == "1 NATS door without users"


def test_a_user_with_other_rights_is_a_fault_and_a_missing_one_a_warning() -> None:
    found = look(door_with(1, ann=b"1", bob=b"2"), door_with(2, ann=b"3", bob=b"2"))
    assert found.status is FindingStatus.FAULT
    assert found.cause == "NATS doors have different users: 'ann' has other rights or credentials at some doors"
    found = look(door_with(1, ann=b"1", bob=b"2", eve=b"4"), door_with(2, ann=b"1"), door_with(3, bob=b"2"))
    assert found.status is FindingStatus.WARNING
    assert found.cause == (
        "NATS doors have different users: 'bob', 'eve' are missing at 10.0.0.2:4222; 'ann', 'eve' are missing at 10.0.0.3:4222"
    )


def test_a_door_that_was_not_asked_for_its_users_lacks_none() -> None:
    first, other = door_with(1, ann=b"1"), door_with(2, ann=b"2")
    same = door_with(3, ann=b"1")._replace(users={})
    assert "missing" not in look(first, other, same).cause


def test_many_users_are_counted_and_names_steer_no_terminal() -> None:
    many = {f"user{number}": b"1" for number in range(9)}
    found = look(door_with(1, **many), door_with(2, **dict.fromkeys(many, b"2")))
    assert "'user0', 'user1', 'user2' and 6 more have other rights" in found.cause
    assert look(door_with(1, **{"a\x1b[31m": b"1"}), door_with(2)).cause.isprintable()
