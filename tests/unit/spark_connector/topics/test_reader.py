"""A topic as a streaming query of Spark reads it: planner and tasks in this process, without Spark."""

from __future__ import annotations

import os
import threading
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest
from pyspark import cloudpickle
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from iris_py import ConfigurationError, IrisError, Message
from spark_connector.dataframes import worker_node
from spark_connector.errors import DataLost
from spark_connector.topics import reader as reader_module
from spark_connector.topics.options import read_options
from spark_connector.topics.reader import TopicReader

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from iris_py import Tunnel
    from spark_connector.topics.reader import TopicRange
    from tests.spark.services import Service


@pytest.fixture
def planner(options: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., TopicReader]]:
    """Makes readers that have opened their subscription, and ends them."""
    monkeypatch.delenv("SPARK_REUSE_WORKER", raising=False)  # so that each task ends its node
    opened = []

    def start(**more: str) -> TopicReader:
        reader = TopicReader(read_options({"topic": "in", **options, **more}))
        opened.append(reader)
        reader.initialOffset()
        return reader

    yield start
    for reader in opened:
        reader.stop()


@pytest.fixture
def publish(service: Service, until: Callable[[Callable[[], object], str], None]) -> Callable[..., None]:
    """Publishes numbers as messages, and waits until a reader has them."""

    def send(reader: TopicReader, numbers: range) -> None:
        before = arrived(reader)
        for number in numbers:
            assert service.node.publish("in", b"%d" % number) > 0
        until(lambda: arrived(reader) >= before + len(numbers), f"{len(numbers)} messages have arrived")

    return send


def arrived(reader: TopicReader) -> int:
    report = reader.reportLatestOffset()
    return int(report["position"]) + int(report["dropped"])


def place(offset: dict[str, Any]) -> dict[str, Any]:
    """Return an offset without what it tells of losses."""
    return {name: offset[name] for name in ("epoch", "position")}


def sent(value: Any) -> Any:
    """Return what Spark makes of a value in another process."""
    return cloudpickle.loads(cloudpickle.dumps(value))  # type: ignore[no-untyped-call]


def read(reader: TopicReader, ranges: list[TopicRange]) -> list[int]:
    """Run the tasks of a micro-batch, as Spark does: with a reader that was pickled."""
    task = sent(reader)
    ranges = sent(ranges)
    return [int(value) for each in ranges for rows in task.read(each) for value in rows.column("value").to_pylist()]


def test_micro_batches_have_what_has_arrived(planner: Callable[..., TopicReader], publish: Callable[..., None]) -> None:
    reader = planner()
    start = reader.initialOffset()
    assert reader.latestOffset(start, ReadAllAvailable()) == start, "nothing is there"

    publish(reader, range(10))
    first = reader.latestOffset(start, reader.getDefaultReadLimit())
    publish(reader, range(10, 15))
    second = reader.latestOffset(first, reader.getDefaultReadLimit())

    assert read(reader, reader.partitions(start, first)) == list(range(10))
    assert read(reader, reader.partitions(first, second)) == list(range(10, 15))
    assert reader.partitions(second, second) == []
    assert (place(first), place(second)) == ({**place(start), "position": 10}, {**place(start), "position": 15})


def test_a_query_ends_with_its_application(
    planner: Callable[..., TopicReader], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = tmp_path / "blockmgr"
    directory.mkdir()
    os.utime(directory, (0, 0))
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(directory))
    monkeypatch.setattr(reader_module, "LIFE_SIGN_S", 0.0)
    reader = planner()
    start = reader.initialOffset()
    assert reader.latestOffset(start, ReadAllAvailable()) == start
    assert directory.stat().st_mtime > 0, "a cleaner of temporary directories would remove it"

    directory.rmdir()
    with pytest.raises(IrisError, match=f"the Spark application of this query has ended: {directory} was removed"):
        reader.latestOffset(start, ReadAllAvailable())


