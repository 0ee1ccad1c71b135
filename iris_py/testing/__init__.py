"""Test programs that use Iris, and Iris itself: real nodes, or cores alone, on a simulated network under a virtual clock.

* :class:`VirtualNetwork`: nodes as an application holds them, and faults. Start here; docs/testing.md has examples.
* :class:`VirtualFederation`: several clouds of such nodes, joined by gateways over long lines.
* ``iris_py.testing.fixtures``: the same, and networks on real sockets that do not meet, as fixtures of pytest.
* :func:`run` and :class:`VirtualLoop`: an event loop whose clock jumps instead of waiting.

What Iris itself is tested with has more handles, and changes more easily:

* :class:`NodeSimulation`: the same nodes, with their hosts, and a hash of every byte on the wire.
* :class:`MemoryNetwork`: the network that they run on; any node takes it in place of sockets.
* :class:`OverlaySimulation`: overlays without nodes around them, in larger numbers, with :class:`Faults`.
"""

from iris_py.testing.clock import ClockError, DeadlockError, LimitError, VirtualLoop, run
from iris_py.testing.cores.overlay import OverlaySimulation
from iris_py.testing.cores.overlay_wires import Faults
from iris_py.testing.federation import VirtualFederation
from iris_py.testing.network import MemoryHost, MemoryNetwork
from iris_py.testing.nodes import NodeSimulation
from iris_py.testing.sites import Record, Tap
from iris_py.testing.virtual import VirtualNetwork

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
    "Tap",
    "VirtualFederation",
    "VirtualLoop",
    "VirtualNetwork",
    "run",
]
