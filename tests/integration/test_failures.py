"""Handlers may raise whatever there is: the caller hears of it, the place is free, and the program goes on."""

from __future__ import annotations

import asyncio
import logging
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

import iris_py as iris
import iris_py.sync
from iris_py.api.handler_exceptions import PLACES_MAX, REPEATED_S, FailureLog, is_interrupt
from iris_py.logs import LINES_MAX
from tests.integration.conftest import PATIENCE_S, Loops, until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path


class Odd(BaseException):
    """Neither an error nor an interrupt."""


RAISED = [SystemExit, KeyboardInterrupt, Odd, GeneratorExit, asyncio.CancelledError]


def check(payload: bytes, kind: type[BaseException]) -> bytes:
    if payload == b"bad":
        raise kind("as you wish")
    return payload


class Raising(iris.Handler):
    def __init__(self, kind: type[BaseException]) -> None:
        self._kind = kind
        self.told: list[bytes] = []

    async def on_request(self, request: iris.Request) -> bytes:
        return check(request.payload, self._kind)

    async def on_broadcast(self, message: iris.Message) -> None:
        self.told.append(check(message.payload, self._kind))

    async def on_tunnel(self, tunnel: iris.Tunnel) -> None:
        await tunnel.send(check(await tunnel.receive(), self._kind))


class RaisingTogether(iris.Handler):
    def __init__(self, kind: type[BaseException]) -> None:
        self._kind = kind

    async def on_requests(self, requests: Sequence[iris.Request]) -> Sequence[bytes | Exception]:
        return [check(each.payload, self._kind) for each in requests]


def handlers(kind: type[BaseException]) -> dict[str, iris.Handler | Callable[[iris.Request], bytes]]:
    def answer(request: iris.Request) -> bytes:
        return check(request.payload, kind)

    return {"async": Raising(kind), "together": RaisingTogether(kind), "inline": answer, "thread": answer}


@pytest.mark.parametrize("kind", RAISED)
def test_whatever_a_handler_raises_is_answered_and_frees_its_place(loops: Loops, kind: type[BaseException]) -> None:
    async def main() -> None:
        async with iris.connect() as node:
            for name, handler in handlers(kind).items():
                async with node.join(name, handler, concurrency=2, inline=name == "inline"):
                    for _ in range(3):  # one more than there are places
                        with pytest.raises(iris.RemoteError) as caught:
                            await node.request(name, b"bad", timeout=PATIENCE_S)
                        assert (caught.value.type, caught.value.text) == (kind.__name__, "as you wish")
                    with pytest.raises(iris.RemoteError):
                        await node.request(name, b"bad", timeout=PATIENCE_S, idempotent=True)
                    answers = await node.survey(name, b"bad", timeout=PATIENCE_S)
                    assert [failure.type for failure in answers.failed] == [kind.__name__]
                    assert await node.request(name, b"good", timeout=PATIENCE_S) == b"good"

    loops.run(main())


@pytest.mark.parametrize("kind", RAISED)
def test_whatever_is_raised_for_broadcasts_tunnels_and_subscriptions_ends_nothing_else(
    loops: Loops, kind: type[BaseException]
) -> None:
    async def main() -> None:
        taken: list[bytes] = []

        def take(message: iris.Message) -> None:
            taken.append(check(message.payload, kind))

        async def take_async(message: iris.Message) -> None:
            taken.append(check(message.payload, kind))

        handler = Raising(kind)
        async with iris.connect() as node, node.join("them", handler, tunnels=1):
            for payload in (b"bad", b"good"):
                await node.broadcast("them", payload)
            await until(lambda: handler.told == [b"good"], "the second broadcast is handled")
            for _ in range(2):  # one more than there are places
                tunnel = await node.tunnel("them", timeout=PATIENCE_S)
                await tunnel.send(b"bad")
                with pytest.raises(iris.TunnelBroken) as caught:
                    await tunnel.receive()
                assert caught.value.type == kind.__name__
            async with node.subscribe("news", take), node.subscribe("news", take_async):
                for payload in (b"bad", b"good"):
                    await node.publish("news", payload)
                await until(lambda: taken == [b"good", b"good"], "both callbacks have the second message")

    loops.run(main())


@pytest.mark.parametrize("kind", RAISED[:3])
def test_the_loop_of_the_synchronous_api_lives_on(home: Path, kind: type[BaseException]) -> None:
    class Sync(iris_py.sync.Handler):
        def on_request(self, request: iris.Request) -> bytes:
            return check(request.payload, kind)

    def bad_chunks() -> Iterator[bytes]:
        yield b"good"
        raise kind

    with iris_py.sync.connect() as node:
        for handler in (Sync(), Raising(kind), lambda request: check(request.payload, kind)):
            with node.join("them", handler, concurrency=2):
                for _ in range(3):
                    with pytest.raises(iris.RemoteError):
                        node.request("them", b"bad", timeout=PATIENCE_S)
                assert node.request("them", b"good", timeout=PATIENCE_S) == b"good"
        with node.join("them", Raising(kind)):
            with pytest.raises((kind, iris.TunnelBroken)), node.tunnel("them") as tunnel:
                tunnel.send_chunks(bad_chunks())
            assert node.request("them", b"the loop lives", timeout=PATIENCE_S)


