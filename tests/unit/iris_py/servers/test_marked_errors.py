"""Errors with a marked address inside, raised by the node of a door: the mark is in no byte of an answer."""

from __future__ import annotations

import asyncio
import inspect
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from iris_py import errors
from iris_py.api.node import Node
from iris_py.doors.problems import PROBLEMS
from iris_py.doors.rights import Grant, Rights
from iris_py.patterns.messages import Message
from tests.unit.iris_py.servers import test_app
from tests.unit.iris_py.servers.asgi import ask
from tests.unit.iris_py.servers.test_app import with_door

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Generator, Mapping

    from tests.unit.iris_py.servers.asgi import Answer
    from tests.unit.iris_py.servers.test_app import Door

MARK = "203.0.113.77:4711"
OTHERS = (KeyError, OSError, RuntimeError, TypeError, ValueError, TimeoutError, LookupError, AssertionError)
#: Arguments of constructors that are numbers or have a form of their own.
NUMBERS = {"size_bytes": 9, "limit_bytes": 8, "queue_messages": 7, "queue_bytes": 6, "timeout_s": 5.0, "tried": 4, "number": 2}
#: The client's token allows everything, and to see the errors of handlers.
CURIOUS = Grant(
    "ann",
    (Rights(request=("*",), survey=("*",), broadcast=("*",), publish=(">",), subscribe=(">",), remote_errors=True),),
)


def marked(kind: type[BaseException]) -> BaseException:
    """Return an error with the mark in its text, in each of its attributes, in a note, in its cause and in its context."""
    error = _made(kind)
    error.args = (f"{MARK}: {error.args[0] if error.args else ''}",)
    for name, value in vars(error).items():
        if isinstance(value, str) or value is None:
            setattr(error, name, MARK)
    if isinstance(error, errors.Overloaded):
        error.retry_after_s = 2.0
    error.add_note(f"see {MARK}")
    error.__cause__ = OSError(113, MARK, MARK)
    error.__context__ = error.__cause__
    return error


def _made(kind: type[BaseException]) -> BaseException:
    """Return an error made by its own constructor, where each text is the mark."""
    if kind is errors.IrisError or not kind.__module__.startswith("iris_py") or "__init__" not in vars(kind):
        return kind(MARK)
    given: dict[str, Any] = {}
    for name, parameter in inspect.signature(kind).parameters.items():
        if name in NUMBERS:
            given[name] = NUMBERS[name]
        elif parameter.annotation in ("str", "str | None"):
            given[name] = MARK
        elif parameter.default is inspect.Parameter.empty:
            given[name] = _value_of(parameter.annotation)
    return kind(**given)


def _value_of(annotation: str) -> object:
    if annotation.startswith("Mapping"):
        return {MARK: MARK}
    return [MARK] if annotation.startswith("Sequence") else 3


def kinds() -> list[type[BaseException]]:
    public = [vars(errors)[name] for name in errors.__all__]
    return [*public, *OTHERS]


class Failing:
    """Stands for a survey or a subscription of a node, and fails at some place.

    Args:
        error: The error.
        replies: The number of replies, or messages, before the error.
        opens: Whether the opening succeeds.
    """

    def __init__(self, error: BaseException, replies: int, *, opens: bool) -> None:
        self.error = error
        self.left = replies
        self.opens = opens

    def __await__(self) -> Generator[object, object, Failing]:
        yield from asyncio.sleep(0).__await__()
        if not self.opens:
            raise self.error
        return self

    def __aiter__(self) -> Failing:
        return self

    async def __anext__(self) -> Any:
        await asyncio.sleep(0)
        if not self.left:
            raise self.error
        self.left -= 1
        return Message(topic="notes.ann", payload=b"reply", source="00" * 16, sequence=self.left)

    async def batches(self) -> AsyncIterator[list[Any]]:
        async for message in self:
            yield [message]
            await asyncio.sleep(0.1)

    async def close(self) -> None:
        pass


class Way(NamedTuple):
    """A way of an error to a client."""

    path: str
    patched: str
    """The method of the node that fails."""
    replies: int = -1
    """Replies before the error of a survey or subscription; -1 for other methods."""
    opens: bool = True
    """Whether a survey or subscription begins."""
    headers: Mapping[str, str] = {}
    body: bytes = b"x"
    starts: bool = False
    """Whether the answer has begun before the error."""

    @property
    def method(self) -> str:
        return "GET" if self.patched == "subscribe" else "POST"


