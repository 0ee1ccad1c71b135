"""The two clouds of `iris demo --federation`: their names, their rules, and what is killed when."""

from __future__ import annotations

from typing import Final

__all__ = [
    "FAR",
    "FAR_GATEWAY_KILL_AT",
    "GATEWAYS",
    "GATEWAY_PROGRAM",
    "INSIDE",
    "MEMBER_KILL_AT",
    "NEAR",
    "NEAR_GATEWAY_KILL_AT",
    "OUTSIDE",
    "network_of",
]

#: The module that a gateway process runs.
GATEWAY_PROGRAM: Final = "iris_py.cli.demo.federation_gateways"
#: The cloud of the job, as the other one calls it.
NEAR: Final = "us"
#: The cloud of the cluster.
FAR: Final = "eu"
#: The cluster in its own cloud, and as it is exported.
INSIDE: Final = "token-counters"
OUTSIDE: Final = "counters"
#: Gateways of each cloud. The last one of each is killed.
GATEWAYS: Final = 2
#: Parts of the files after which each is killed.
NEAR_GATEWAY_KILL_AT: Final = 0.3
MEMBER_KILL_AT: Final = 0.45
FAR_GATEWAY_KILL_AT: Final = 0.6


def network_of(cloud: str) -> str:
    """Return the name of the network of a cloud."""
    return f"demo-{cloud}"