INTERRUPTED = """
import asyncio, os, signal, sys, time
import uvloop
import iris_py as iris

class Busy(iris.Handler):
    async def on_request(self, request):
        print("begun", flush=True)
        ends_at = time.monotonic() + 60
        while time.monotonic() < ends_at:  # the interpreter handles signals in here
            pass
        return b"not interrupted"

async def main():
    if sys.argv[2] == "exit":
        def leave(number, frame):
            sys.exit(7)
        signal.signal(signal.SIGINT, leave)
    elif sys.argv[2] == "default":
        signal.signal(signal.SIGINT, signal.default_int_handler)
    async with iris.connect() as node, node.join("busy", Busy()):
        print(await node.request("busy", b"", timeout=100), flush=True)

with asyncio.Runner(loop_factory=uvloop.new_event_loop if sys.argv[1] == "uvloop" else None) as runner:
    runner.run(main())
"""


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
@pytest.mark.parametrize(
    ("how", "signals", "code"), [("runner", 2, -signal.SIGINT), ("default", 1, -signal.SIGINT), ("exit", 1, 7)]
)
def test_an_interrupt_of_the_process_in_the_middle_of_a_handler_ends_it(
    home: Path, loop: str, how: str, signals: int, code: int
) -> None:
    process = subprocess.Popen(
        [sys.executable, "-u", "-c", INTERRUPTED, loop, how], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"begun\n"
        out = errors = b""
        while process.returncode is None:  # two signals that are not yet handled are one, so more are sent until it ends
            process.send_signal(signal.SIGINT)
            try:
                out, errors = process.communicate(timeout=1.0 if signals > 1 else PATIENCE_S)
            except subprocess.TimeoutExpired:
                assert 1 < signals < PATIENCE_S
                signals += 1
        assert process.returncode == code, errors.decode()
        assert out == b""
    finally:
        process.kill()
        process.wait()


def test_an_interrupt_is_told_from_what_a_handler_raises() -> None:
    def raised(function: Callable[[], object]) -> BaseException:
        try:
            function()
        except BaseException as exc:
            return exc
        raise AssertionError

    def leave(_number: int, _frame: object) -> None:
        sys.exit(3)

    assert not is_interrupt(raised(lambda: check(b"bad", KeyboardInterrupt)))
    assert not is_interrupt(raised(sys.exit))
    assert is_interrupt(raised(lambda: signal.raise_signal(signal.SIGINT)))
    before = signal.signal(signal.SIGUSR1, leave)
    try:
        assert is_interrupt(raised(lambda: signal.raise_signal(signal.SIGUSR1)))
    finally:
        signal.signal(signal.SIGUSR1, before)


# -- handlers that ask their own cluster


ASKED_BY_ITSELF = "The caller is itself a handler of 'them' and occupies a place while it waits"


@pytest.mark.parametrize(("queue_messages", "kind"), [(10, iris.RequestTimeout), (0, iris.Overloaded)])
def test_a_handler_that_waits_for_its_own_full_cluster_hears_so(
    loop: Loops, queue_messages: int, kind: type[iris.IrisError]
) -> None:
    async def main() -> None:
        async with iris.connect() as node:

            async def ask() -> iris.IrisError:
                error: iris.IrisError | None = None
                timeout_s = 0.05
                while not isinstance(error, kind):  # a busy machine may not hear in so little time that the member is full
                    timeout_s *= 4
                    with pytest.raises((iris.RequestTimeout, iris.Overloaded)) as caught:
                        await node.request("them", b"inner", timeout=timeout_s)
                    error = caught.value
                return error

            async def answer(_request: iris.Request) -> bytes:
                inner = await asyncio.gather(ask())  # in a task of its own
                errors.extend(inner)
                return b"done"

            errors: list[iris.IrisError] = []
            async with node.join("them", answer, concurrency=1, queue_messages=queue_messages):
                assert await node.request("them", b"outer", timeout=PATIENCE_S) == b"done"
                (error,) = errors
                assert isinstance(error, kind)
                assert error.from_handler  # type: ignore[attr-defined] # of both kinds
                assert ASKED_BY_ITSELF in str(error)

            async def wait(_request: iris.Request) -> bytes:
                await asyncio.sleep(PATIENCE_S)
                return b""

            async with node.join("slow", wait):
                with pytest.raises(iris.RequestTimeout) as caught:
                    await node.request("slow", b"", timeout=0.05)
                assert not caught.value.from_handler

    loop.run(main())


def test_so_does_one_of_the_synchronous_api(home: Path) -> None:
    def answer(_request: iris.Request) -> bytes:
        with pytest.raises(iris.RequestTimeout) as caught:
            node.request("them", b"inner", timeout=0.2)
        return str(caught.value).encode()

    with iris_py.sync.connect() as node, node.join("them", answer, concurrency=1):
        assert ASKED_BY_ITSELF in node.request("them", b"outer", timeout=PATIENCE_S).decode()


# -- what the log says


def test_a_failure_is_logged_as_an_error_with_its_place_and_traceback(loop: Loops, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with iris.connect() as node, node.join("them", Raising(ValueError)):
            for _ in range(5):
                with pytest.raises(iris.RemoteError):
                    await node.request("them", b"bad")

    with caplog.at_level(logging.WARNING, logger="iris_py"):
        loop.run(main())
    (record,) = [record for record in caplog.records if record.levelno == logging.ERROR]
    line = check.__code__.co_firstlineno + 2
    assert record.getMessage() == f"the handler of 'them' failed: ValueError: as you wish ({__file__}:{line}, in check)"
    assert record.exc_info


def fail_with(payload: bytes) -> None:
    raise type(f"Error{payload.decode()}", (Exception,), {})("noise")


def test_a_noisy_handler_hides_no_first_failure(loop: Loops, caplog: pytest.LogCaptureFixture) -> None:
    """Neither of another handler, nor at another place of its own."""

    class Ledger(iris.Handler):
        async def on_request(self, request: iris.Request) -> bytes:
            raise RuntimeError("the ledger is corrupt")

    class Noisy(iris.Handler):
        async def on_request(self, request: iris.Request) -> bytes:
            return check(request.payload, ValueError)

        async def on_broadcast(self, message: iris.Message) -> None:
            fail_with(message.payload)

    heard: list[bytes] = []

    def callback(message: iris.Message) -> None:
        heard.append(message.payload)
        fail_with(message.payload)

    async def main() -> None:
        async with (
            iris.connect() as node,
            node.join("payments", Ledger()),
            node.join("noisy", Noisy()),
            node.subscribe("news", callback=callback),
        ):
            for number in range(3 * LINES_MAX):
                await node.publish("news", str(number).encode())
                await node.broadcast("noisy", str(number).encode())
            await until(lambda: len(heard) == 3 * LINES_MAX)
            for cluster in ("payments", "noisy"):
                with pytest.raises(iris.RemoteError):
                    await node.request(cluster, b"bad", timeout=PATIENCE_S)

    with caplog.at_level(logging.ERROR, logger="iris_py"):
        loop.run(main())
    texts = [record.getMessage() for record in caplog.records]
    assert len([text for text in texts if "the callback of the subscription to 'news' failed" in text]) == LINES_MAX
    assert len([text for text in texts if "the handler of 'payments' failed: RuntimeError: the ledger" in text]) == 1
    assert len([text for text in texts if "the handler of 'noisy' failed: ValueError: as you wish" in text]) == 1


def test_the_text_of_a_failure_forges_no_line(loop: Loops, caplog: pytest.LogCaptureFixture) -> None:
    async def handler(request: iris.Request) -> bytes:
        raise ValueError(request.payload.decode())

    async def main() -> None:
        async with iris.connect() as node, node.join("them", handler):
            with pytest.raises(iris.RemoteError) as caught:
                await node.request("them", b"no\nCRITICAL the ledger is lost\x1b[2K", timeout=PATIENCE_S)
            assert caught.value.text == "no\nCRITICAL the ledger is lost\x1b[2K", "the caller has the text itself"

    with caplog.at_level(logging.ERROR, logger="iris_py"):
        loop.run(main())
    (record,) = caplog.records
    first, *others = logging.Formatter().format(record).split("\n")
    assert first.startswith(r"the handler of 'them' failed: ValueError: no\nCRITICAL the ledger is lost\x1b[2K (")
    assert others
    assert all(line.startswith("  ") and line.isprintable() for line in others)


def test_what_fails_again_and_again_is_logged_now_and_then(caplog: pytest.LogCaptureFixture) -> None:
    log = FailureLog("it")
    for number in range(100):
        log.log(ValueError(str(number)), number * 0.2)
    log.log(KeyError("another"), 20.0)
    assert [record.getMessage() for record in caplog.records] == [
        "it failed: ValueError: 0",
        f"it failed: ValueError: 50; 49 more like it in the {REPEATED_S:.0f} s before",
        "it failed: KeyError: 'another'",
    ]


def test_what_is_remembered_of_failures_is_bounded() -> None:
    log = FailureLog("it")
    for number in range(PLACES_MAX + 10):
        log.log(type(f"Error{number}", (Exception,), {})(), 0.0)
    assert len(log._logged) == PLACES_MAX
