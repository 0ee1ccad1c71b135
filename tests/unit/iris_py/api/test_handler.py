"""Slips that are refused when a handler is given, for nothing would ever call it."""

from __future__ import annotations

import pytest

import iris_py as iris
import iris_py.sync
from iris_py.api.handler import HOOKS, check_handler
from iris_py.testing import VirtualNetwork, run

BASES = [iris.Handler, iris_py.sync.Handler]


@pytest.mark.parametrize("base", BASES)
@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("on_requst", "on_request"),
        ("on_reqeust", "on_request"),
        ("onRequest", "on_request"),
        ("on_requets", "on_request"),
        ("on_brodcast", "on_broadcast"),
        ("on_surveys", "on_survey"),
        ("on_tunel", "on_tunnel"),
    ],
)
def test_a_method_that_looks_like_a_slip_is_refused(base: type, name: str, meant: str) -> None:
    handler = type("Service", (base,), {name: lambda _self, _request: b""})()
    with pytest.raises(iris.ConfigurationError, match=rf"Service\.{name}\(\) is never called: is {meant}"):
        check_handler(handler)


@pytest.mark.parametrize("base", BASES)
@pytest.mark.parametrize("name", ["_on_requst", "request", "on_request_done", "on_connect", "once", "on_message", *HOOKS])
def test_other_names_pass(base: type, name: str) -> None:
    check_handler(type("Service", (base,), {name: lambda _self, _request: b""})())


@pytest.mark.parametrize("given", [*BASES, type("Callable", (), {"__call__": lambda _self, _request: b""})])
def test_a_class_in_place_of_an_instance_is_refused(given: type) -> None:
    with pytest.raises(iris.ConfigurationError, match=rf"Pass an instance of it: {given.__qualname__}\(\)"):
        check_handler(given)


def test_functions_and_callables_pass() -> None:
    def function(request: iris.Request) -> bytes:
        return request.payload

    check_handler(function)
    check_handler(lambda request: request.payload)
    check_handler(bytes)


class Misspelt(iris.Handler):
    async def on_requst(self, request: iris.Request) -> bytes:
        return request.payload


def test_joining_refuses_it() -> None:
    async def main() -> None:
        async with VirtualNetwork(seed=1) as network:
            (node,) = await network.connect_many(1)
            for given in (Misspelt(), iris.Handler):
                with pytest.raises(iris.ConfigurationError):
                    node.join("them", given)  # type: ignore[arg-type] # that is the point

    run(main())
