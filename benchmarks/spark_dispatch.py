"""Dispatch of a DataFrame beside what one would do without: two tasks of Spark and one member, on this machine.

Measured: rows per second of a whole query, from its start to its end, with a sink that does nothing; the services answer in
processes of their own. "batches" are of 1,000 rows; "rows" are a request each. All of it is done with the same rows, text, and
the same work, upper(), in Python.

* "mapInArrow" does the work in the tasks themselves, as any Python function in Spark.
* "a connection per row" opens a node for each row, asks, and closes it. That is so slow that only a few rows are asked about,
  and the rate is that of the tasks without the rest of the query.
* "HTTP per row" is requests with a session per task, and uvicorn with an application that does nothing else.
* "HTTP, 64 under way" is aiohttp with one session per task and as many requests at once as dispatch has.
* "Arrow over HTTP" sends batches of as many rows as dispatch does, four at once, to the same web server.

Not measured: several machines, several members, and more cores than there are: Spark, the tasks and the member share them.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack, ExitStack
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Self, TypeAlias, cast

import pyarrow as pa
from pyspark.sql import functions as F

import iris_py
from benchmarks.harness import START_TIMEOUT_S, Sample, Section, Stage, Trial
from benchmarks.spark_session import TASKS
from benchmarks.worker import tell
from spark_connector import ArrowHandler, Network, dispatch
from spark_connector.dataframes.arrow import decode_batch, encode_batch
from spark_connector.dataframes.dispatch import WINDOW_BATCHES, WINDOW_ROWS

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from benchmarks.worker import Parameters

    #: What ASGI gives an application.
    Receive: TypeAlias = "Callable[[], Awaitable[dict[str, Any]]]"
    Send: TypeAlias = "Callable[[dict[str, Any]], Awaitable[None]]"

BATCH_ROWS: Final = 1000
#: How long the slow service takes, in seconds, and how many of its requests each task has under way.
DELAY_S: Final = 0.005
WINDOW: Final = 512
#: As many requests as dispatch has under way by default, of rows.
HTTP_WINDOW: Final = WINDOW_ROWS
_NETWORK: Final = "bench"
#: Requests of all tasks, so that the slow service never lets one wait.
_CONCURRENCY: Final = TASKS * WINDOW


class Bench:
    """The processes that all measurements share: services, and a Spark that is started when it is first needed.

    Args:
        start_session: Starts it.
    """

    def __init__(self, start_session: Callable[[ExitStack], SparkSession]) -> None:
        self._start_session = start_session
        self._warm: set[str] = set()

    def __enter__(self) -> Self:
        self._stack = ExitStack()
        return self

    def __exit__(self, *_exc: object) -> None:
        self._stack.close()

    def start(self) -> None:
        """Start whatever does not run."""
        if hasattr(self, "spark"):
            return
        stage = self._stack.enter_context(Stage())
        member, web = stage.start(serve_iris), stage.start(serve_http)
        member.begin({"secret": stage.home.secret})
        web.begin({})
        address = member.listen(START_TIMEOUT_S)["address"]
        self.url = f"http://127.0.0.1:{web.listen(START_TIMEOUT_S)['port']}/"
        self.network = Network(name=_NETWORK, secret=stage.home.secret, seeds=[address], discovery=False)
        self.spark = self._start_session(self._stack)

    def frame(self, rows: int, row_bytes: int) -> DataFrame:
        """Return rows of text."""
        text = F.rpad(F.concat(F.lit("row "), F.col("id")), row_bytes, "x").alias("text")
        return self.spark.range(0, rows, 1, TASKS).select("id", text)

    def run(self, name: str, rows: int, make: Callable[[Bench, int], DataFrame]) -> list[Sample]:
        """Measure a query; the first time it is also run before, for Spark compiles it and starts Python."""
        self.start()
        if name not in self._warm:
            discard(make(self, max(rows // 10, TASKS)))
            self._warm.add(name)
        began = time.perf_counter()
        discard(make(self, rows))
        return [Sample("rows", rows / (time.perf_counter() - began), "/s")]


def discard(df: DataFrame) -> None:
    """Make all rows, and keep none."""
    df.write.format("noop").mode("append").save()


# -- sections


def batches(bench: Bench, *, quick: bool) -> Section:
    """Return requests of a thousand rows, beside the same work inside Spark."""
    rows = 4_000 if quick else 200_000
    return _section(
        "dispatch in batches",
        f"{rows:,} rows of 1 KB, {BATCH_ROWS:,} to a request, {TASKS} tasks, one member.",
        bench,
        rows,
        {"dispatch": _dispatch_batches, "mapInArrow": _map_in_arrow, "Arrow over HTTP": _arrow_over_http},
        ("mapInArrow", "Arrow over HTTP"),
    )


def rows(bench: Bench, *, quick: bool) -> Section:
    """Return requests of a row each, to services that take no time and 5 ms: one for each, and one for what comes together."""
    count = 2_000 if quick else 240_000
    return _section(
        "dispatch of rows",
        f"{count:,} rows of 100 bytes, a request each, {TASKS} tasks, one member.",
        bench,
        count,
        {
            "no time, window 64": partial(_dispatch_rows, "instant", 64),
            f"no time, window {WINDOW}": partial(_dispatch_rows, "instant", WINDOW),
            f"{DELAY_S * 1000:g} ms, window {WINDOW}": partial(_dispatch_rows, "slow", WINDOW),
            f"{DELAY_S * 1000:g} ms together, window {WINDOW}": partial(_dispatch_rows, "together", WINDOW),
        },
        (),
    )


def naive(bench: Bench, *, quick: bool) -> Section:
    """Return what one would write without dispatch."""
    count, few = (1_000, 4) if quick else (20_000, 20)
    trials = (
        Trial("dispatch", partial(bench.run, "dispatch beside naive", count, partial(_dispatch_rows, "instant", 64))),
        Trial("HTTP per row", partial(bench.run, "HTTP", count, _http_per_row)),
        Trial(f"HTTP, {HTTP_WINDOW} under way", partial(bench.run, "HTTP async", count, _http_together)),
        Trial("a connection per row", partial(_measure_connections, bench, few)),
    )
    caption = f"{count:,} rows of 100 bytes; with a connection per row {few}."
    references = ("HTTP per row", f"HTTP, {HTTP_WINDOW} under way", "a connection per row")
    return Section("dispatch beside naive functions", caption, trials, references)


def _section(
    name: str,
    caption: str,
    bench: Bench,
    rows: int,
    queries: dict[str, Callable[[Bench, int], DataFrame]],
    references: tuple[str, ...],
) -> Section:
    trials = [Trial(each, partial(bench.run, f"{name}: {each}", rows, make)) for each, make in queries.items()]
    return Section(name, caption, trials, references)


# -- queries


def _dispatch_batches(bench: Bench, rows: int) -> DataFrame:
    frame = bench.frame(rows, 1000)
    return dispatch(
        frame, "batches", mode="batches", request=["text"], schema="reply string", batch_rows=BATCH_ROWS, network=bench.network
    )


def _map_in_arrow(bench: Bench, rows: int) -> DataFrame:
    frame = bench.frame(rows, 1000)

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield pa.RecordBatch.from_arrays([*batch.columns, _upper(batch)["reply"]], names=[*batch.schema.names, "reply"])

    return frame.mapInArrow(work, "id bigint, text string, reply string")


def _dispatch_rows(cluster: str, window: int, bench: Bench, rows: int) -> DataFrame:
    frame = bench.frame(rows, 100)
    return dispatch(frame, cluster, request="text", schema="reply string", window=window, network=bench.network)


def _http_per_row(bench: Bench, rows: int) -> DataFrame:
    url = bench.url

    def ask(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import requests

        with requests.Session() as session:
            for batch in batches:
                replies = [session.post(url, data=text.encode(), timeout=30).text for text in texts_of(batch)]
                yield batch.append_column("reply", pa.array(replies, pa.string()))

    return bench.frame(rows, 100).mapInArrow(ask, "id bigint, text string, reply string")


def _http_together(bench: Bench, rows: int) -> DataFrame:
    url = bench.url

    def ask(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import asyncio

        import aiohttp

        async def ask_all(session: aiohttp.ClientSession, texts: Sequence[str]) -> list[str]:
            places = asyncio.Semaphore(HTTP_WINDOW)

            async def ask_one(text: str) -> str:
                async with places, session.post(url, data=text.encode()) as reply:
                    return str(await reply.text())

            return list(await asyncio.gather(*map(ask_one, texts)))

        async def open_session() -> aiohttp.ClientSession:
            return aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=HTTP_WINDOW))

        with asyncio.Runner() as runner:
            session = runner.run(open_session())
            try:
                for batch in batches:
                    replies = runner.run(ask_all(session, texts_of(batch)))
                    yield batch.append_column("reply", pa.array(replies, pa.string()))
            finally:
                runner.run(session.close())

    return bench.frame(rows, 100).mapInArrow(ask, "id bigint, text string, reply string")


def _arrow_over_http(bench: Bench, rows: int) -> DataFrame:
    url = bench.url + "arrow"

    def ask(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import asyncio

        import aiohttp

        async def ask_all(session: aiohttp.ClientSession, pieces: Sequence[pa.RecordBatch]) -> list[pa.RecordBatch]:
            places = asyncio.Semaphore(WINDOW_BATCHES)

            async def ask_one(piece: pa.RecordBatch) -> pa.RecordBatch:
                async with places, session.post(url, data=encode_batch(piece.select(["text"]))) as reply:
                    replies = decode_batch(await reply.read())
                    return piece.append_column("reply", replies["reply"])

            return list(await asyncio.gather(*map(ask_one, pieces)))

        async def open_session() -> aiohttp.ClientSession:
            return aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=WINDOW_BATCHES))

        with asyncio.Runner() as runner:
            session = runner.run(open_session())
            try:
                for batch in batches:
                    pieces = [batch.slice(first, BATCH_ROWS) for first in range(0, batch.num_rows, BATCH_ROWS)]
                    yield from runner.run(ask_all(session, pieces))
            finally:
                runner.run(session.close())

    return bench.frame(rows, 1000).mapInArrow(ask, "id bigint, text string, reply string")


def _measure_connections(bench: Bench, rows: int) -> Sequence[Sample]:
    bench.start()
    network = bench.network

    def ask(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import asyncio
        import time

        async def ask_once(payload: bytes) -> bytes:
            async with network.connect() as node:
                return await node.request("instant", payload, timeout=30)

        for batch in batches:
            began = time.perf_counter()
            for text in texts_of(batch):
                asyncio.run(ask_once(text.encode()))
            yield pa.RecordBatch.from_pydict({"seconds": [time.perf_counter() - began]})

    taken = [row["seconds"] for row in bench.frame(rows, 100).mapInArrow(ask, "seconds double").collect()]
    return [Sample("rows", rows / max(taken), "/s")]


# -- the services


def texts_of(batch: pa.RecordBatch) -> list[str]:
    """Return the texts of a batch."""
    return cast("list[str]", batch["text"].to_pylist())


def _upper(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Do the work of a batch."""
    return pa.RecordBatch.from_pydict({"reply": [text.upper() for text in texts_of(batch)]})


