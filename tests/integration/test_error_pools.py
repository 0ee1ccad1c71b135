"""Errors cross the pools of multiprocessing and concurrent.futures, and the pool works on."""

from __future__ import annotations

import concurrent.futures
import multiprocessing
from typing import TYPE_CHECKING, NoReturn

import pytest

import iris_py
import iris_py.sync
from tests.specimens import find_error_classes, make_specimens

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

#: Only a failing test takes so long: a pool that cannot load an error waits forever.
PATIENCE_S = 120.0
SPAWN = multiprocessing.get_context("spawn")


def fail(error: Exception) -> NoReturn:
    """Raise in the process of the pool what the test gave it."""
    try:
        raise LookupError("the cause")
    except LookupError as exc:
        raise error from exc


def ask_nobody(secret: str) -> bytes:
    """Ask a cluster without members: what a node has added to the error has to arrive, too."""
    with iris_py.sync.connect(secret=secret, discovery=False) as node:
        return node.request("databases", b"", timeout=PATIENCE_S)


def all_errors() -> list[Exception]:
    specimens = [error for kind in find_error_classes() for error in make_specimens(kind)]
    return [error for error in specimens if isinstance(error, Exception)]


def look_through(caught: Callable[[Exception], BaseException]) -> None:
    errors = all_errors()
    assert len(errors) > 50
    for error in errors:
        received = caught(error)
        assert type(received) is type(error)
        assert str(received) == str(error)
        expected = vars(error)
        assert {name: vars(received)[name] for name in expected} == expected
        # Python puts the traceback of the worker, with the causes in it, in place of the cause.
        assert "LookupError: the cause" in str(received.__cause__)


def test_every_error_crosses_a_pool_of_multiprocessing() -> None:
    with SPAWN.Pool(1) as pool:

        def caught(error: Exception) -> BaseException:
            with pytest.raises(type(error)) as info:
                pool.apply_async(fail, (error,)).get(timeout=PATIENCE_S)
            return info.value

        look_through(caught)
        assert pool.apply_async(len, ("works",)).get(timeout=PATIENCE_S) == 5


def test_every_error_crosses_an_executor_of_processes() -> None:
    with concurrent.futures.ProcessPoolExecutor(1, mp_context=SPAWN) as executor:

        def caught(error: Exception) -> BaseException:
            found = executor.submit(fail, error).exception(timeout=PATIENCE_S)
            assert found is not None
            return found

        look_through(caught)
        assert executor.submit(len, "works").result(timeout=PATIENCE_S) == 5


def test_the_error_of_a_node_in_the_process_of_a_pool_arrives(home: Path) -> None:
    secret = iris_py.Secret(bytes(range(32))).text
    with SPAWN.Pool(1) as pool:
        with pytest.raises(iris_py.NoMembers, match="nobody serves the cluster 'databases'") as info:
            pool.apply_async(ask_nobody, (secret,)).get(timeout=PATIENCE_S)
        assert (info.value.cluster, info.value.seeds) == ("databases", {})
        assert pool.apply_async(len, ("works",)).get(timeout=PATIENCE_S) == 5
