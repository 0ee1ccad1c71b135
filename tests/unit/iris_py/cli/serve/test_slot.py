"""The place of a worker: which process has it, while others start, fail, leave and are in nobody's way."""

from __future__ import annotations

import asyncio
import errno
from typing import TYPE_CHECKING, TypeAlias

import pytest

from iris_py.cli.serve import slot as module
from iris_py.cli.serve.process import WorkerProcess
from iris_py.cli.serve.slot import WorkerSlot

if TYPE_CHECKING:
    import signal
    from collections.abc import Awaitable, Callable, Sequence

PATIENCE_S = 30.0


class FakeProcess:
    """A process that does what the test says."""

    def __init__(self, pid: int) -> None:
        loop = asyncio.get_running_loop()
        self.pid, self.began_ns, self.files = pid, pid, {f"file{pid}"}
        self.loaded: asyncio.Future[bool] = loop.create_future()
        self.ready: asyncio.Future[bool] = loop.create_future()
        self.ended: asyncio.Future[int] = loop.create_future()
        self.may_go = False
        self._leaving: asyncio.Task[None] | None = None

    @property
    def is_leaving(self) -> bool:
        return self._leaving is not None

    def go(self, _http: str) -> None:
        self.may_go = True

    def leave(self) -> asyncio.Task[None]:
        if self._leaving is None:
            self._leaving = asyncio.create_task(self._leave())
        return self._leaving

    def send(self, number: signal.Signals) -> None:
        raise AssertionError(number)

    def settle(self, *states: asyncio.Future[bool], is_so: bool) -> None:
        for each in states:
            if not each.done():
                each.set_result(is_so)

    def serve(self) -> None:
        self.settle(self.loaded, self.ready, is_so=True)

    def end(self, code: int) -> None:
        self.settle(self.loaded, self.ready, is_so=False)
        self.ended.set_result(code)

    async def _leave(self) -> None:
        await asyncio.wait((self.ended,))


