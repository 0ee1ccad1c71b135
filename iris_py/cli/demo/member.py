"""A member process of `iris demo`: ``python -m iris_py.cli.demo.member ADDRESS``.

The driver (`iris demo` itself) writes the secret to the member's standard input and keeps the pipe open. The end of the input,
for any reason, ends the member, so a killed driver leaves no process behind. A second line orders the member to hold its next
request and to report this; the driver then kills the member, which thus dies with a request in progress.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
import time
from typing import TYPE_CHECKING, Final

import iris_py
from iris_py.cli.demo.lexer import count
from iris_py.cli.outcome import execute
from iris_security.secret import Secret

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

__all__ = ["CLUSTER", "HOLDING", "ID_BYTES", "NETWORK", "read_secret", "serve", "watch_input"]

NETWORK: Final = "demo"
CLUSTER: Final = "counters"
ID_BYTES: Final = 16  # of the node id at the start of every reply, which identifies the member
HOLDING: Final = "holding"
HOLD_S: Final = 5.0  # time for the kill to happen; then the request continues normally
END_TIMEOUT_S: Final = 5  # to leave cleanly; an alarm ends a hung member


def _make_counter(node: iris_py.Node) -> Callable[[iris_py.Request], bytes]:
    """Return the handler of `iris demo`: a request is the content of a file, a reply has the member's id and the totals."""
    prefix = bytes.fromhex(node.id)
    return lambda request: prefix + count(request.payload).encode()


async def serve(
    seed: str,
    make: Callable[[iris_py.Node], Callable[[iris_py.Request], bytes | Awaitable[bytes]]] = _make_counter,
    network: str = NETWORK,
    cluster: str = CLUSTER,
) -> int:
    """Join the demo's cluster, and serve it until standard input ends; return the exit code.

    Args:
        seed: The address of a node of the network.
        make: Makes the handler, which runs in threads.
        network: The name of the network.
        cluster: The name of the cluster.
    """
    secret = read_secret()
    is_to_hold = threading.Event()
    ended = watch_input(is_to_hold.set)
    # A `Config` replaces environment and file, so no setting of the user reaches the demo.
    name = f"{cluster}-{os.getpid()}"
    config = iris_py.Config(network=network, secret=secret, seeds=(seed,), discovery=False, name=name)
    async with iris_py.connect(config=config) as node:
        answer = make(node)

        def count_request(request: iris_py.Request) -> bytes | Awaitable[bytes]:
            if is_to_hold.is_set():
                is_to_hold.clear()
                print(HOLDING, flush=True)
                time.sleep(HOLD_S)
            return answer(request)

        # One at a time: the work needs the processor, and waiting requests could as well run at another member.
        async with node.join(cluster, count_request, concurrency=1):
            print(node.id, flush=True)
            await ended
            signal.alarm(END_TIMEOUT_S)
    return 0


def read_secret() -> Secret:
    """Read the secret of the network from standard input."""
    return Secret.parse(sys.stdin.buffer.readline().decode())


def watch_input(on_line: Callable[[], object]) -> asyncio.Future[None]:
    """Return a future that is done at the end of standard input; a line on standard input calls `on_line`."""
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[None] = loop.create_future()
    descriptor = sys.stdin.fileno()

    def read() -> None:
        if os.read(descriptor, 4096):
            on_line()
        else:
            loop.remove_reader(descriptor)
            ended.set_result(None)

    loop.add_reader(descriptor, read)
    return ended


if __name__ == "__main__":
    sys.exit(execute(lambda: serve(sys.argv[1])))
