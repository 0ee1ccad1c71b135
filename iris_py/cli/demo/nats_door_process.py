"""A door process of `iris demo --nats`: ``python -m iris_py.cli.demo.nats_door_process ADDRESS``. It ends with its input."""

from __future__ import annotations

import os
import signal
import sys

import iris_py
from iris_py.cli.demo.member import END_TIMEOUT_S, NETWORK, read_secret, watch_input
from iris_py.cli.outcome import execute
from iris_py.doors.settings import parse_settings
from iris_py.servers.nats.door import open_nats_door

#: A free port, for another door may listen at the usual one.
SETTINGS = '[nats]\nlisten = "127.0.0.1:0"\n'


async def serve_door(seed: str) -> int:
    """Serve clients of NATS of the same user until standard input ends; return the exit code.

    Args:
        seed: The address of a node of the network.
    """
    name = f"door-{os.getpid()}"
    config = iris_py.Config(network=NETWORK, secret=read_secret(), seeds=(seed,), discovery=False, name=name)
    ended = watch_input(lambda: None)
    async with iris_py.connect(config=config) as node, open_nats_door(node, parse_settings(SETTINGS, "the demo")) as door:
        print(door.address, flush=True)
        await ended
        signal.alarm(END_TIMEOUT_S)
        await door.close(timeout=0.0)
    return 0


if __name__ == "__main__":
    sys.exit(execute(lambda: serve_door(sys.argv[1])))