class Together(iris_py.Handler):
    """The slow service for all that come together, as a model would be."""

    async def on_requests(self, requests: Sequence[iris_py.Request]) -> list[bytes]:
        await asyncio.sleep(DELAY_S)
        return [request.payload.upper() for request in requests]


def serve_iris(parameters: Parameters) -> None:
    """Be the member of all clusters."""

    async def instant(request: iris_py.Request) -> bytes:
        return request.payload.upper()

    async def slow(request: iris_py.Request) -> bytes:
        await asyncio.sleep(DELAY_S)
        return request.payload.upper()

    async def main() -> None:
        async with AsyncExitStack() as stack:
            settings = iris_py.connect(
                network=_NETWORK, secret=parameters["secret"], listen="127.0.0.1:0", seeds=(), discovery=False
            )
            node = await stack.enter_async_context(settings)
            await stack.enter_async_context(node.join("batches", ArrowHandler(_upper), concurrency=2))
            await stack.enter_async_context(node.join("instant", instant, concurrency=_CONCURRENCY))
            await stack.enter_async_context(node.join("slow", slow, concurrency=_CONCURRENCY))
            await stack.enter_async_context(node.join("together", Together(), concurrency=_CONCURRENCY))
            tell(address=node.address)
            await asyncio.Event().wait()

    iris_py.run(main())


def serve_http(_parameters: Parameters) -> None:
    """Be the web server."""
    import socket

    import uvicorn

    async def application(scope: Mapping[str, Any], receive: Receive, send: Send) -> None:
        body, more = b"", True
        while more:
            message = await receive()
            body += message.get("body", b"")
            more = message.get("more_body", False)
        body = encode_batch(_upper(decode_batch(body))) if scope["path"] == "/arrow" else body.upper()
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(body))]})
        await send({"type": "http.response.body", "body": body})

    with socket.create_server(("127.0.0.1", 0)) as listener:
        tell(port=listener.getsockname()[1])
        config = uvicorn.Config(application, lifespan="off", log_level="warning", access_log=False)
        uvicorn.Server(config).run(sockets=[listener])
