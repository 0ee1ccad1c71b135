"""The examination: order, needs, choices, and checks that take too long or fail themselves."""

from __future__ import annotations

import asyncio

import pytest

from iris_py.doctor.check import DoctorCheck, Finding, FindingStatus, Subject, fault, ok, warning
from iris_py.doctor.examination import Examined, choose, examine
from tests.unit.iris_py.doctor.made_up import MadeUp

SUBJECT = Subject(MadeUp())


def check(name: str, finding: Finding, *needs: str) -> DoctorCheck:
    async def found(_subject: Subject) -> Finding:
        return finding

    return DoctorCheck(name, name, found, needs)


def look(*checks: DoctorCheck, only: tuple[str, ...] = (), skip: tuple[str, ...] = ()) -> list[Examined]:
    async def main() -> list[Examined]:
        return [each async for each in examine(SUBJECT, choose(only, skip, checks), checks=checks)]

    return asyncio.run(main())


BLOCKING = fault("wrong", "Mend it.", is_blocking=True)


def test_what_needs_what_blocks_names_the_first_cause() -> None:
    found = look(check("a", BLOCKING), check("b", ok("b"), "a"), check("c", ok("c"), "b"), check("d", ok("d")))
    assert [(each.check.name, str(each.finding.status), each.because) for each in found] == [
        ("a", "FAULT", ""),
        ("b", "skipped", "a"),
        ("c", "skipped", "a"),
        ("d", "ok", ""),
    ]


def test_a_fault_that_does_not_block_leaves_nothing_undone() -> None:
    found = look(check("a", fault("wrong", "Mend it.")), check("b", ok("b"), "a"))
    assert [each.finding.status for each in found] == [FindingStatus.FAULT, FindingStatus.OK]


def test_what_a_chosen_check_needs_is_made_and_told_only_where_it_blocks() -> None:
    assert [each.check.name for each in look(check("a", ok("a")), check("b", ok("b"), "a"), only=("b",))] == ["b"]
    assert [each.check.name for each in look(check("a", BLOCKING), check("b", ok("b"), "a"), only=("b",))] == ["a", "b"]
    assert [each.check.name for each in look(check("a", warning("?", "!")), check("b", ok("b"), "a"), skip=("a",))] == ["b"]


def test_a_name_that_no_check_has() -> None:
    with pytest.raises(ValueError, match="'udp'"):
        choose(["udb"], ())
    with pytest.raises(ValueError, match="no check 'x'"):
        choose((), ["x"])


def test_a_check_that_takes_too_long_ends() -> None:
    async def wait(_subject: Subject) -> Finding:
        await asyncio.Event().wait()
        return ok("")

    found = look(DoctorCheck("slow", "", wait, limit_s=0.01), check("b", ok("b")))
    assert [each.finding.status for each in found] == [FindingStatus.WARNING, FindingStatus.OK]
    assert "0.01 s" in found[0].finding.cause


def test_a_check_that_fails_itself_does_not_end_the_others() -> None:
    async def fail(_subject: Subject) -> Finding:
        raise RuntimeError("boom")

    found = look(DoctorCheck("bad", "", fail), check("b", ok("b")))
    assert [each.finding.status for each in found] == [FindingStatus.WARNING, FindingStatus.OK]
    assert "RuntimeError: boom" in found[0].finding.cause


def test_each_check_is_told_before_it_is_made() -> None:
    told: list[tuple[str, int, int]] = []

    async def main() -> None:
        checks = (check("a", ok("a")), check("b", ok("b")))
        async for _ in examine(SUBJECT, {"a", "b"}, lambda each, *numbers: told.append((each.name, *numbers)), checks):
            pass

    asyncio.run(main())
    assert told == [("a", 1, 2), ("b", 2, 2)]
