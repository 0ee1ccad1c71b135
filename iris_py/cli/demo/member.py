"""A member process of `iris demo`: ``python -m iris_py.cli.demo.member ADDRESS``.

The driver writes the secret to standard input and keeps that pipe open. Its end, for whatever reason, is the end of the member:
no signal and no message of a driver that was killed is needed. A line after the secret orders the member to hold the next
request and to say so, and then it is killed: only in this way is it certain that it dies with a request in its hands.
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

__all__ = ["CLUSTER", "HOLDING", "ID_BYTES", "NETWORK", "serve"]

NETWORK: Final = "demo"
CLUSTER: Final = "counters"
ID_BYTES: Final = 16  # of the node id in front of every reply: who counted
HOLDING: Final = "holding"
HOLD_S: Final = 5.0  # for the kill to come; then the request goes on as if nothing had been
END_TIMEOUT_S: Final = 5  # to leave politely; a member that is stuck is ended by the alarm


def _make_counter(node: iris_py.Node) -> Callable[[iris_py.Request], bytes]:
    """Return the handler of `iris demo`: a request is a file, and the reply is who counted and what."""
    prefix = bytes.fromhex(node.id)
    return lambda request: prefix + count(request.payload).encode()


async def serve(
    seed: str,
    make: Callable[[iris_py.Node], Callable[[iris_py.Request], bytes | Awaitable[bytes]]] = _make_counter,
    network: str = NETWORK,
    cluster: str = CLUSTER,
) -> int:
    """Count what is sent to the cluster, until standard input ends.

    Args:
        seed: The address of a node of the network.
        make: Makes the handler, which runs in threads.
        network: The name of the network.
        cluster: What to serve.
    """
    secret = Secret.parse(sys.stdin.buffer.readline().decode())
    is_to_hold = threading.Event()
    ended = _watch_input(is_to_hold)
    # A `Config` takes the place of environment and file: no setting of the user reaches the demo.
    config = iris_py.Config(network=network, secret=secret, seeds=(seed,), discovery=False)
    async with iris_py.connect(config=config) as node:
        answer = make(node)

        def count_request(request: iris_py.Request) -> bytes | Awaitable[bytes]:
            if is_to_hold.is_set():
                is_to_hold.clear()
                print(HOLDING, flush=True)
                time.sleep(HOLD_S)
            return answer(request)

        # One at a time: the work is the processor's, and what waits here could as well run at another member.
        async with node.join(cluster, count_request, concurrency=1):
            print(node.id, flush=True)
            await ended
            signal.alarm(END_TIMEOUT_S)
    return 0


def _watch_input(is_to_hold: threading.Event) -> asyncio.Future[None]:
    """Return what is done when standard input has ended, and set the event when there is a line."""
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[None] = loop.create_future()
    descriptor = sys.stdin.fileno()

    def read() -> None:
        if os.read(descriptor, 4096):
            is_to_hold.set()
        else:
            loop.remove_reader(descriptor)
            ended.set_result(None)

    loop.add_reader(descriptor, read)
    return ended


if __name__ == "__main__":
    sys.exit(execute(lambda: serve(sys.argv[1])))
