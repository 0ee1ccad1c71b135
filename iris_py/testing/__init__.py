"""Test programs that use Iris, and Iris itself: real nodes, or cores alone, on a simulated network under a virtual clock.

* :class:`NodeSimulation`: complete nodes, as an application holds them. Start here.
* :class:`MemoryNetwork`: the network that they run on; any node takes it in place of sockets.
* :class:`VirtualLoop` and :func:`run`: an event loop whose clock jumps instead of waiting.
* :class:`OverlaySimulation`: overlays without nodes around them, in larger numbers, with :class:`Faults`.
"""

from iris_py.testing.clock import ClockError, DeadlockError, LimitError, VirtualLoop, run
from iris_py.testing.network import MemoryHost, MemoryNetwork, Record
from iris_py.testing.nodes import NodeSimulation
from iris_py.testing.overlay_wires import Faults
from iris_py.testing.simulation import OverlaySimulation

__all__ = [
    "ClockError",
    "DeadlockError",
    "Faults",
    "LimitError",
    "MemoryHost",
    "MemoryNetwork",
    "NodeSimulation",
    "OverlaySimulation",
    "Record",
    "VirtualLoop",
    "run",
]
