"""The two clouds of `iris demo --federation`: their names, their rules, and the schedule of kills."""

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

#: The module of a gateway process.
GATEWAY_PROGRAM: Final = "iris_py.cli.demo.federation_gateway"
#: The cloud that sends the requests (near).
NEAR: Final = "us"
#: The cloud whose cluster counts (far).
FAR: Final = "eu"
#: The cluster's name in the far cloud, and the name under which it is exported.
INSIDE: Final = "token-counters"
OUTSIDE: Final = "counters"
#: Number of gateways of each cloud. The last gateway of each cloud is killed.
GATEWAYS: Final = 2
#: Each kill happens when this fraction of the files has been counted.
NEAR_GATEWAY_KILL_AT: Final = 0.3
MEMBER_KILL_AT: Final = 0.45
FAR_GATEWAY_KILL_AT: Final = 0.6


def network_of(cloud: str) -> str:
    """Return the name of the network of a cloud."""
    return f"demo-{cloud}"
