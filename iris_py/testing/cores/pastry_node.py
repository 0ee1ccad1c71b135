"""One node of a simulated ring, with the simulation's bookkeeping."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from iris_overlay.ids import NodeId
    from iris_overlay.messages import NodeInfo
    from iris_overlay.ring.pastry import Pastry


class SimulatedPastry:
    """A node of a simulated ring: its ring core, its links, and data for measurements."""

    def __init__(self, index: int, info: NodeInfo, pastry: Pastry, where: tuple[float, float], started_at: float) -> None:
        self.index = index
        self.info = info
        self.pastry = pastry
        self.where = where
        self.started_at = started_at
        self.active_at: float | None = None
        self.is_up = True
        self.stopped_at = float("inf")
        self.side = 0
        self.is_dialable = True
        self.is_silent = False  # The node ended without a sign, and dials to its host are not refused.
        self.has_left = False
        self.to_measure: list[NodeId] = []
        # By peer: the arrival time of the last message, to keep the order of a link.
        self.links: dict[NodeId, float] = {}
        self.dialling: dict[NodeId, list[bytes]] = {}
        self.remembered: dict[NodeId, NodeInfo] = {}
        self.armed_at = float("inf")
