"""Records the answers of the surroundings to the checks, for the bundle."""

from __future__ import annotations

import inspect
from functools import wraps
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable

    from iris_py.doctor.surroundings import Surroundings

__all__ = ["Recorder", "SeenLine"]


class SeenLine(msgspec.Struct, tag_field="kind", tag="seen"):
    """A question of a check to the surroundings, and the answer."""

    question: str
    """The question: a method of `Surroundings`."""
    about: tuple[str, ...]
    """The names in the question."""
    answer: Any


class Recorder:
    """Passes the questions of checks on to the surroundings, and records the answers.

    Args:
        surroundings: The surroundings that answer.

    Attributes:
        answers: The last answer to each question, by the method and its arguments. Checks ask some thirty questions.
    """

    def __init__(self, surroundings: Surroundings) -> None:
        self._surroundings = surroundings
        self.answers: dict[tuple[str, tuple[str, ...]], object] = {}

    def lines(self) -> list[SeenLine]:
        """Return the questions and their answers, without the settings, which have a file `settings.jsonl` of their own."""
        return [
            SeenLine(name, about, answer)
            for (name, about), answer in self.answers.items()
            if name not in ("settings", "evidence")
        ]

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(self._surroundings, name)
        if inspect.iscoroutinefunction(method):

            @wraps(method)
            async def ask(*about: str) -> object:
                answer = self.answers[name, about] = await method(*about)
                return answer

            return ask

        @wraps(method)
        def look(*about: str) -> object:
            answer = self.answers[name, about] = method(*about)
            return answer

        return look
