"""The default answers of handlers of plain functions, and what the event loop makes of them."""

from __future__ import annotations

import asyncio
import inspect
from typing import TYPE_CHECKING, Any, cast

import pytest

from iris_py.api.handler import Handler as AsyncHandler
from iris_py.api.handler import answers_together, serves_tunnels
from iris_py.defaults import CONCURRENCY, THREADS
from iris_py.sync.handlers import Handler, adapt, adapt_callback, default_concurrency

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from iris_py.patterns.messages import Message, Request
    from iris_py.sync.background import Background
    from iris_py.sync.tunnel import Tunnel

REQUEST = cast("Request", "request")
LOOP = cast("Background", "loop")


class Plain(Handler):
    def on_request(self, request: Request) -> bytes:
        return b"reply"


class Together(Handler):
    def __init__(self, answer: bytes | Exception = b"together") -> None:
        self.answer = answer

    def on_requests(self, requests: Sequence[Request]) -> Sequence[bytes | Exception]:
        return [self.answer] * len(requests)


class WithTunnels(Plain):
    def on_tunnel(self, tunnel: Tunnel) -> None: ...


class TogetherWithTunnels(Together):
    def on_tunnel(self, tunnel: Tunnel) -> None: ...


def test_one_request_may_be_answered_as_several_are() -> None:
    assert Together().on_request(REQUEST) == b"together"
    assert Together().on_survey(REQUEST) == b"together"
    with pytest.raises(KeyError):
        Together(KeyError()).on_request(REQUEST)


def test_what_a_handler_does_not_do_it_says() -> None:
    with pytest.raises(NotImplementedError, match=r"Handler does not answer requests$"):
        Handler().on_request(REQUEST)
    with pytest.raises(NotImplementedError, match="Plain does not answer requests together"):
        Plain().on_requests([REQUEST])
    with pytest.raises(NotImplementedError, match="Plain does not serve tunnels"):
        Plain().on_tunnel(cast("Tunnel", None))


@pytest.mark.parametrize("handler", [Plain(), Together(), WithTunnels(), TogetherWithTunnels()])
def test_the_event_loop_is_offered_what_the_handler_does(handler: Handler) -> None:
    adapted = adapt(handler, LOOP, inline=False)
    assert isinstance(adapted, AsyncHandler)
    assert answers_together(adapted) == isinstance(handler, Together)
    assert serves_tunnels(adapted) == isinstance(handler, WithTunnels | TogetherWithTunnels)


def test_what_the_event_loop_can_run_it_runs_itself() -> None:
    async def answer(_request: Request) -> bytes:
        return b""

    def answer_at_once(_request: Request) -> bytes:
        return b""

    async def take(_message: Message) -> None: ...

    def take_at_once(_message: Message) -> None: ...

    own = AsyncHandler()
    assert adapt(own, LOOP, inline=False) is own
    assert adapt(answer, LOOP, inline=False) is answer
    assert adapt(answer_at_once, LOOP, inline=True) is answer_at_once
    assert adapt(answer_at_once, LOOP, inline=False) is not answer_at_once
    nonsense: Any = "no handler"
    adapted: list[object] = [adapt(nonsense, LOOP, inline=False), adapt_callback(nonsense, LOOP)]
    assert adapted == [nonsense, nonsense]
    assert adapt_callback(None, LOOP) is None
    assert adapt_callback(take, LOOP) is take
    assert adapt_callback(take_at_once, LOOP) is not take_at_once


class Here:
    """Calls at once what is to be called in a thread."""

    async def in_thread(self, function: Callable[[Any], object], argument: object) -> object:
        result = function(argument)
        return await result if inspect.isawaitable(result) else result


def test_a_function_may_return_its_result_or_something_to_wait_for() -> None:
    async def reply() -> bytes:
        return b"reply"

    async def main() -> None:
        loop = cast("Background", Here())
        functions: list[Callable[[object], Any]] = [lambda _given: b"reply", lambda _given: reply()]
        for function in functions:
            handler, callback = adapt(function, loop, inline=False), adapt_callback(function, loop)
            assert callable(handler)
            assert not isinstance(handler, AsyncHandler)
            assert callback is not None
            for called in (handler(REQUEST), callback(cast("Message", "message"))):
                assert await cast("Awaitable[object]", called) == b"reply"

    asyncio.run(main())


def test_how_many_requests_run_at_once_by_default() -> None:
    async def answer(_request: Request) -> bytes:
        return b""

    assert default_concurrency(answer) == default_concurrency(AsyncHandler()) == CONCURRENCY
    assert default_concurrency(Plain()) == default_concurrency(lambda _request: b"") == THREADS
