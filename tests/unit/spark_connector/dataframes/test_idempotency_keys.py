"""Keys of requests: what changes them and what does not."""

from __future__ import annotations

import pytest

from spark_connector.dataframes.idempotency_keys import Scope, scope_of

BATCH = {"spark.app.id": "app-1", "spark.sql.execution.id": "3"}
STREAM = {"sql.streaming.queryId": "9f", "streaming.sql.batchId": "12", **BATCH}


def test_a_query_is_known_by_its_application_and_execution() -> None:
    assert scope_of(BATCH.get, 8, 5, "0", "token") == "app-1/3/0/5"


def test_a_micro_batch_is_known_by_itself_whatever_runs_it() -> None:
    """After a restart application and execution are others, and the work is the same."""
    again = {**STREAM, "spark.app.id": "app-2", "spark.sql.execution.id": "0"}
    assert scope_of(STREAM.get, 8, 5, "0", "token") == scope_of(again.get, 1, 5, "0", "other") == "9f/12/0/5"


def test_what_spark_does_not_tell_is_replaced() -> None:
    assert scope_of(lambda _name: None, 8, 5, "0", "token") == "token/stage8/0/5"


@pytest.mark.parametrize("change", ["spark.app.id", "spark.sql.execution.id"])
def test_everything_else_has_another_scope(change: str) -> None:
    one = scope_of(BATCH.get, 8, 5, "0", "token")
    assert scope_of({**BATCH, change: "other"}.get, 8, 5, "0", "token") != one
    assert scope_of(BATCH.get, 8, 6, "0", "token") != one
    assert scope_of(BATCH.get, 8, 5, "1", "token") != one


def test_rows_have_numbers_and_payloads() -> None:
    first, second = Scope("s"), Scope("s")
    keys = [first.key(b"a"), first.skip(), first.key(b"a"), first.key(b"b")]

    assert keys == [second.key(b"a"), second.skip(), second.key(b"a"), second.key(b"b")]
    assert len(set(keys)) == 4
    assert [key.split("/")[1] for key in keys] == ["0", "1", "2", "3"]


def test_another_row_at_the_same_place_has_another_key() -> None:
    """After a shuffle rows may come in another order: none must get the reply of another one."""
    assert Scope("s").key(b"a") != Scope("s").key(b"b")