LINES = {"Content-Type": "application/x-ndjson"}
WAYS: Mapping[str, Way] = {
    "request": Way("/v1/clusters/quotes/request", "request"),
    "request with a key": Way("/v1/clusters/quotes/request", "request", headers={"Idempotency-Key": "k"}),
    "broadcast": Way("/v1/clusters/quotes/broadcast", "broadcast"),
    "publication": Way("/v1/topics/notes.ann", "publish"),
    "publication of lines": Way("/v1/topics/notes.ann", "publish_many", headers=LINES, body=b"1\n2\n"),
    "call of a survey": Way("/v1/clusters/quotes/survey", "survey"),
    "first reply to a survey": Way("/v1/clusters/quotes/survey", "survey", 0),
    "third reply to a survey": Way("/v1/clusters/quotes/survey", "survey", 2, starts=True),
    "call of a subscription": Way("/v1/topics/events?pattern=notes.*", "subscribe"),
    "opening of a subscription": Way("/v1/topics/events?pattern=notes.*", "subscribe", 0, opens=False),
    "subscription that ends at once": Way("/v1/topics/events?pattern=notes.*", "subscribe", 0),
    "third message": Way("/v1/topics/events?pattern=notes.*", "subscribe", 2, starts=True),
    "third message as a line": Way(
        "/v1/topics/events?pattern=notes.*", "subscribe", 2, headers={"Accept": "application/x-ndjson"}, starts=True
    ),
}


def failing_method(way: Way, error: BaseException) -> Callable[..., Any]:
    """Return a method of a node that fails in some way."""

    async def fail(*_arguments: object, **_options: object) -> None:
        raise error

    def begin(*_arguments: object, **_options: object) -> Failing:
        if way.replies < 0:
            raise error
        return Failing(error, way.replies, opens=way.opens)

    return begin if way.patched in ("survey", "subscribe") else fail


class Exchange:
    """A client that asks, and keeps all that the application sends.

    Attributes:
        answer: The answer; None if an error has cut it.
        sent: All bytes of the head and of the content.
    """

    def __init__(self) -> None:
        self.answer: Answer | None = None
        self.sent = b""
        self.statuses: list[int] = []

    async def ask(self, door: Door, way: Way, token: str) -> None:
        async def watched(scope: Any, receive: Any, send: Any) -> None:
            async def keep(message: Mapping[str, Any]) -> None:
                self.statuses += [message["status"]] if "status" in message else []
                for name, value in message.get("headers", ()):
                    self.sent += name + b": " + value + b"\r\n"
                self.sent += message.get("body", b"")
                await send(message)

            await door.app(scope, receive, keep)

        try:
            headers = {"Authorization": f"Bearer {token}", **way.headers}
            self.answer = await ask(watched, way.method, way.path, way.body, headers)
        except Exception:
            assert way.starts, "an error before the answer is a problem"  # a listener logs it, and cuts the answer


@pytest.mark.parametrize("name", WAYS)
def test_the_mark_of_no_error_leaves(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    way = WAYS[name]
    monkeypatch.setitem(test_app.GRANTS, "curious", CURIOUS)

    async def scenario(door: Door) -> None:
        for kind in kinds():
            error = marked(kind)
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(Node, way.patched, failing_method(way, error))
                for token in ("all", "curious"):
                    exchange = Exchange()
                    await exchange.ask(door, way, token)
                    sent = exchange.sent
                    if way.starts:
                        assert exchange.statuses == [200], kind
                    else:
                        assert exchange.answer is not None
                        assert exchange.answer.problem in PROBLEMS, kind
                        assert exchange.statuses == [PROBLEMS[exchange.answer.problem].status]
                    if token == "curious" and kind is errors.RemoteError and not way.starts:
                        # The right tells the class and text of a handler's exception, and nothing else.
                        assert sent.count(MARK.encode()) == 2
                        sent = sent.replace(b'"remote_type":"%b","remote_text":"%b"' % (MARK.encode(), MARK.encode()), b"")
                    for part in (MARK, "203.0.113", "4711", "Traceback"):
                        assert part.encode() not in sent, kind
            await asyncio.sleep(6)  # the failed subscription is forgotten

    with_door(scenario, "[web.limits]\noperations_per_s = 100000\nburst = 100000")


def test_each_error_has_its_mark() -> None:
    for kind in kinds():
        error = marked(kind)
        assert MARK in str(error), kind
        texts = [value for value in vars(error).values() if isinstance(value, str)]
        assert all(text == MARK for text in texts), kind
    assert len(kinds()) > 25
