"""Parts of a survey and of a subscription, as a task takes them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, cast

from iris_py import Answers, Member, SurveyReply
from spark_connector.local import server
from spark_connector.local.server import HeldSurvey

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    import pytest

    from iris_py import Survey


class FakeSurvey:
    """A survey with replies that are all there."""

    def __init__(self, sizes: list[int]) -> None:
        self.waiting = [
            SurveyReply(payload=bytes(size), member=Member(id=f"{number:032x}", address="host:1", zone=""))
            for number, size in enumerate(sizes)
        ]

    @property
    def answers(self) -> Answers:
        return Answers(
            replies=tuple(self.waiting),
            expected=len(self.waiting),
            missing_count=0,
            missing=(),
            failed=(),
            rejected=(),
            declined=(),
            dropped=0,
        )

    async def __aiter__(self) -> AsyncIterator[SurveyReply]:
        while self.waiting:
            yield self.waiting.pop(0)


def parts_of(sizes: list[int]) -> list[list[int]]:
    """Return the sizes of the replies of each part."""

    async def main() -> list[list[int]]:
        ended: list[bool] = []
        held = HeldSurvey(cast("Survey", FakeSurvey(sizes)), lambda: ended.append(True))
        parts: list[list[int]] = []
        while True:
            taken, payloads = await held.take(None)
            assert taken.sizes == [len(payload) for payload in payloads]
            if taken.is_over:
                assert ended == [True]
                return parts
            assert not ended
            parts.append(taken.sizes)

    return asyncio.run(main())


def test_a_part_of_a_survey_has_what_is_there() -> None:
    assert parts_of([3, 4, 5]) == [[3, 4, 5]]
    assert parts_of([3]) == [[3]]
    assert parts_of([]) == []


def test_a_part_of_a_survey_is_bounded_by_its_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "TAKEN_BYTES_MAX", 10)
    assert parts_of([10, 1, 1]) == [[10], [1, 1]]
    assert parts_of([4, 6, 1]) == [[4, 6], [1]]
    assert parts_of([4, 5, 20, 1]) == [[4, 5, 20], [1]]


def test_a_part_of_a_survey_is_bounded_by_its_replies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "TAKEN_MESSAGES_MAX", 2)
    assert parts_of([1, 1, 1, 1, 1]) == [[1, 1], [1, 1], [1]]
