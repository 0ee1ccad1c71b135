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
    KEY_BYTES,
    OVERHEAD_BYTES,
    UPDATE,
    Order,
    agent_key,
    control_name,
    open_adoption,
    open_local,
    open_order,
    own_name,
    seal_adoption,
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
    with pytest.raises(OrderRefused, match="not an order"):
        open_order(TOKEN, "ab" * 16, sealed[: OVERHEAD_BYTES - 1])


class Trap:
    """Unpickling it shows."""

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, ("trapped",)


def test_nothing_is_unpickled_that_is_not_from_the_driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    sealed = seal_order(OTHER, b"s", "local 1", 1, pickle.dumps(Trap()))

    with pytest.raises(OrderRefused):
        open_local(TOKEN, "local 1", sealed)
    with pytest.raises(OrderRefused):
        open_local(OTHER, "local 2", sealed)  # on another connection
    with pytest.raises(OrderRefused, match="another order"):
        open_local(TOKEN, "local 1", seal_order(TOKEN, BYE, "local 1", 1, pickle.dumps(Trap())))
    assert not (tmp_path / "trapped").exists()

    open_local(OTHER, "local 1", sealed)
    assert (tmp_path / "trapped").exists()  # the trap works


def test_the_key_of_an_agent_follows_from_token_and_id_and_tells_neither() -> None:
    key = agent_key(TOKEN, "ab" * 16)
    assert len(key) == KEY_BYTES
    assert key == agent_key(TOKEN, "ab" * 16)
    assert len({key, agent_key(OTHER, "ab" * 16), agent_key(TOKEN, "cd" * 16), TOKEN}) == 4


def test_an_adoption_carries_a_key_and_places_and_no_token() -> None:
    birth_key, key = os.urandom(KEY_BYTES), agent_key(TOKEN, "ab" * 16)
    sealed = seal_adoption(birth_key, "local 1", key, ["/a", "/b"])

    assert open_adoption(birth_key, "local 1", sealed) == (key, ["/a", "/b"])
    assert TOKEN not in sealed
    for wrong in (
        (birth_key, "local 1", sealed[:-1] + b"x"),
        (birth_key, "local 2", sealed),
        (key, "local 1", sealed),
        (birth_key, "local 1", seal_local(birth_key, "local 1", Order("etl", "1f", Network(), 1, b"", {}))),
    ):
        with pytest.raises(OrderRefused):
            open_adoption(*wrong)


def test_no_representation_shows_a_secret() -> None:
    order = Order("etl", "1f", Network(secret="very secret"), 1, b"the handler", {})
    launch = Launch(Path("/nowhere"), ExecutorProcess("1", 2, 3), "ab", b"the key")

    assert open_local(TOKEN, "local", seal_local(TOKEN, "local", order)) == order
    assert "very secret" not in repr(order)
    assert "the handler" not in repr(order)
    assert "the key" not in repr(launch)


def test_the_names_of_one_executor_are_names_of_clusters() -> None:
    assert own_name("etl", "12") == "etl.12"
    assert control_name("etl", "12", "1f") == "etl.12.control.1f"
