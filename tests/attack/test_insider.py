"""An insider, who holds the network secret and speaks the wire format as it likes, against real nodes (docs/security.md).

Each attack is repeated while honest nodes work; they have to go on, and everything has to be whole when it is over.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.attack.insider import ATTACKS, DIALS_MAX, ENTRIES_MAX, Attack, Honest, Work, attack_both, sizes_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.integration.conftest import Loops


@pytest.mark.timeout(180)
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

    loop.run(main(), patience_s=150)
