"""Topics between real processes."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import iris_py as iris
from iris_overlay.ids import NodeId
from tests.profiles import first_cases

if TYPE_CHECKING:
    from tests.integration.conftest import Loops

COUNT = 5_000
PUBLISHERS = 2


def test_publishers_in_other_processes_are_heard_completely_and_in_order(loop: Loops) -> None:
    script = Path(__file__).with_name("publisher.py")

    async def main() -> None:
        async with iris.connect() as node, node.subscribe("numbers.*", policy="block", queue_messages=50) as subscription:
            publishers = [
                await asyncio.create_subprocess_exec(
                    sys.executable,
                    script,
                    f"numbers.p{number}",
                    str(COUNT),
                    stdin=asyncio.subprocess.PIPE,
                    stdout=asyncio.subprocess.PIPE,
                )
                for number in range(PUBLISHERS)
            ]
            taken: dict[str, list[int]] = {}
            sources: dict[str, set[str]] = {}
            count = 0
            async for message in subscription:
                assert message.gap == 0
                taken.setdefault(message.topic, []).append(int(message.payload))
                sources.setdefault(message.topic, set()).add(message.source)
                count += 1
                if count == PUBLISHERS * COUNT:
                    break
            outputs = [await publisher.communicate(b"") for publisher in publishers]
            assert [int(out) for out, _ in outputs] == [1] * PUBLISHERS
            assert taken == {f"numbers.p{number}": list(range(COUNT)) for number in range(PUBLISHERS)}
            assert all(len(found) == 1 for found in sources.values())
            assert subscription.dropped == {}

    loop.run(main())


async def echo(request: iris.Request) -> bytes:
    return request.payload


@pytest.mark.parametrize("policy", ["drop_oldest", "block"])
def test_a_subscriber_that_is_stopped_holds_up_nobody_for_long_and_comes_back(loop: Loops, policy: str) -> None:
    script = Path(__file__).with_name("subscriber.py")
    padding = bytes(20_000)  # so the link to it is soon full

    async def main() -> None:
        number = 0
        taken: list[int] = []

        async def publish() -> int:
            nonlocal number
            number += 1
            return await node.publish("numbers.x", b"%d " % number + padding)

        def take(message: iris.Message) -> None:
            assert message.gap == 0
            taken.append(int(message.payload.split()[0]))

        async with iris.connect() as node, iris.connect() as other, other.subscribe("numbers.>", take):
            pipe = asyncio.subprocess.PIPE
            stopped = await asyncio.create_subprocess_exec(sys.executable, script, "numbers.x", policy, stdin=pipe, stdout=pipe)
            try:
                assert stopped.stdout is not None
                assert await stopped.stdout.readline() == b"ready\n"
                assert await publish() == 2
                stopped.send_signal(signal.SIGSTOP)
                while await publish() == 2:  # noqa: ASYNC110 - to publish is how it is seen
                    await asyncio.sleep(0)
                gone = number
                stopped.send_signal(signal.SIGCONT)
                while await publish() == 1:  # noqa: ASYNC110 - likewise
                    await asyncio.sleep(0.01)
                back = number
                for _ in range(50):
                    assert await publish() == 2
                out, _ = await stopped.communicate(b"%d" % number)
            finally:
                if stopped.returncode is None:
                    stopped.kill()
            await loop.until(lambda: len(taken) == number, "everything taken")
            assert taken == list(range(1, number + 1))
            numbers = [each for each, _gap in json.loads(out)]
            assert numbers == sorted(set(numbers)), "repeated or out of order"
            assert not set(numbers) & set(range(gone, back)), "it was in no view then"
            assert numbers[-51:] == list(range(back, number + 1))

    loop.run(main())


def check_gaps(taken: list[tuple[int, int]], published: int) -> None:
    """Each gap is the step of the numbers, so received and missed together are what was published since the first one."""
    last = taken[0][0] - 1
    for number, gap in taken:
        assert number == last + 1 + gap, f"{number} came after {last}, with a gap of {gap}"
        last = number
    assert last == published


@pytest.mark.parametrize("count", first_cases(1, [100, 700]))
@pytest.mark.parametrize("policy", ["drop_oldest", "block"])
def test_the_only_subscriber_is_told_how_much_it_missed_while_it_was_stopped(loop: Loops, policy: str, count: int) -> None:
    """It is stopped for 4 or 10 seconds: until it is in no view, and for some messages more."""
    script = Path(__file__).with_name("subscriber.py")

    async def main() -> None:
        number = 0

        async def publish() -> int:
            nonlocal number
            number += 1
            await asyncio.sleep(0.01)
            return await node.publish("numbers.x", b"%d" % number)

        async with iris.connect() as node:
            pipe = asyncio.subprocess.PIPE
            stopped = await asyncio.create_subprocess_exec(sys.executable, script, "numbers.x", policy, stdin=pipe, stdout=pipe)
            try:
                assert stopped.stdout is not None
                assert await stopped.stdout.readline() == b"ready\n"
                for _ in range(20):
                    assert await publish() == 1
                stopped.send_signal(signal.SIGSTOP)
                while await publish():
                    pass
                for _ in range(count):
                    assert await publish() == 0
                stopped.send_signal(signal.SIGCONT)
                while not await publish():
                    pass
                for _ in range(50):
                    await publish()
                out, _ = await stopped.communicate(b"%d" % number)
            finally:
                if stopped.returncode is None:
                    stopped.kill()
            taken = [(each, gap) for each, gap in json.loads(out)]
            check_gaps(taken, number)
            assert sum(gap for _number, gap in taken) >= count

    loop.run(main())


def test_a_subscriber_is_told_how_much_it_missed_when_the_publisher_was_stopped(loop: Loops) -> None:
    script = Path(__file__).with_name("ticker.py")

    async def main() -> None:
        taken: list[tuple[int, int]] = []
        source = ""

        def take(message: iris.Message) -> None:
            nonlocal source
            taken.append((int(message.payload), message.gap))
            source = message.source

        def is_linked() -> bool:
            return node._core.peers.find(NodeId(bytes.fromhex(source))) is not None

        async with iris.connect() as node, node.join("echo", echo), node.subscribe("numbers.x", take):
            pipe = asyncio.subprocess.PIPE
            stopped = await asyncio.create_subprocess_exec(sys.executable, script, "numbers.x", stdin=pipe, stdout=pipe)
            try:
                await loop.until(lambda: len(taken) >= 50, "the publisher publishes")
                stopped.send_signal(signal.SIGSTOP)
                await loop.until(lambda: not is_linked(), "the publisher is given up")
                stopped.send_signal(signal.SIGCONT)
                heard = len(taken)
                await loop.until(lambda: len(taken) >= heard + 50, "the publisher is heard again")
                out, _ = await stopped.communicate(b"")
            finally:
                if stopped.returncode is None:
                    stopped.kill()
            await loop.until(lambda: taken[-1][0] == int(out), "everything taken")
            check_gaps(taken, int(out))

    loop.run(main())