class Scene:
    """A slot whose processes are fakes.

    Attributes:
        processes: Those that were started, in their order; an error in place of one is raised.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.processes: list[FakeProcess] = []
        self.errors: list[OSError] = []
        self.failed: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        monkeypatch.setattr(WorkerProcess, "start", self._start)

    def slot(self, *, is_reloading: bool = True, has_port: bool = False) -> WorkerSlot:
        return WorkerSlot(1, ["serve"], self.failed, is_reloading=is_reloading, has_port=has_port)

    def run(self, *, has_port: bool = False) -> WorkerSlot:
        """Return a slot that runs, and is reloading."""
        slot = self.slot(has_port=has_port)
        self.running = asyncio.create_task(slot.run())
        return slot

    async def _start(self, _command: Sequence[str], *, keeps_bytecode: bool) -> FakeProcess:
        if self.errors:
            raise self.errors.pop(0)
        self.processes.append(FakeProcess(len(self.processes) + 1))
        return self.processes[-1]

    async def process(self, number: int) -> FakeProcess:
        """Return the process of a number, when it has been started."""
        await until(lambda: len(self.processes) >= number)
        return self.processes[number - 1]


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not condition():  # noqa: ASYNC110 - many things are waited for here
            await asyncio.sleep(0)


Play: TypeAlias = "Callable[[Callable[[Scene], Awaitable[None]]], None]"


def holder(slot: WorkerSlot) -> object:
    """Return the process that has the place."""
    return slot.current


@pytest.fixture
def play(monkeypatch: pytest.MonkeyPatch) -> Play:
    def run(scene: Callable[[Scene], Awaitable[None]]) -> None:
        async def main() -> None:
            async with asyncio.timeout(PATIENCE_S):
                await scene(Scene(monkeypatch))
            for task in asyncio.all_tasks() - {asyncio.current_task()}:
                task.cancel()

        asyncio.run(main())

    monkeypatch.setattr(module, "BACK_OFF_MIN_S", 0.001)
    return run


def test_a_worker_that_cannot_be_started_now_is_started_later(play: Play, capsys: pytest.CaptureFixture[str]) -> None:
    async def scene(scene: Scene) -> None:
        scene.errors = [OSError(errno.EMFILE, "Too many open files"), OSError(errno.EAGAIN, "Resource temporarily unavailable")]
        running = asyncio.create_task(scene.slot(is_reloading=False).run())
        assert (await scene.process(1)).may_go
        assert not running.done()
        assert not scene.failed.done()

    play(scene)
    told = capsys.readouterr().err
    assert "worker 1 cannot be started: Too many open files; the next one starts in 0.001 s" in told
    assert "Resource temporarily unavailable; the next one starts in 0.002 s" in told


def test_a_worker_leaves_when_the_next_one_serves(play: Play) -> None:
    async def scene(scene: Scene) -> None:
        slot = scene.run()
        first = await scene.process(1)
        first.serve()
        replacing = asyncio.create_task(slot.replace())
        second = await scene.process(2)
        await until(lambda: second.may_go)
        assert not first.is_leaving
        assert holder(slot) is first
        second.serve()
        assert await replacing
        assert holder(slot) is second
        await until(lambda: first.is_leaving)
        assert slot.files == {"file2": 2}, "what only the old one was made of matters no more"

    play(scene)


def test_a_worker_stays_when_the_next_one_cannot_serve(play: Play, capsys: pytest.CaptureFixture[str]) -> None:
    async def scene(scene: Scene) -> None:
        slot = scene.run()
        first = await scene.process(1)
        first.serve()
        replacing = asyncio.create_task(slot.replace())
        (await scene.process(2)).end(2)
        assert not await replacing
        assert holder(slot) is first
        assert not first.is_leaving
        assert slot.files == {"file1": 1, "file2": 2}, "a change of what it was made of is another try"

    play(scene)
    told = capsys.readouterr().err
    assert "worker 1 of the changed files (process 2) ended with exit code 2; process 1 keeps running" in told


def test_a_worker_that_does_not_come_to_serve_gives_way_to_the_next_change(play: Play) -> None:
    async def scene(scene: Scene) -> None:
        slot = scene.run()
        first = await scene.process(1)
        first.serve()
        hanging = asyncio.create_task(slot.replace())
        second = await scene.process(2)
        hanging.cancel()
        await until(lambda: second.is_leaving)
        replacing = asyncio.create_task(slot.replace())
        await asyncio.sleep(0)
        assert len(scene.processes) == 2, "one more would be started at each change"
        second.end(-15)
        third = await scene.process(3)
        third.serve()
        assert await replacing
        assert holder(slot) is third

    play(scene)


def test_one_port_is_handed_over_when_the_next_one_is_loaded(play: Play) -> None:
    async def scene(scene: Scene) -> None:
        slot = scene.run(has_port=True)
        first = await scene.process(1)
        first.serve()
        replacing = asyncio.create_task(slot.replace())
        second = await scene.process(2)
        assert not first.is_leaving
        second.loaded.set_result(True)
        await until(lambda: first.is_leaving)
        replacing.cancel()  # the next change comes while the old one drains
        assert not second.may_go, "the port is not free yet"
        first.end(0)
        await until(lambda: second.may_go)
        assert holder(slot) is second, "or nobody would have the place if the change is broken"

    play(scene)


def test_a_worker_that_ends_while_the_one_before_it_drains_is_followed_at_once(
    play: Play, capsys: pytest.CaptureFixture[str]
) -> None:
    async def scene(scene: Scene) -> None:
        slot = scene.run()
        first = await scene.process(1)
        first.serve()
        replacing = asyncio.create_task(slot.replace())
        second = await scene.process(2)
        second.serve()
        assert await replacing
        second.end(-9)
        third = await scene.process(3)
        assert not first.ended.done()
        assert third.may_go
        assert slot.ends == 1

    play(scene)
    assert "worker 1 (process 2) was ended by SIGKILL; the next one starts in" in capsys.readouterr().err


def test_a_worker_that_never_served_ends_the_command_unless_a_change_can_help(play: Play) -> None:
    async def scene(scene: Scene) -> None:
        running = asyncio.create_task(scene.slot(is_reloading=False).run())
        (await scene.process(1)).end(2)
        await running
        assert await scene.failed == 2
        slot = scene.slot()
        waiting = asyncio.create_task(slot.run())
        (await scene.process(2)).end(2)
        await until(lambda: holder(slot) is None)
        replacing = asyncio.create_task(slot.replace())
        (await scene.process(3)).serve()
        assert await replacing
        assert slot.has_served.is_set()
        assert not waiting.done()

    play(scene)