def test_a_task_that_runs_again_reads_the_same_rows(planner: Callable[..., TopicReader], publish: Callable[..., None]) -> None:
    reader = planner(partitions="3")
    start = reader.initialOffset()
    publish(reader, range(10))
    end = reader.latestOffset(start, ReadAllAvailable())
    ranges = reader.partitions(start, end)

    assert [(each.start, each.end) for each in ranges] == [(0, 3), (3, 6), (6, 10)]
    publish(reader, range(100, 110))
    for _ in range(2):
        assert read(reader, ranges[1:2]) == [3, 4, 5]
    assert reader.partitions(start, end) == ranges
    assert read(reader, ranges) == list(range(10))


def test_a_micro_batch_has_at_most_as_many_rows_as_it_may(
    planner: Callable[..., TopicReader], publish: Callable[..., None]
) -> None:
    reader = planner(maxRowsPerTrigger="4")
    limit = reader.getDefaultReadLimit()
    assert limit == ReadMaxRows(4)
    publish(reader, range(10))

    offsets = [reader.initialOffset()]
    for _ in range(4):
        offsets.append(reader.latestOffset(offsets[-1], limit))

    assert [offset["position"] for offset in offsets] == [0, 4, 8, 10, 10]
    assert read(reader, reader.partitions(offsets[1], offsets[2])) == [4, 5, 6, 7]


def test_spark_may_ask_twice_for_the_end_of_a_micro_batch(
    planner: Callable[..., TopicReader], publish: Callable[..., None]
) -> None:
    reader = planner()
    start = reader.initialOffset()
    publish(reader, range(10))
    end = reader.latestOffset(start, ReadAllAvailable())
    publish(reader, range(10, 20))

    assert reader.latestOffset(start, ReadAllAvailable()) == end
    assert place(reader.latestOffset(start, ReadMaxRows(3))) == {**place(start), "position": 3}


def test_rows_of_a_micro_batch_that_is_done_are_forgotten(
    planner: Callable[..., TopicReader], publish: Callable[..., None]
) -> None:
    reader = planner(failOnDataLoss="false")
    start = reader.initialOffset()
    publish(reader, range(10))
    end = reader.latestOffset(start, ReadAllAvailable())
    ranges = reader.partitions(start, end)
    reader.commit(end)

    with pytest.raises(IrisError, match="the rows of the topic 'in' cannot be read from the driver"):
        read(reader, ranges)
    assert reader.partitions(start, end) == []
    assert reader.reportLatestOffset()["lost"] == 10


def test_what_is_too_much_is_dropped_and_counted(planner: Callable[..., TopicReader], publish: Callable[..., None]) -> None:
    reader = planner(bufferMessages="8", failOnDataLoss="false")
    start = reader.initialOffset()
    publish(reader, range(5))
    end = reader.latestOffset(start, ReadAllAvailable())
    publish(reader, range(5, 25))

    report = reader.reportLatestOffset()
    assert report.pop("lagMs") >= 0
    losses = {"dropped": 12, "lost": 0, "missed": 0, "missedByPublisher": {}, "unknown": []}
    assert report == {**place(start), "position": 13, "lag": 8, **losses}
    assert read(reader, reader.partitions(start, end)) == list(range(5)), "what was taken into a micro-batch stays"
    assert read(reader, reader.partitions(end, reader.latestOffset(end, ReadAllAvailable()))) == list(range(17, 25))


def test_another_planner_goes_on_with_what_is_live(planner: Callable[..., TopicReader], publish: Callable[..., None]) -> None:
    before = planner()
    start = before.initialOffset()
    publish(before, range(10))
    middle = before.latestOffset(start, ReadMaxRows(6))
    end = before.latestOffset(middle, ReadAllAvailable())
    before.stop()

    reader = planner(failOnDataLoss="false")
    assert reader.initialOffset()["epoch"] != start["epoch"]
    assert reader.partitions(middle, end) == [], "planned by the one before, and gone"
    reader.commit(end)
    assert reader.reportLatestOffset()["lost"] == 4
    assert reader.latestOffset(end, ReadAllAvailable()) == end, "nothing is there"
    publish(reader, range(10, 13))
    after = reader.latestOffset(end, ReadMaxRows(2))
    reader.commit(end)  # says nothing of the rows that are here

    assert read(reader, reader.partitions(end, after)) == [10, 11]
    assert place(after) == {**place(reader.initialOffset()), "position": 2}


