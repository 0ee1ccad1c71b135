"""Ways to find the nodes of a network by asking for roots of keys: all of them, round the ring, or a few, by chance.

Roots may lie about themselves and their neighbours, and any node on the way of a question may answer in place of the root. So a
step of a walk is never much shorter or longer than the density of the ring says, and nothing that is said makes a walk endless.
A node that is made up is asked later, and does not answer.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, TypeAlias

from iris_overlay.ids import ID_BYTES, RING, clockwise, position
from iris_overlay.ring.config import PastryConfig
from iris_py.observe.reports import Size, size_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from iris_overlay.events import RootLocated
    from iris_overlay.ids import NodeId
    from iris_overlay.messages import NodeInfo
    from iris_security import Entropy

#: Asks for the root of a key; None if no answer came.
Locate: TypeAlias = "Callable[[bytes], Awaitable[RootLocated | None]]"

#: Neighbours that a node has in a network that is large enough.
LEAVES: Final = 2 * PastryConfig().leaf_half
#: Parts of the ring that are walked side by side; each of so many nodes at least.
STRANDS_MAX: Final = 16
STRAND_NODES: Final = 64
#: How much of the usual way a step of a walk goes at least and at most, whatever a root says.
STEP_SHARE_MIN: Final = 1 / 16
STEP_SHARE_MAX: Final = 4
#: Questions in a row without an answer after which a part of the ring is given up. Too small: two deaths end a walk; too large:
#: whoever is cut off from the network waits for long.
SILENT_MAX: Final = 4


async def walk(
    locate: Locate, local: NodeInfo, leaves: Sequence[NodeInfo], size: int, found_max: int
) -> tuple[list[NodeInfo], bool]:
    """Find every other node by going round the ring: each root names its neighbours on either side.

    Args:
        locate: Asks for a root.
        local: The node that asks.
        leaves: Its own neighbours.
        size: About how many nodes there are.
        found_max: How many nodes are enough.

    Returns:
        The nodes, and whether the way round had no gap.
    """
    found = {info.id: info for info in (local, *leaves)}
    is_whole = True
    if len(leaves) >= LEAVES:
        strands = max(1, min(STRANDS_MAX, size // STRAND_NODES))
        length = -(-RING // strands)
        starts = (position(local.id) + strand * length for strand in range(strands))
        whole = await asyncio.gather(*(_walk_strand(locate, start, length, size, found, found_max) for start in starts))
        is_whole = all(whole)
    del found[local.id]
    return list(found.values()), is_whole


async def _walk_strand(
    locate: Locate, start: int, length: int, size: int, found: dict[NodeId, NodeInfo], found_max: int
) -> bool:
    """Find the nodes of a part of the ring. Each question is for the last neighbour that the root before has named."""
    usual = max(1, RING * (LEAVES // 2) // size)
    gone, silent, is_whole = 0, 0, True
    while gone < length:
        if len(found) >= found_max or silent >= SILENT_MAX:
            return False
        place = (start + gone) % RING
        located = await locate(place.to_bytes(ID_BYTES, "big"))
        if located is None:
            is_whole, silent = False, silent + 1
            gone += usual
            continue
        silent = 0
        at, leaves = position(located.root.id), located.leaves[:LEAVES]
        found.update((info.id, info) for info in (located.root, *leaves))
        ways = sorted(clockwise(at, position(leaf.id)) for leaf in leaves)
        behind = clockwise(at, place)  # the root may lie on either side of the key
        step = (ways[(len(ways) - 1) // 2] if ways else usual) - (behind if behind < RING // 2 else behind - RING)
        gone += round(min(max(step, usual * STEP_SHARE_MIN), usual * STEP_SHARE_MAX))
    return is_whole


async def draw(locate: Locate, local: NodeInfo, count: int, entropy: Entropy) -> tuple[list[NodeInfo], Size] | None:
    """Draw other nodes by chance, each as likely as any other (:mod:`iris_py.observe.reports`).

    Args:
        locate: Asks for a root.
        local: The node that asks.
        count: How many to draw; fewer are drawn if one is drawn twice, or answers do not come.
        entropy: Randomness.

    Returns:
        The nodes, and how many others there are; None if no answer came.
    """
    answers = await asyncio.gather(*(locate(entropy(ID_BYTES)) for _ in range(count)))
    located = [answer for answer in answers if answer is not None]
    if not located:
        return None
    drawn: dict[NodeId, NodeInfo] = {}
    for each in located:
        near = [info for info in (each.root, *each.leaves) if info.id != local.id and info.id not in drawn]
        if near:
            chosen = near[int.from_bytes(entropy(8), "big") % len(near)]
            drawn[chosen.id] = chosen
    size = size_of([(each.root, each.leaves[:LEAVES]) for each in located], LEAVES)
    return list(drawn.values()), Size(max(0.0, size.nodes - 1), size.deviation)
