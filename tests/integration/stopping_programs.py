"""Services that test_stopping.py tells to stop.

Usage: stopping_programs.py NAME LOOP RELEASED REPEATED_S. A request is answered when there is a file RELEASED. A signal is the
same wish as the first one within REPEATED_S.
"""

from __future__ import annotations

import asyncio
import signal
import sys
import threading
import time
from pathlib import Path

import iris_py as iris
import iris_py.sync
from iris_py.api import run
from iris_py.sync import stop_signals as sync_stopping

for module in (run, sync_stopping):
    vars(module)["REPEATED_S"] = float(sys.argv[4])

NAME, LOOP, RELEASED = sys.argv[1], sys.argv[2], Path(sys.argv[3])


def is_waiting() -> bool:
    """Tell whether the program waits for a signal."""
    handler = signal.getsignal(signal.SIGINT)  # set a few steps after there is a waiter
    return handler is sync_stopping._handle or any(each._waiting for each in list(run._stoppings.values()))


def answer(_request: iris.Request) -> bytes:
    while NAME.endswith("until_stopped") and not is_waiting():
        time.sleep(0.005)
    print("begun", flush=True)
    while not RELEASED.exists():
        time.sleep(0.005)
    return b"done"


async def serve() -> None:
    async with iris.connect() as node, node.join("them", answer):
        print("serving", flush=True)
        await asyncio.Event().wait()


async def serve_until_stopped() -> None:
    async with iris.connect() as node, node.join("them", answer):
        print("serving", flush=True)
        print("stopped by", (await iris.until_stopped()).name, flush=True)


async def serve_and_leave_open() -> None:
    node = await iris.connect()
    await node.join("them", answer)
    print("serving", flush=True)
    await asyncio.Event().wait()


def serve_sync(*, leave_on_sigterm: bool = True) -> None:
    with iris_py.sync.connect(leave_on_sigterm=leave_on_sigterm) as node, node.join("them", answer):
        print("serving", flush=True)
        threading.Event().wait()


def serve_sync_until_stopped() -> None:
    with iris_py.sync.connect() as node, node.join("them", answer):
        print("serving", flush=True)
        print("stopped by", iris_py.sync.until_stopped().name, flush=True)


def serve_with_a_handler_of_its_own(*, use_sync: bool) -> None:
    signal.signal(signal.SIGTERM, lambda _number, _frame: sys.exit(9))
    if use_sync:
        serve_sync()
    else:
        iris.run(serve())


if LOOP == "asyncio":
    sys.modules["uvloop"] = None  # type: ignore[assignment] # importing it fails
match NAME:
    case "run":
        iris.run(serve())
    case "run_until_stopped":
        iris.run(serve_until_stopped())
    case "run_and_leave_open":
        iris.run(serve_and_leave_open())
    case "run_opted_out":
        iris.run(serve(), leave_on_sigterm=False)
    case "any_loop_until_stopped":
        asyncio.run(serve_until_stopped())
    case "sync":
        serve_sync()
    case "sync_until_stopped":
        serve_sync_until_stopped()
    case "elsewhere_sync_until_stopped":
        with iris_py.sync.connect():  # its threads take the signals
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
            serve_sync_until_stopped()
    case "sync_opted_out":
        serve_sync(leave_on_sigterm=False)
    case "run_own_handler" | "sync_own_handler":
        serve_with_a_handler_of_its_own(use_sync=NAME == "sync_own_handler")