def test_a_query_that_has_dropped_a_message_fails_with_what_to_do(
    planner: Callable[..., TopicReader], publish: Callable[..., None]
) -> None:
    reader = planner(bufferMessages="8")
    start = reader.initialOffset()
    publish(reader, range(20))
    with pytest.raises(DataLost, match=r"12 were dropped.*failOnDataLoss.*'policy', 'block'") as caught:
        reader.latestOffset(start, ReadAllAvailable())
    assert (caught.value.topic, caught.value.dropped, caught.value.lost, caught.value.missed) == ("in", 12, 0, {})


def test_the_progress_counts_what_the_subscription_dropped_before_it_is_taken(planner: Callable[..., TopicReader]) -> None:
    reader = planner()
    start = reader.initialOffset()
    source = reader._source
    assert source is not None

    async def overrun() -> None:
        source._waiting.put([Message(b"1", "s", 4, "", "in", 3), Message(b"2", "s", 6, "", "in", 1)], 0, [3, 1])

    source._worker_node.call(overrun())
    report = reader.reportLatestOffset()
    assert (report["position"], report["dropped"], report["missed"]) == (2, 4, 0)
    with pytest.raises(DataLost, match="4 were dropped"):
        reader.latestOffset(start, ReadAllAvailable())
    report = reader.reportLatestOffset()
    assert (report["position"], report["dropped"], report["missed"]) == (2, 4, 0)


def test_a_query_that_goes_on_counts_what_it_missed_of_each_publisher(
    planner: Callable[..., TopicReader],
    publish: Callable[..., None],
    service: Service,
    until: Callable[[Callable[[], object], str], None],
) -> None:
    """Some messages were in no micro-batch, others were published while it did not run; and the counts go on for ever."""
    with closing(service.node.subscribe("in")):  # so that the topic is never without a subscriber
        before = planner()
        start = before.initialOffset()
        publish(before, range(10))
        end = before.latestOffset(start, ReadMaxRows(6))
        before.commit(end)
        before.stop()
        for number in range(10, 17):
            service.node.publish("in", b"%d" % number)
            service.node.publish("other", b"counts for nobody")

        failing = planner()
        with pytest.raises(DataLost) as caught:  # the publisher tells it, without another message
            until(lambda: failing.latestOffset(end, ReadAllAvailable()) != end, "the query has failed")
        assert caught.value.missed == {service.node.id: 11}, "4 that had arrived, and 7"
        assert f"11 of publisher {service.node.id} did not arrive" in str(caught.value)
        failing.stop()

        service.node.publish("in", b"17")
        reader = planner(failOnDataLoss="false")
        publish(reader, range(18, 20))
        after = reader.latestOffset(end, ReadAllAvailable())
        assert read(reader, reader.partitions(end, after)) == [18, 19]
        reader.commit(after)
        assert reader.reportLatestOffset()["missedByPublisher"] == {service.node.id: 12}
        reader.stop()

        accepting = planner()
        publish(accepting, range(20, 22))
        last = accepting.latestOffset(after, ReadAllAvailable())
        assert read(accepting, accepting.partitions(after, last)) == [20, 21], "it does not fail for what it has told before"
        assert accepting.reportLatestOffset()["missed"] == 12


def test_a_micro_batch_that_was_not_done_fails_the_query_that_goes_on(
    planner: Callable[..., TopicReader], publish: Callable[..., None]
) -> None:
    before = planner()
    start = before.initialOffset()
    publish(before, range(10))
    end = before.latestOffset(start, ReadAllAvailable())
    before.stop()
    with pytest.raises(DataLost, match="10 were in micro-batches that were not finished"):
        planner().partitions(start, end)


