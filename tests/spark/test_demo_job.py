"""The parts of the demo with Spark that run in its tasks, agents and members; and what its driver makes of errors."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import iris_py
from iris_py.cli.demo.lexer import count
from iris_py.cli.demo.spark_terms import PROGRESS_TOPIC
from iris_security import Secret
from spark_connector import decode_batch, encode_batch
from spark_connector.demo import job
from spark_connector.demo.job import Reader, statistics, usage
from spark_connector.demo.member import make_counter
from spark_connector.demo.program import explain, files_per_request, make_home
from spark_connector.errors import DispatchError
from spark_connector.executors.spawn import ExecutorProcess

if TYPE_CHECKING:
    from pathlib import Path


def files(*paths: Path) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"number": list(range(len(paths))), "path": [os.fsencode(path) for path in paths]})


def test_tasks_read_files_whatever_they_are_called(tmp_path: Path) -> None:
    strange = tmp_path / os.fsdecode(b"\xff [*] {a,b}")
    strange.write_bytes(b"\0content")
    (tmp_path / "_empty").write_bytes(b"")
    batch = Reader(str(tmp_path), None)(files(strange, tmp_path / "_empty"))
    assert batch.to_pydict() == {"number": [0, 1], "content": [b"\0content", b""]}


def test_a_task_is_held_once_and_says_where(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job, "find_executor", lambda: ExecutorProcess("7", 1, 1))
    monkeypatch.setattr(job, "HOLD_S", 0.0)
    path = tmp_path / "file"
    path.write_bytes(b"x")
    reader = Reader(str(tmp_path), 0)
    assert reader(files(path)).num_rows == 1
    assert (tmp_path / "hold").read_text() == "7"

    monkeypatch.setattr(job, "HOLD_S", 1e9)  # the second attempt goes on at once
    assert reader(files(path)).num_rows == 1
    assert sorted(each.name for each in tmp_path.iterdir()) == ["file", "hold"]


def test_statistics_are_those_of_the_executor_and_what_comes_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    program = (
        "import subprocess, sys; p = subprocess.Popen(['sleep', '1000']); print(p.pid, flush=True); input(); p.kill(); p.wait()"
    )
    process = subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        assert int(process.stdout.readline())
        used = usage(process.pid)
        assert used.processes == 1
        assert used.memory_bytes > 1 << 20
        assert used.cpu_s >= 0.0
        monkeypatch.setenv("SPARK_EXECUTOR_PID", str(process.pid))
        request: Any = None
        told = json.loads(statistics(request))
        assert (told["process"], told["agent"], told["processes"]) == (process.pid, os.getpid(), 1)
    finally:
        process.communicate(b"\n")
    with pytest.raises(ProcessLookupError):
        usage(process.pid)


async def _serve(content: list[bytes]) -> tuple[dict[str, list[Any]], bytes, str]:
    async with iris_py.connect(listen="127.0.0.1:0", secret=Secret.generate(os.urandom), seeds=(), discovery=False) as node:
        async with node.subscribe(PROGRESS_TOPIC) as counted, node.join("counters", make_counter(node)):
            batch = pa.RecordBatch.from_pydict({"number": list(range(5, 5 + len(content))), "content": content})
            reply = await node.request("counters", encode_batch(batch), timeout=60.0)
            message = await anext(aiter(counted))
        return decode_batch(reply).to_pydict(), message.payload, node.id


def test_a_member_counts_a_batch_and_publishes_which() -> None:
    reply, published, node = asyncio.run(_serve([b"x = 1\n", b""]))
    assert published == bytes([0, 0, 0, 5, 0, 0, 0, 6])
    assert reply["member"] == [node, node]
    assert reply["names"] == [count(b"x = 1\n").names, 0]
    assert reply["files"] == [1, 1]


@pytest.mark.parametrize(("number", "expected"), [(1, 1), (64, 1), (200, 3), (1790, 16)])
def test_there_are_enough_requests_to_see_progress(number: int, expected: int) -> None:
    assert files_per_request(number) == expected


def test_spark_gets_a_home_where_it_may_write(tmp_path: Path) -> None:
    home = make_home(str(tmp_path))
    assert (home / "bin" / "spark-submit").is_file()
    assert (home / "jars").is_dir()
    assert not (home / "work").exists()


def test_errors_are_told_without_the_traces_of_spark() -> None:
    trace = (
        "An exception was thrown from the Python worker. Please see the stack trace below.\n"
        "Traceback (most recent call last):\n"
        '  File "tasks.py", line 1, in dispatch_batches\n'
        "spark_connector.errors.DispatchError: the request with key 'a' to the cluster 'counters' has no result: no\n"
        "\n\nJVM stacktrace:\norg.apache.spark.SparkException: Job aborted\n"
    )
    told = "spark_connector.errors.DispatchError: the request with key 'a' to the cluster 'counters' has no result: no"
    assert explain(RuntimeError(trace)) == told
    assert explain(RuntimeError("one\ntwo")) == "RuntimeError: one"
    assert explain(DispatchError("c", "k", "r")) == str(DispatchError("c", "k", "r"))
