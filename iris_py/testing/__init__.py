"""Test programs that use Iris, and Iris itself: real nodes, or cores alone, on a simulated network with a virtual clock.

* :class:`VirtualNetwork`: nodes as applications use them, and faults. Start here; docs/testing.md has examples.
* :class:`VirtualFederation`: several clouds of such nodes, joined by gateways over long-distance lines.
* :class:`ShadowDisk`: files of :func:`iris_py.open_streams` on which SIGKILL is a loss of power.
* ``iris_py.testing.fixtures``: both as pytest fixtures, and isolated networks on real sockets.
* :func:`run` and :class:`VirtualLoop`: an event loop whose clock jumps instead of waiting.

The tools for testing Iris itself offer more control, and change more often:

* :class:`NodeSimulation`: the same nodes, with their hosts, and a hash of every byte on the wire.
* :class:`MemoryNetwork`: the simulated network below; any node accepts it in place of sockets.
* :class:`OverlaySimulation`: larger networks of overlays without nodes, with :class:`Faults`.
"""

from iris_py.testing.clock import ClockError, DeadlockError, LimitError, VirtualLoop, run
from iris_py.testing.cores.overlay import OverlaySimulation
from iris_py.testing.cores.overlay_wires import Faults
from iris_py.testing.federation import VirtualFederation
from iris_py.testing.network import MemoryHost, MemoryNetwork
from iris_py.testing.nodes import NodeSimulation
from iris_py.testing.shadow_disk import ShadowDisk
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
    "ShadowDisk",
    "Tap",
    "VirtualFederation",
    "VirtualLoop",
    "VirtualNetwork",
    "run",
]
