"""Members of a group in processes of their own, which are killed, stopped and ended under load."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import iris_py as iris
from tests.integration.conftest import until
from tests.standstills import STANDSTILL

if TYPE_CHECKING:
    from iris_py.observe.statistics import ShareStatistics
    from tests.integration.conftest import Loops

MEMBERS = 4


def taken(path: Path) -> list[int]:
    return [int(line) for line in path.read_text().split("\n") if line] if path.exists() else []


def test_members_that_are_killed_stopped_and_ended_take_nothing_twice_and_lose_only_what_is_counted(
    loop: Loops, tmp_path: Path
) -> None:
    script = Path(__file__).with_name("group_member.py")
    paths = [tmp_path / f"member{number}" for number in range(MEMBERS)]

    async def main() -> None:
        async with iris.connect() as node:
            members = []
            for path in paths:
                process = await asyncio.create_subprocess_exec(
                    sys.executable, script, str(path), stdout=asyncio.subprocess.PIPE
                )
                members.append(process)
                assert process.stdout is not None
                assert await process.stdout.readline() == b"ready\n"
            published, is_over = 0, False

            async def load() -> None:
                nonlocal published
                while not is_over:
                    await node.publish("orders.new", b"%d" % published)
                    published += 1
                    await asyncio.sleep(0.001)

            task = asyncio.create_task(load())
            await until(lambda: all(len(taken(path)) > 50 for path in paths), "work for all")
            killed, ended, stopped, last = members
            killed.kill()
            ended.terminate()
            stopped.send_signal(signal.SIGSTOP)
            assert await ended.wait() == 0
            await killed.wait()
            before = len(taken(paths[3]))
            await until(lambda: len(taken(paths[3])) > before + 300, "the last one goes on")
            stopped.send_signal(signal.SIGCONT)
            before = len(taken(paths[2]))
            await until(lambda: len(taken(paths[2])) > before + 100, "the stopped one goes on")
            is_over = True
            await task

            def share() -> ShareStatistics:
                return node.statistics().shares["workers"]

            await until(lambda: not share().outstanding, "all is taken or lost")
            for process in (stopped, last):
                process.terminate()
                assert await process.wait() == 0
            seen = Counter(number for path in paths for number in taken(path))
            assert max(seen.values()) == 1
            assert len(seen) + share().lost >= published
            assert share().given == published
            for path in paths:
                assert taken(path) == sorted(taken(path))

    loop.run(main())


async def wait_until_subscribed(command: asyncio.subprocess.Process) -> None:
    assert command.stderr is not None
    while STANDSTILL.encode() in (line := await command.stderr.readline()):
        pass
    assert b"group 'billing'" in line


def test_the_command_shares_messages_and_prints_the_rest_at_its_end(loop: Loops) -> None:
    command = [sys.executable, "-m", "iris_py", "subscribe", "orders.>", "--group", "billing"]

    async def main() -> None:
        async with iris.connect() as node:
            members = []
            for _ in range(2):
                process = await asyncio.create_subprocess_exec(
                    *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
                )
                await wait_until_subscribed(process)
                members.append(process)
            for number in range(200):
                assert await node.publish("orders.new", b"%d" % number) == 1
                await asyncio.sleep(0.001)
            printed = []
            for process in members:
                process.send_signal(signal.SIGTERM)
                out, _error = await process.communicate()
                assert process.returncode == 0
                printed.append([int(line.split()[1]) for line in out.splitlines()])
            assert all(printed)
            assert sorted(number for its in printed for number in its) == list(range(200))

    loop.run(main())


def test_the_command_that_ends_after_some_messages_counts_the_others_as_lost(loop: Loops) -> None:
    command = [sys.executable, "-m", "iris_py", "subscribe", "orders.>", "--group", "billing", "--count", "5"]

    async def main() -> None:
        async with iris.connect() as node:
            process = await asyncio.create_subprocess_exec(
                *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
            )
            await wait_until_subscribed(process)
            await node.publish_many("orders.new", [b"%d" % number for number in range(50)])
            out, _error = await process.communicate()
            assert [int(line.split()[1]) for line in out.splitlines()] == list(range(5))
            await until(lambda: not node.statistics().shares["billing"].outstanding, "all is taken or lost")
            share = node.statistics().shares["billing"]
            assert (share.taken, share.lost) == (5, 45)

    loop.run(main())
