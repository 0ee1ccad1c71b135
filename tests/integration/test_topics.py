"""Topics between real processes."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import iris_py as iris

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
