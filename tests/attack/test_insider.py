"""An insider, who holds the network secret and speaks the wire format as it likes, against real nodes (docs/security.md).

Each attack is repeated while honest nodes work; they have to go on, and everything has to be whole when it is over.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.attack.insider import (
    ATTACKS,
    BODY_BYTES,
    DIALS_MAX,
    EMPTY,
    ENTRIES_MAX,
    FRAGMENT,
    FRAGMENT_BYTES,
    FRAGMENT_END,
    WHOLE_LIMIT_S,
    WHOLE_PATIENCE_S,
    Attack,
    Honest,
    Insider,
    Work,
    attack_both,
    sizes_of,
)
from tests.attack.recorder import linked
from tests.wire.client import UNICAST

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.integration.conftest import Loops


@pytest.mark.timeout(WHOLE_LIMIT_S)
@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.__name__)
def test_an_insider_breaks_nothing_for_good(loop: Loops, dials: Callable[[], int], attack: Attack) -> None:
    async def main() -> None:
        honest = Honest()
        async with honest.connect() as member, honest.connect(member.address) as caller:
            published: list[bytes] = []
            handler = Work(honest.broadcasts)
            async with (
                member.join("echo", handler),
                member.join("vault", handler),
                member.subscribe("numbers.>", lambda message: published.append(message.payload)),
            ):
                await caller.members("vault")
                await honest.check(member, caller)
                before, dialled = {node: sizes_of(node) for node in (member, caller)}, dials()
                await attack_both((member, caller), attack)
                await honest.become_whole(loop, member, caller)
                assert dials() - dialled <= DIALS_MAX
                assert not set(published) & {b"x" * 100}
                for node in (member, caller):
                    assert sizes_of(node) - before[node] <= ENTRIES_MAX, node._core.overlay.table_sizes()

    loop.run(main(), patience_s=WHOLE_PATIENCE_S)


@pytest.mark.timeout(WHOLE_LIMIT_S)
@pytest.mark.parametrize("is_finished", [True, False], ids=["finished", "left unfinished"])
def test_the_largest_body_full_of_empty_messages_stops_nobody(loop: Loops, is_finished: bool) -> None:
    async def main() -> None:
        honest = Honest()
        async with honest.connect() as member, honest.connect(member.address) as caller:
            handler = Work(honest.broadcasts)
            await member.join("echo", handler)
            await member.join("vault", handler)
            await member.subscribe("numbers.>", lambda _message: None)
            await honest.check(member, caller)
            async with linked(Insider(member, caller), member) as attacker:
                packet = bytes((UNICAST,)) + attacker.packet(EMPTY * (BODY_BYTES // len(EMPTY)), 1, 0)
                answers = 0
                for start in range(0, len(packet), FRAGMENT_BYTES):
                    is_last = is_finished and start + FRAGMENT_BYTES >= len(packet)
                    attacker.send_frame(FRAGMENT_END if is_last else FRAGMENT, packet[start : start + FRAGMENT_BYTES])
                    await attacker._writer.drain()
                    if start % (64 * FRAGMENT_BYTES) == 0:
                        assert await caller.request("echo", b"between", timeout=10.0, idempotent=True) == b"between"
                        answers += 1
                assert answers == len(packet) // (64 * FRAGMENT_BYTES) + 1
                if is_finished:
                    await loop.until(lambda: member.statistics().drops.get("malformed", 0), "it was looked at")
                    assert member.statistics().drops == {"malformed": 1}, "none of the messages was handled"
            await honest.become_whole(loop, member, caller)

    loop.run(main(), patience_s=WHOLE_PATIENCE_S)
