"""Orders: who may give them, to whom, and that nothing is unpickled before."""

from __future__ import annotations

import os
import pickle
from pathlib import Path

import pytest

from spark_connector import Network
from spark_connector.errors import OrderRefused
from spark_connector.executors.orders import (
    BYE,
    OVERHEAD_BYTES,
    UPDATE,
    Order,
    control_name,
    open_local,
    open_order,
    own_name,
    seal_local,
    seal_order,
)
from spark_connector.executors.spawn import ExecutorProcess, Launch

TOKEN, OTHER = os.urandom(32), os.urandom(32)


def test_an_order_arrives_as_it_was_given() -> None:
    sealed = seal_order(TOKEN, UPDATE, "ab" * 16, 7, b"a handler")

    assert open_order(TOKEN, "ab" * 16, sealed) == (UPDATE, 7, b"a handler")
    assert len(sealed) == OVERHEAD_BYTES + len(b"a handler")


@pytest.mark.parametrize("at", range(0, OVERHEAD_BYTES + 9, 3))
def test_an_order_that_was_changed_is_refused(at: int) -> None:
    sealed = bytearray(seal_order(TOKEN, UPDATE, "ab" * 16, 7, b"a handler"))
    sealed[at] ^= 1

    with pytest.raises(OrderRefused, match="not from the driver"):
        open_order(TOKEN, "ab" * 16, bytes(sealed))


def test_an_order_counts_for_one_agent_and_from_one_driver() -> None:
    sealed = seal_order(TOKEN, BYE, "ab" * 16, 7)

    with pytest.raises(OrderRefused):
        open_order(TOKEN, "cd" * 16, sealed)
    with pytest.raises(OrderRefused):
        open_order(OTHER, "ab" * 16, sealed)
    with pytest.raises(OrderRefused, match="no order"):
        open_order(TOKEN, "ab" * 16, sealed[: OVERHEAD_BYTES - 1])


class Trap:
    """Unpickling it shows."""

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, ("trapped",)


def test_nothing_is_unpickled_that_is_not_from_the_driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    sealed = seal_order(OTHER, b"s", "local", 1, pickle.dumps(Trap()))

    with pytest.raises(OrderRefused):
        open_local(TOKEN, sealed)
    with pytest.raises(OrderRefused, match="another order"):
        open_local(TOKEN, seal_order(TOKEN, BYE, "local", 1, pickle.dumps(Trap())))
    assert not (tmp_path / "trapped").exists()

    open_local(OTHER, sealed)
    assert (tmp_path / "trapped").exists()  # the trap works


def test_no_representation_shows_a_secret() -> None:
    order = Order("etl", "1f", Network(secret="very secret"), 1, b"the handler", {})
    launch = Launch(Path("/nowhere"), ExecutorProcess("1", 2, 3), b"the token")

    assert open_local(TOKEN, seal_local(TOKEN, order)) == order
    assert "very secret" not in repr(order)
    assert "the handler" not in repr(order)
    assert "the token" not in repr(launch)


def test_the_names_of_one_executor_are_names_of_clusters() -> None:
    assert own_name("etl", "12") == "etl.12"
    assert control_name("etl", "12", "1f") == "etl.12.control.1f"