def test_a_query_that_blocks_slows_down_its_publishers_and_gets_everything(
    planner: Callable[..., TopicReader], service: Service, until: Callable[[Callable[[], object], str], None]
) -> None:
    reader = planner(policy="block", bufferMessages="16")
    count, published = 1500, []

    def publish() -> None:
        for number in range(count):
            service.node.publish("in", b"%d" % number)
            published.append(number)

    publisher = threading.Thread(target=publish)
    publisher.start()
    until(lambda: reader.reportLatestOffset()["lag"] >= 32, "the buffers are full")
    assert len(published) < count
    offset, found = reader.initialOffset(), list[int]()
    while len(found) < count:
        until(lambda: reader.reportLatestOffset()["lag"], "more has come")
        begin, offset = offset, reader.latestOffset(offset, ReadAllAvailable())
        found += read(reader, reader.partitions(begin, offset))
        reader.commit(offset)
    publisher.join(60)
    assert found == list(range(count))
    report = reader.reportLatestOffset()
    assert (report["dropped"], report["missed"], report["lag"]) == (0, 0, 0)


def test_a_pattern_and_everything_of_a_message_is_read(
    planner: Callable[..., TopicReader], service: Service, until: Callable[[Callable[[], object], str], None]
) -> None:
    reader = planner(topic="sensors.*")
    service.node.publish("sensors.roof", b"21", headers={"unit": "C"})
    service.node.publish("sensors.cellar", b"12")
    until(lambda: arrived(reader) == 2, "both have arrived")
    start = reader.initialOffset()

    ranges = reader.partitions(start, reader.latestOffset(start, ReadAllAvailable()))
    rows: list[dict[str, Any]] = [row for each in ranges for chunk in reader.read(each) for row in chunk.to_pylist()]

    assert [(row["topic"], row["value"], row["headers"]) for row in rows] == [
        ("sensors.roof", b"21", [("unit", "C")]),
        ("sensors.cellar", b"12", None),
    ]
    assert {row["source"] for row in rows} == {service.node.id}


def test_a_task_that_wants_no_more_ends_its_tunnel(
    planner: Callable[..., TopicReader],
    service: Service,
    until: Callable[[Callable[[], object], str], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """More than fits into its window is under way, so who serves it could wait for ever."""
    served: list[str] = []
    serve = reader_module.Provider.on_tunnel

    async def note(provider: reader_module.Provider, tunnel: Tunnel) -> None:
        await serve(provider, tunnel)
        served.append(tunnel.id)

    monkeypatch.setattr(reader_module.Provider, "on_tunnel", note)
    monkeypatch.setenv("SPARK_REUSE_WORKER", "1")  # the node stays when the task ends
    reader = planner()
    start = reader.initialOffset()
    for _ in range(8):
        service.node.publish("in", bytes(reader_module.WINDOW_BYTES // 4))
    until(lambda: arrived(reader) == 8, "all have arrived")
    ranges = reader.partitions(start, reader.latestOffset(start, ReadAllAvailable()))

    taken = reader.read(ranges[0])
    try:
        next(taken)
        assert not served
        taken.close()  # type: ignore[attr-defined]  # it is a generator
        until(lambda: served, "who serves the rows has ended")
    finally:
        monkeypatch.delenv("SPARK_REUSE_WORKER")
        worker_node.end_task()


def test_a_planner_that_is_gone_is_told(planner: Callable[..., TopicReader], publish: Callable[..., None]) -> None:
    reader = planner()
    start = reader.initialOffset()
    publish(reader, range(3))
    ranges = reader.partitions(start, reader.latestOffset(start, ReadAllAvailable()))
    task = sent(reader)
    reader.stop()

    with pytest.raises(IrisError, match="the rows of the topic 'in' cannot be read from the driver, whose node received them"):
        list(task.read(ranges[0]))


def test_nothing_is_available_when_a_query_starts(planner: Callable[..., TopicReader]) -> None:
    with pytest.raises(ConfigurationError, match="the topic 'in' is not stored"):
        planner().prepareForTriggerAvailableNow()


def test_a_topic_that_is_none_is_told(options: dict[str, str]) -> None:
    with pytest.raises(ConfigurationError, match="has an empty token"):
        TopicReader(read_options({"topic": "a..b", **options})).initialOffset()
