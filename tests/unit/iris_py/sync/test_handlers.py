"""The default answers of handlers of plain functions, and what the event loop makes of them."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, cast

import pytest

from iris_py.api.handler import Handler as AsyncHandler
from iris_py.api.hooks import hooks_of
from iris_py.sync.handlers import Handler, adapt

if TYPE_CHECKING:
    from collections.abc import Sequence

    from iris_py.patterns.messages import Request
    from iris_py.sync.background import Background
    from iris_py.sync.tunnel import Tunnel

REQUEST = cast("Request", "request")
LOOP = cast("Background", "loop")
THREADS = ThreadPoolExecutor(1)  # makes none before it is used


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
def test_the_other_api_is_offered_what_the_handler_does_as_plain_methods(handler: Handler) -> None:
    adapted = adapt(handler, LOOP)
    assert isinstance(adapted, AsyncHandler)
    hooks = hooks_of(adapted, THREADS)
    assert (hooks.on_requests is not None) == isinstance(handler, Together)
    assert (hooks.on_tunnel is not None) == isinstance(handler, WithTunnels | TogetherWithTunnels)
    own = [hook for hook in (hooks.on_request, hooks.on_survey, hooks.on_requests, hooks.on_tunnel) if hook is not None]
    assert all(hook.threads is THREADS and not hook.is_async for hook in own)
    assert hooks.on_request.function(REQUEST) == (b"together" if isinstance(handler, Together) else b"reply")


def test_everything_else_stays_as_it_is() -> None:
    async def answer(_request: Request) -> bytes:
        return b""

    def answer_at_once(_request: Request) -> bytes:
        return b""

    nonsense: Any = "no handler"
    for handler in (AsyncHandler(), answer, answer_at_once, nonsense):
        assert adapt(handler, LOOP) is handler
