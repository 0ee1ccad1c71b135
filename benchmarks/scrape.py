"""Scrapes and what they cost: requests at full rate while the node is scraped every second, in turns with windows without.

``python -m benchmarks.scrape``. One process has the caller, the member and the status server, so all of it is on one event
loop; the scraper is another process. Compared are requests for each second of processor time, which other work on the machine
changes least, and the longest time that the loop was late. Before that, scrapes alone are measured.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from statistics import median
from typing import TYPE_CHECKING, Final

import typer

import iris_py
from iris_py.metrics import serve_status

if TYPE_CHECKING:
    from iris_py.metrics import StatusServer

#: Callers at a time: enough to keep the loop busy.
CALLERS: Final = 64
#: Clusters that the node has used, each with an entry of its own in every scrape.
CLUSTERS: Final = 32
#: Scrapes that are measured alone.
SCRAPES: Final = 50
SCRAPER: Final = """
import sys, time, urllib.request
for line in sys.stdin:
    until = time.monotonic() + float(line)
    while time.monotonic() < until:
        urllib.request.urlopen(sys.argv[1]).read()
        time.sleep(max(0.0, min(1.0, until - time.monotonic())))
"""


async def echo(request: iris_py.Request) -> bytes:
    return request.payload


async def measure(windows: int, seconds: float) -> None:
    """Print the ratio of both, and how late the loop was."""
    secret = os.urandom(32)
    async with (
        iris_py.connect(secret=secret, listen="127.0.0.1:0", discovery=False) as member,
        iris_py.connect(secret=secret, listen="127.0.0.1:0", discovery=False, seeds=[member.address]) as caller,
    ):
        for number in range(CLUSTERS):
            await member.join(f"c{number}", echo)
            await caller.request(f"c{number}", b"")
        status = await serve_status(caller, "127.0.0.1:0")
        await _scrape_alone(status)
        command = [sys.executable, "-c", SCRAPER, f"http://{status.address}/metrics"]
        with subprocess.Popen(command, stdin=subprocess.PIPE, text=True) as scraper:  # noqa: ASYNC220 - nothing is measured yet
            assert scraper.stdin is not None
            done = [0]
            callers = [asyncio.create_task(_ask(caller, number, done)) for number in range(CALLERS)]
            rates: dict[bool, list[float]] = {False: [], True: []}
            late: dict[bool, list[float]] = {False: [], True: []}
            for window in range(2 * windows):
                is_scraped = bool(window % 2)
                if is_scraped:
                    scraper.stdin.write(f"{seconds}\n")
                    scraper.stdin.flush()
                began, cpu_s = done[0], time.process_time()
                late[is_scraped].append(await _lateness_s(seconds))
                rates[is_scraped].append((done[0] - began) / (time.process_time() - cpu_s))
            for each in callers:
                each.cancel()
            await asyncio.gather(*callers, return_exceptions=True)
            scraper.stdin.close()
    ratios = sorted(scraped / plain for plain, scraped in zip(rates[False], rates[True], strict=True))
    plain, scraped = median(rates[False]), median(rates[True])
    print(f"requests per second of processor time: {plain:,.0f}, scraped {scraped:,.0f}")
    print(f"ratio: median {median(ratios):.4f}, from {ratios[0]:.4f} to {ratios[-1]:.4f} in {windows} pairs of {seconds:g} s")
    plain, scraped = (median(late[is_scraped]) * 1e3 for is_scraped in (False, True))
    print(f"the loop was late by at most, median of the windows: {plain:.2f} ms, scraped {scraped:.2f} ms")


async def _scrape_alone(status: StatusServer) -> None:
    """Print what a scrape takes of the processor while nothing else runs."""
    text = await status._metrics()
    began = time.process_time()
    for _ in range(SCRAPES):
        text = await status._metrics()
    cpu_ms = (time.process_time() - began) / SCRAPES * 1e3
    print(f"a scrape of {text.count(bytes([10])):,} lines, {len(text):,} bytes, alone: {cpu_ms:.2f} ms of processor time")


async def _ask(caller: iris_py.Node, number: int, done: list[int]) -> None:
    while True:
        await caller.request(f"c{number % CLUSTERS}", b"x" * 64)
        done[0] += 1


async def _lateness_s(seconds: float) -> float:
    """Return by how much a timer of a millisecond was late at most within so long."""
    until, worst = time.monotonic() + seconds, 0.0
    while (began := time.monotonic()) < until:
        await asyncio.sleep(0.001)
        worst = max(worst, time.monotonic() - began - 0.001)
    return worst


def main(windows: int = 15, seconds: float = 4.0) -> None:
    """Measure in so many pairs of windows, each of so many seconds."""
    iris_py.run(measure(windows, seconds))


if __name__ == "__main__":
    typer.run(main)
