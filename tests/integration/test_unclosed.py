"""A program that does not close its node is told so in one line, and nothing of the node is left in the event loop."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests import warm
from tests.integration.conftest import PATIENCE_S
from tests.standstills import without_standstills

if TYPE_CHECKING:
    from pathlib import Path

PROGRAM = """
import asyncio
import iris_py as iris

async def wait(request):
    begun.set()
    await asyncio.sleep(3600)

async def main():
    global begun, tasks
    begun = asyncio.Event()
    node = await iris.connect(discovery=False)
    await node.join("waits", wait)
    subscription = await node.subscribe("news")
    tasks = [asyncio.create_task(node.request("waits", b"", timeout=3600)), asyncio.create_task(anext(subscription))]
    await begun.wait()
    print(node.id[:8])
    {end}

{run}
"""
WAYS = {
    "asyncio.run": "asyncio.run(main())",
    "uvloop": "import uvloop\nwith asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner: runner.run(main())",
    "loop.close()": "loop = asyncio.new_event_loop()\nloop.run_until_complete(main())\nloop.close()",
    "loop.close() of uvloop": "import uvloop\nloop = uvloop.new_event_loop()\nloop.run_until_complete(main())\nloop.close()",
    "loop that is never closed": "loop = asyncio.new_event_loop()\nloop.run_until_complete(main())",
}
#: The debug mode tells how long steps take, and of a loop that nobody closes.
OF_ASYNCIO = ("Executing <", "sys:1: ResourceWarning: unclosed event loop", "ResourceWarning: Enable tracemalloc")


def run(way: str, end: str, *options: str) -> tuple[int, str, list[str]]:
    """Run the program; return its exit code, the node, and what it wrote to standard error."""
    process = warm.Process(
        [sys.executable, *options, "-c", PROGRAM.format(end=end, run=way)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    out, errors = process.communicate(timeout=PATIENCE_S)
    lines = without_standstills(errors).splitlines()
    said = [line for line in lines if not line.startswith(OF_ASYNCIO) and "unclosed event loop" not in line]
    return process.returncode, out.strip(), said


def expected(node: str) -> str:
    return (
        f"the node {node} was still open when its event loop ended, so running work was aborted. Use `async with "
        "iris_py.connect() as node:`, or call `await node.close()`"
    )


@pytest.mark.parametrize("options", [(), ("-X", "dev")], ids=["", "dev"])
@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_a_node_that_was_never_closed_says_so_in_one_line(way: str, options: tuple[str, ...], home: Path) -> None:
    status, node, said = run(way, "", *options)
    assert said == [expected(node)]
    assert status == 0
    assert [path.name for path in (home / "state").rglob("*") if path.is_file()] == [], "others remember no node that is gone"


def test_an_exception_of_the_program_is_all_that_follows(home: Path) -> None:
    status, node, said = run(WAYS["asyncio.run"], "raise ValueError('of the program')")
    assert said[0] == expected(node)
    assert said[1] == "Traceback (most recent call last):"
    assert said[-1] == "ValueError: of the program"
    assert [line for line in said[2:-1] if not line.startswith(" ")] == []
    assert status == 1


def test_a_node_that_was_closed_says_nothing(home: Path) -> None:
    assert run(WAYS["asyncio.run"], "await node.close(timeout=0); await asyncio.wait(tasks); [t.exception() for t in tasks]")[
        2
    ] == ["handlers of 'waits' still run after 0 s and are cancelled"]


def test_run_closes_nodes_and_leaves_tasks_of_the_program_alone(home: Path) -> None:
    end = "tasks.pop(0).cancel()"
    assert run("iris.run(main())", end)[2] == []
    end += "; tasks.append(asyncio.create_task(fail())); await asyncio.sleep(0)"
    _status, _node, said = run("async def fail(): raise ValueError('of the program')\niris.run(main())", end)
    assert [line for line in said if not line.startswith((" ", "future: "))] == [
        "Task exception was never retrieved",
        "Traceback (most recent call last):",
        "ValueError: of the program",
    ]


def test_several_nodes_of_a_loop_that_is_closed_say_one_line_each(home: Path) -> None:
    way = (
        "loop = asyncio.new_event_loop()\nother = loop.run_until_complete(main()) or loop.run_until_complete(main())\n"
        "loop.close()\nassert loop.is_closed()\nloop.close()"
    )
    status, nodes, said = run(way, "")
    assert sorted(said) == sorted(expected(node) for node in nodes.split())
    assert status == 0


def test_a_loop_that_runs_cannot_be_closed_and_keeps_its_node(home: Path) -> None:
    end = (
        "\n    try: asyncio.get_running_loop().close()"
        "\n    except RuntimeError as error: print(error)"
        "\n    await node.publish('news', b'')\n    print('open')"
        "\n    await node.close(timeout=0)"
        "\n    await asyncio.wait(tasks)"
        "\n    [t.exception() for t in tasks]"
    )
    status, said, _errors = run("asyncio.run(main())", end)
    assert said.splitlines()[1:] == ["Cannot close a running event loop", "open"]
    assert status == 0
