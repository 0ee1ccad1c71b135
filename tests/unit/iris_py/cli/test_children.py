"""Child processes of a command: their lines, their errors and their end."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING

import pytest

from iris_py.cli.children import LAST_WORDS_BYTES, LINE_BYTES_MAX, Child, ChildGroup, run_all

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from pathlib import Path

#: Repeats each line until the end of its input, and then tells a file that it leaves.
ECHO = """
import sys
for line in sys.stdin:
    print(line, end="", flush=True)
open(sys.argv[1], "w").write("left")
"""
#: Says that it runs, and ignores the end of its input.
STUBBORN = "import signal; print('runs', flush=True); signal.pause()"


def run(main: Coroutine[object, object, None]) -> None:
    asyncio.run(asyncio.wait_for(main, 100))


def is_gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def test_lines_go_both_ways_and_a_child_leaves_with_the_end_of_its_input(tmp_path: Path) -> None:
    async def main() -> None:
        children = ChildGroup(leave_s=60)
        child = await children.start("-c", ECHO, str(tmp_path / "told"))
        await child.send(b"first\n")
        child.write(b"second\n")
        assert [await child.read_line(60), await child.read_line()] == [b"first\n", b"second\n"]
        assert os.getsid(child.pid) == child.pid, "Ctrl-C in the terminal does not reach it"
        await children.end(at_once=False)
        assert (tmp_path / "told").read_text() == "left"
        assert await child.wait() == 0
        assert is_gone(child.pid)
        child.kill()
        child.write(b"nobody reads\n")
        await child.send(b"nobody reads\n")
        assert await child.read_line() == b""

    run(main())


@pytest.mark.parametrize("at_once", [True, False])
def test_a_child_that_does_not_leave_is_killed(at_once: bool) -> None:
    async def main() -> None:
        children = ChildGroup(leave_s=3600 if at_once else 0.01)
        child = await children.start("-c", STUBBORN)
        assert await child.read_line() == b"runs\n"
        await children.end(at_once=at_once)
        assert await child.wait() == -9

    run(main())


def test_a_child_of_a_cancelled_command_is_killed() -> None:
    async def main() -> None:
        children = ChildGroup(leave_s=3600)
        child = await children.start("-c", STUBBORN)
        assert await child.read_line() == b"runs\n"
        ending = asyncio.create_task(children.end(at_once=False))
        await asyncio.sleep(0)  # it waits for the child to leave
        ending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await ending
        assert await child.wait() == -9

    run(main())


def test_the_end_of_the_standard_error_is_told() -> None:
    async def main() -> None:
        program = (
            "import sys; print('x' * 4000, 'the cause', chr(27), sep=chr(10), file=sys.stderr, flush=True); print(); input()"
        )
        child = await Child.start("-c", program)
        assert await child.read_line() == b"\n"
        words = child.last_words()
        assert words.startswith("xxx")
        assert "the cause" in words
        assert "\x1b" not in words
        assert len(words) <= LAST_WORDS_BYTES + 10
        child.kill()
        assert await child.wait() == -9
        assert child.last_words() == ""

    run(main())


def test_a_silent_child_an_unfinished_line_and_a_line_without_end() -> None:
    async def main() -> None:
        children = ChildGroup(leave_s=60)
        silent = await children.start("-c", "input()")
        with pytest.raises(TimeoutError):
            await silent.read_line(0.01)
        assert await (await children.start("-c", "print('unfinished', end='')")).read_line() == b""
        endless = await children.start("-c", f"print('x' * {2 * LINE_BYTES_MAX}, flush=True); input()")
        assert await endless.read_line() == b""
        assert await endless.wait() == -9
        await children.end(at_once=False)

    run(main())


def test_a_child_has_the_environment_directory_and_errors_that_are_given(tmp_path: Path) -> None:
    async def main() -> None:
        program = "import os, sys; print(os.getcwd(), os.environ['MARK']); sys.exit('an error')"
        with (tmp_path / "log").open("wb") as log:
            child = await Child.start("-c", program, environment={"MARK": "m"}, directory=str(tmp_path), errors=log)
            assert await child.read_line() == f"{tmp_path} m\n".encode()
            assert await child.wait() == 1
            assert child.last_words() == ""
        assert (tmp_path / "log").read_bytes() == b"an error\n"
        with pytest.raises(FileNotFoundError):
            await Child.start("-c", "", directory=str(tmp_path / "none"))

    run(main())


def test_the_first_failure_of_several_cancels_the_others() -> None:
    cancelled = []

    async def wait() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.append(True)
            raise

    async def fail() -> None:
        raise KeyError("first")

    async def main() -> None:
        with pytest.raises(KeyError, match="first"):
            await run_all([wait(), fail(), wait()])
        assert cancelled == [True, True]
        await run_all([])

    run(main())
