"""One of the processes of test_rotation.py: serves, asks without a pause, and holds a tunnel, while its secret is exchanged.

Usage: rotating.py SEED RATE TUNNEL. Reads its secret again at SIGHUP. From the first line of its standard input on it asks RATE
requests a second. At the line "work N" it says "worked" when N more were answered, at "members N" it says "seen" when the
cluster has as many. At the end it tells in one line of JSON what came of all that. SEED is empty for the first one. TUNNEL is
"end" for the process that serves the tunnel, and "begin" for the one that sends numbers through it.
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys

import iris_py as iris


class Work(iris.Handler):
    """Answers, and sends back what comes through a tunnel."""

    async def on_request(self, request: iris.Request) -> bytes:
        return request.payload

    async def on_tunnel(self, tunnel: iris.Tunnel) -> None:
        async for chunk in tunnel:
            await tunnel.send(chunk)


class Counts:
    """Counts what came of the work."""

    def __init__(self) -> None:
        self.answered = self.chunks = self.rekeyed = 0
        self.errors: list[str] = []
        self.is_over = False
        self.changed = asyncio.Event()


async def ask(node: iris.Node, counts: Counts, pause_s: float) -> None:
    """Ask one after the other, at most so often."""
    loop = asyncio.get_running_loop()
    due = loop.time()
    while not counts.is_over:
        payload = b"%d" % counts.answered
        try:
            if await node.request("work", payload, timeout=60.0, idempotent=True) == payload:
                counts.answered += 1
                counts.changed.set()
            else:
                counts.errors.append("another answer")
        except iris.IrisError as exc:
            counts.errors.append(repr(exc))
        due = max(due + pause_s, loop.time())
        await asyncio.sleep(due - loop.time())


async def pass_through(tunnel: iris.Tunnel, counts: Counts) -> None:
    """Send numbers through a tunnel, and take them back."""
    while not counts.is_over:
        try:
            await tunnel.send(b"%d" % counts.chunks)
            if await tunnel.receive() != b"%d" % counts.chunks:
                counts.errors.append("another chunk")
        except iris.IrisError as exc:
            counts.errors.append(repr(exc))
            return
        counts.chunks += 1
        await asyncio.sleep(0.01)


async def main(seed: str, rate: float, tunnel: str) -> None:
    counts = Counts()
    loop = asyncio.get_running_loop()
    async with iris.connect(seeds=[seed] if seed else None, discovery=False) as node, node.join("work", Work()):

        def rekey() -> None:
            node.reload_keys()
            counts.rekeyed += 1
            print("rekeyed", flush=True)

        loop.add_signal_handler(signal.SIGHUP, rekey)
        if tunnel == "end":
            await node.join("tunnels", Work())
        print("ready", node.address, flush=True)
        await asyncio.to_thread(sys.stdin.readline)  # all are there
        tasks = [asyncio.ensure_future(ask(node, counts, 10 / rate)) for _ in range(10)]
        if tunnel == "begin":
            tasks.append(asyncio.ensure_future(pass_through(await node.tunnel("tunnels"), counts)))
        while line := await asyncio.to_thread(sys.stdin.readline):
            what, number = line.split()
            if what == "work":
                enough = counts.answered + int(number)
                while counts.answered < enough:
                    counts.changed.clear()
                    await counts.changed.wait()
                print("worked", flush=True)
            else:
                while len(node.members("work")) != int(number):  # noqa: ASYNC110 - a view tells nobody that it has changed
                    await asyncio.sleep(0.01)
                print("seen", flush=True)
        counts.is_over = True
        await asyncio.gather(*tasks)
        result = {"answered": counts.answered, "chunks": counts.chunks, "errors": counts.errors[:5], "rekeyed": counts.rekeyed}
        print(json.dumps(result), flush=True)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], float(sys.argv[2]), sys.argv[3]))
