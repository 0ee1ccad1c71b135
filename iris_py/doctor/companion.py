"""The network of a running node, for examinations by the program of the node: a doctor's node starts beside the first one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast

from iris_py.api.runtime import runtime_of
from iris_py.config import companion_config
from iris_py.doctor.check import Subject
from iris_py.doctor.examination import CLUSTER_CHECK, NETWORK_CHECKS, examine
from iris_py.doctor.network_surroundings import NetworkSurroundings
from iris_py.doctor.prober_node import start_prober

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence

    from iris_py.api.node import Node
    from iris_py.config import Config
    from iris_py.doctor.check import DoctorCheck
    from iris_py.doctor.examination import Examined
    from iris_py.doctor.prober_node import Prober
    from iris_py.doctor.surroundings import Surroundings

__all__ = ["CompanionSurroundings", "examine_network"]

#: Members of one cluster that are asked. Too small: the one at fault may be missing; too large: an examination of a large
#: cluster disturbs the network.
MEMBERS_MAX: Final = 256
#: Ends the label of the doctor's node, after the label of the first node.
DOCTOR_SUFFIX: Final = "-doctor"


class CompanionSurroundings(NetworkSurroundings):
    """Observes the network of a running node.

    Args:
        node: The running node.
    """

    def __init__(self, node: Node) -> None:
        super().__init__(MEMBERS_MAX)
        self._node = node

    def settings(self) -> Config:
        return runtime_of(self._node).config

    async def _open_prober(self) -> Prober:
        runtime = runtime_of(self._node)
        return await start_prober(companion_config(runtime.config, runtime.listened, DOCTOR_SUFFIX), runtime.keyring)

    def _is_on_own_port(self) -> bool:
        return False


async def examine_network(
    surroundings: NetworkSurroundings, clusters: Sequence[str], tell: Callable[[DoctorCheck, int, int], None]
) -> AsyncIterator[tuple[str, Examined]]:
    """Execute the checks that need no machine, and then the check of each cluster; yield the cluster and the finding.

    Args:
        surroundings: The network.
        clusters: The names of the clusters.
        tell: Called before each check, with the check, its number, and the number of all checks.
    """
    known = cast("Surroundings", surroundings)  # the checks ask for nothing of the machine
    count = len(NETWORK_CHECKS) + len(clusters)
    names = {check.name for check in NETWORK_CHECKS}
    async for examined in examine(
        Subject(known), names, lambda check, number, _count: tell(check, number, count), NETWORK_CHECKS
    ):
        yield "", examined
    for number, cluster in enumerate(clusters, len(NETWORK_CHECKS) + 1):
        subject = Subject(known, cluster)
        tell(CLUSTER_CHECK, number, count)
        async for examined in examine(subject, {CLUSTER_CHECK.name}, checks=(CLUSTER_CHECK,)):
            yield cluster, examined
