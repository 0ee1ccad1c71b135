"""Tasks without Spark: for failures that would cost a job each."""

from __future__ import annotations

import asyncio
import os
import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING
from unittest.mock import Mock

import pyarrow as pa
import pytest

import iris_py.sync as iris
from iris_py import IrisError, Retry, TooManyMembersLost
from iris_security import Secret
from spark_connector import ArrowHandler, DispatchError, Network
from spark_connector.dataframes import tasks, worker_node
from spark_connector.dataframes.arrow import decode_batch, encode_batch
from spark_connector.dataframes.batches import BAD_ROWS_AT_FIRST_MAX, BAD_ROWS_MAX, REQUESTS_MAX
from spark_connector.dataframes.idempotency_keys import Scope
from spark_connector.dataframes.notify import Notification, notify_rows
from spark_connector.dataframes.plan import Plan, RequestLimits
from spark_connector.dataframes.rows import name_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from spark_connector.dataframes.task_requests import Question

pytest_plugins = ["iris_py.testing.fixtures"]

SECRET = Secret.generate(os.urandom).text
BATCH = pa.RecordBatch.from_pydict({"payload": ["1", "2", "3"]})


@pytest.fixture
def node(iris_isolated: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[iris.Node]:
    monkeypatch.setattr(tasks, "task_scope", lambda name, _token: Scope(f"job/{name}/0"))
    monkeypatch.setenv("SPARK_REUSE_WORKER", "1")
    with iris.connect(secret=SECRET, discovery=False) as node:
        yield node
        monkeypatch.delenv("SPARK_REUSE_WORKER")
        worker_node.end_task()


@pytest.fixture
def plan(node: iris.Node) -> Plan:
    return Plan(
        cluster="echo",
        network=Network(secret=SECRET, seeds=[node.address], discovery=False),
        reply_schema=pa.schema([("reply", pa.string())]),
        request="payload",
        reply=None,
        key=None,
        internal=(),
        limits=RequestLimits(window=2, timeout=30.0, retries=0, wait_for_members=5.0),
        batch_rows=2,
        on_error="raise",
        name="7",
        token="",
    )


def test_a_reply_of_the_wrong_type_names_row_and_cluster(node: iris.Node, plan: Plan) -> None:
    node.join("echo", lambda request: b"\xff" if request.payload == b"2" else request.payload)

    with pytest.raises(DispatchError, match="the reply is not UTF-8") as caught:
        list(tasks.dispatch_rows(plan, iter([BATCH])))
    assert caught.value.cluster == "echo"
    assert caught.value.key.startswith("job/7/0/1/")

    (result,) = tasks.dispatch_rows(replace(plan, on_error="null"), iter([BATCH]))
    assert result.to_pydict() == {"payload": ["1", "2", "3"], "reply": ["1", None, "3"]}


def test_a_bad_row_costs_itself_and_not_its_batch(node: iris.Node, plan: Plan) -> None:
    asked: list[list[str]] = []

    def score(batch: pa.RecordBatch) -> pa.RecordBatch:
        texts = [str(text) for text in batch["payload"].to_pylist()]
        asked.append(texts)
        if "7" in texts or "40" in texts:
            raise LookupError("a bad row")
        return pa.RecordBatch.from_pydict({"reply": texts})

    node.join("echo", ArrowHandler(score))
    rows = pa.RecordBatch.from_pydict({"payload": [str(number) for number in range(100)]})
    batches = replace(plan, request=None, batch_rows=100, on_error="column")

    found = pa.Table.from_batches(list(tasks.dispatch_batches(batches, iter([rows])))).to_pylist()

    assert [row["payload"] for row in found] == [str(number) for number in range(100)]
    assert [row["payload"] for row in found if row["reply"] is None] == ["7", "40"]
    assert [row["payload"] for row in found if row["error"] is not None] == ["7", "40"]
    assert len(asked) <= 1 + 2 * 2 * 7

    before = len(asked)
    again = list(tasks.dispatch_batches(batches, iter([rows])))
    assert pa.Table.from_batches(again).num_rows == 100
    repeated = asked[before:]
    assert all("7" in texts or "40" in texts for texts in repeated), "what had a reply is remembered by its key"


@dataclass
class Mortal:
    """A cluster whose member is lost at bad rows, in place of the one that asks it; see :class:`~iris_py.connector.Asker`."""

    bad: set[str]
    asked: list[tuple[str, bool, int]] = field(default_factory=list)
    lost: int = 0

    def asker(
        self,
        cluster: str,
        timeout: float,
        on_outcomes: Callable[[list[tuple[Question, bytes | TooManyMembersLost]]], None],
        on_member: object,
        retry: Retry,
        *,
        is_exclusive: bool,
    ) -> Mock:
        def ask(questions: list[Question]) -> None:
            asyncio.get_running_loop().call_soon(on_outcomes, [(each, answer(each)) for each in questions])

        def answer(question: Question) -> bytes | TooManyMembersLost:
            assert question.payload is not None
            batch = decode_batch(question.payload)
            self.asked.append((question.key, is_exclusive, batch.num_rows))
            texts = batch["payload"].to_pylist()
            if self.bad.intersection(texts):
                self.lost += 1
                return TooManyMembersLost("echo", [f"{self.lost:02d}" * 16])
            return encode_batch(pa.RecordBatch.from_pydict({"reply": texts}))

        return Mock(ask=ask)


@pytest.fixture
def mortal(monkeypatch: pytest.MonkeyPatch) -> Mortal:
    mortal = Mortal({"7"})
    monkeypatch.setattr(worker_node.WorkerNode, "asker", lambda _node, *how, **more: mortal.asker(*how, **more))
    return mortal


def hundred(plan: Plan, on_error: str) -> list[dict[str, object]]:
    rows = pa.RecordBatch.from_pydict({"payload": [str(number) for number in range(100)]})
    batches = replace(plan, request=None, batch_rows=50, on_error=on_error, id=("payload",))
    return pa.Table.from_batches(list(tasks.dispatch_batches(batches, iter([rows])))).to_pylist()


def test_a_row_that_loses_its_member_costs_itself_and_not_its_batch(node: iris.Node, plan: Plan, mortal: Mortal) -> None:
    node.join("echo", lambda request: request.payload)

    found = hundred(plan, "column")

    assert [row["reply"] for row in found] == [None if number == 7 else str(number) for number in range(100)]
    (error,) = [str(row["error"]) for row in found if row["error"] is not None]
    assert "the request about payload='7' with key 'job/7/0/0/" in error
    assert "/row/7' to the cluster 'echo' has no result: it was lost with 2 members (01010101, 02020202)" in error
    assert mortal.lost == 2, "one with its batch, and one alone"
    assert [(is_exclusive, rows) for _key, is_exclusive, rows in mortal.asked if rows > 1] == [(False, 50)] * 2
    assert [is_exclusive for _key, is_exclusive, rows in mortal.asked if rows == 1] == [True] * 50

    keys = {key for key, _is_exclusive, _rows in mortal.asked}
    hundred(plan, "column")
    assert {key for key, _is_exclusive, _rows in mortal.asked} == keys, "the members know them"


def test_a_row_that_loses_its_member_and_fails_the_task_is_named(node: iris.Node, plan: Plan, mortal: Mortal) -> None:
    node.join("echo", lambda request: request.payload)

    with pytest.raises(DispatchError, match="on_error='null' or 'column' the job continues without such rows") as caught:
        hundred(plan, "raise")
    assert caught.value.rows == "payload='7'"
    assert mortal.lost == 2


@pytest.mark.parametrize("replies", [0, 40])
def test_a_handler_that_ends_its_member_at_many_rows_ends_few(
    node: iris.Node, plan: Plan, mortal: Mortal, replies: int
) -> None:
    node.join("echo", lambda request: request.payload)
    mortal.bad = {str(number) for number in range(replies, 50)}

    found = hundred(replace(plan, limits=replace(plan.limits, window=1)), "column")

    assert [row["reply"] for row in found[:replies]] == [str(number) for number in range(replies)]
    assert all(row["error"] is not None for row in found[replies:50])
    assert mortal.lost <= 1 + (BAD_ROWS_MAX if replies else BAD_ROWS_AT_FIRST_MAX) + 1


def test_a_batch_that_cannot_be_divided_is_asked_once_more_alone(node: iris.Node, plan: Plan, mortal: Mortal) -> None:
    node.join("echo", lambda request: request.payload)
    shorter = replace(plan, request=lambda batch: batch.slice(1), batch_rows=10, on_error="column")
    rows = pa.RecordBatch.from_pydict({"payload": [str(number) for number in range(10)]})

    (result,) = tasks.dispatch_batches(shorter, iter([rows]))

    assert result["reply"].null_count == 10
    assert [(is_exclusive, count) for _key, is_exclusive, count in mortal.asked] == [(False, 9), (True, 9)]


@pytest.mark.parametrize(("bad", "named"), [({57}, "57"), ({40, 7, 41}, "7"), (set(range(100)), "0")])
def test_a_bad_row_that_fails_the_task_is_named_and_no_other(node: iris.Node, plan: Plan, bad: set[int], named: str) -> None:
    asked: list[int] = []

    def score(batch: pa.RecordBatch) -> pa.RecordBatch:
        asked.append(batch.num_rows)
        if bad.intersection(int(each) for each in batch["payload"].to_pylist() if each is not None):
            raise LookupError("a bad row")
        return pa.RecordBatch.from_pydict({"reply": batch["payload"]})

    node.join("echo", ArrowHandler(score))
    rows = pa.RecordBatch.from_pydict({"payload": [str(number) for number in range(100)]})
    batches = replace(plan, request=None, batch_rows=100, id=("payload",))

    with pytest.raises(DispatchError, match=r"with LookupError: a bad row\. The log of that member says more") as caught:
        list(tasks.dispatch_batches(batches, iter([rows])))
    assert caught.value.rows == f"payload='{named}'"
    assert len(asked) <= 1 + 2 * 7, "each half of the batch in which the first bad row is"

    with pytest.raises(DispatchError, match="With id='a column' this error names the row"):
        list(tasks.dispatch_batches(replace(batches, id=(), name="8"), iter([rows])))


def test_a_batch_that_cannot_be_divided_is_named_as_a_whole(node: iris.Node, plan: Plan) -> None:
    def fail(batch: pa.RecordBatch) -> pa.RecordBatch:
        raise LookupError("a bad row")

    node.join("echo", ArrowHandler(fail))
    rows = pa.RecordBatch.from_pydict({"payload": [str(number) for number in range(7)]})
    batches = replace(plan, request=lambda batch: batch.slice(1), batch_rows=7, id=("payload",))

    with pytest.raises(DispatchError, match="failed with LookupError") as caught:
        list(tasks.dispatch_batches(batches, iter([rows])))
    assert caught.value.rows == "payload='0'; payload='1'; payload='2'; payload='3'; payload='4' and 2 more"


@pytest.mark.parametrize("on_error", ["raise", "column"])
def test_a_column_that_the_schema_alone_names_is_no_fault_of_the_handler(node: iris.Node, plan: Plan, on_error: str) -> None:
    node.join("echo", ArrowHandler(lambda batch: batch))
    batches = replace(plan, request=None, on_error=on_error)
    said = r"schema= names a column 'reply', but the reply has the columns payload\. Correct the name in schema=, or return"
    if on_error == "raise":
        with pytest.raises(DispatchError, match=said):
            list(tasks.dispatch_batches(batches, iter([BATCH])))
    else:
        found = pa.Table.from_batches(list(tasks.dispatch_batches(batches, iter([BATCH])))).to_pylist()
        assert all(re.search(said, row["error"]) and "handler failed" not in row["error"] for row in found)


def test_a_handler_that_fails_for_every_row_is_not_asked_about_each(node: iris.Node, plan: Plan) -> None:
    asked: list[int] = []

    def fail(batch: pa.RecordBatch) -> pa.RecordBatch:
        asked.append(batch.num_rows)
        raise LookupError("no row is good")

    node.join("echo", ArrowHandler(fail))
    rows = pa.RecordBatch.from_pydict({"payload": [str(number) for number in range(2000)]})
    results = tasks.dispatch_batches(replace(plan, request=None, batch_rows=500, on_error="null"), iter([rows]))

    assert sum(batch.num_rows for batch in results) == 2000
    assert len(asked) <= REQUESTS_MAX + 4


def test_a_batch_that_is_no_arrow_names_batch_and_cluster(node: iris.Node, plan: Plan) -> None:
    node.join("echo", lambda _request: b"hello")

    with pytest.raises(DispatchError, match="5 bytes are not an Arrow IPC stream") as caught:
        list(tasks.dispatch_batches(replace(plan, request=None), iter([BATCH])))
    assert caught.value.key.startswith("job/7/0/0/")

    results = list(tasks.dispatch_batches(replace(plan, request=None, on_error="column"), iter([BATCH])))
    assert [result.num_rows for result in results] == [2, 1]
    assert all("Its members must serve an ArrowHandler" in row["error"] for result in results for row in result.to_pylist())


@pytest.mark.parametrize("on_error", ["raise", "null", "column"])
def test_a_cluster_that_nobody_serves_fails_the_task(plan: Plan, on_error: str) -> None:
    with pytest.raises(DispatchError, match=r"nobody serves that cluster\. The task knows 1 other nodes"):
        list(tasks.dispatch_rows(replace(plan, limits=replace(plan.limits, timeout=0.2), on_error=on_error), iter([BATCH])))


def test_a_wrong_secret_says_so_and_shows_none(node: iris.Node, plan: Plan) -> None:
    wrong = Secret.generate(os.urandom).text
    with pytest.raises(IrisError) as caught:
        list(tasks.dispatch_rows(replace(plan, network=replace(plan.network, secret=wrong)), iter([BATCH])))

    text = str(caught.value)
    assert "a Spark task cannot reach the cluster 'echo', because its Iris node does not start" in text
    assert "Check that both sides use the same secret" in text
    assert wrong not in text
    assert SECRET not in text


def test_a_row_that_is_too_large_fails_the_task(node: iris.Node, plan: Plan) -> None:
    node.join("echo", lambda request: request.payload)
    large = pa.RecordBatch.from_pydict({"payload": ["x" * 2000]})
    network = replace(plan.network, max_message_bytes=1024)

    with pytest.raises(DispatchError, match="a message of 2000 bytes is over the limit of 1024"):
        list(tasks.dispatch_rows(replace(plan, network=network), iter([large])))


BAD_MESSAGES: dict[str, tuple[object, str]] = {
    "too large": ("payload", "a message of 2000 bytes is over the limit of 1024"),
    "a number": (lambda _row: 5, "message= returned int, not bytes or text"),
}


@pytest.mark.parametrize("case", BAD_MESSAGES)
def test_a_message_that_cannot_be_sent_says_why(plan: Plan, case: str) -> None:
    message, reason = BAD_MESSAGES[case]
    large = pa.RecordBatch.from_pydict({"payload": ["x" * 2000]})
    network = replace(plan.network, max_message_bytes=1024)
    told = Notification("big", None, message, "rows", 1, 30.0, network)

    with pytest.raises(IrisError, match=f"a message to the topic 'big' cannot be sent: {reason}"):
        list(notify_rows(told, iter([large])))


def test_batches_without_rows_pass(plan: Plan) -> None:
    (result,) = tasks.dispatch_rows(plan, iter([BATCH.slice(0, 0)]))
    assert result.schema.names == ["payload", "reply"]
    assert result.num_rows == 0
    assert list(tasks.dispatch_batches(replace(plan, request=None), iter([BATCH.slice(0, 0)]))) == []


ORDERS = pa.RecordBatch.from_pydict({"order": [11, 12, 13], "payload": ["1", "2", "3"], "country": ["DE", "FR", "x" * 200]})


@pytest.mark.parametrize("fails", ["handler", "reply"])
def test_errors_name_the_row_by_the_columns_of_id(node: iris.Node, plan: Plan, fails: str) -> None:
    def answer(request: iris.Request) -> bytes:
        if request.payload == b"2" and fails == "handler":
            raise LookupError("why")
        return b"\xff" if request.payload == b"2" else request.payload

    node.join("echo", answer)
    named = replace(plan, id=("order", "country"))
    with pytest.raises(DispatchError, match=r"^the request about order=12, country='FR' with key 'job/7/0/1/") as caught:
        list(tasks.dispatch_rows(named, iter([ORDERS])))
    assert caught.value.rows == "order=12, country='FR'"
    (result,) = tasks.dispatch_rows(replace(named, on_error="column"), iter([ORDERS]))
    first, second, third = result["error"].to_pylist()
    assert (first, third) == (None, None)
    assert "about order=12, country='FR'" in str(second)


def test_a_value_that_does_not_fit_names_its_row(node: iris.Node, plan: Plan) -> None:
    node.join("echo", ArrowHandler(lambda batch: pa.RecordBatch.from_pydict({"reply": [1.0, 1e300, 3.0]})))
    schema = pa.schema([("reply", pa.float32())])
    named = replace(plan, request=None, batch_rows=3, reply_schema=schema, on_error="column", id=("order",))
    (result,) = tasks.dispatch_batches(named, iter([ORDERS]))
    assert result["reply"].to_pylist() == [1.0, None, 3.0]
    assert ["about order=12 " in (text or "") for text in result["error"].to_pylist()] == [False, True, False]


def test_a_long_value_is_shortened() -> None:
    assert name_rows(("country",), ORDERS, 2) == "country='" + "x" * 59 + "..."
    assert name_rows((), ORDERS) == ""
