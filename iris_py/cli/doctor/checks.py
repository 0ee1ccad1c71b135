"""All checks of `iris doctor`, in the order of execution: a check follows its prerequisites."""

from __future__ import annotations

from typing import Final

from iris_py.cli.doctor import answered, clouds, configured, connected, disks, machine, parts, serving
from iris_py.cli.doctor.check import Check

#: The prerequisites for starting a node to examine the network.
_START: Final = ("config", "secret")
#: The prerequisites for querying other nodes.
_PEERS: Final = (*_START, "discovery", "seeds", "seed-secret", "other-network")

CHECKS: Final = (
    Check("config", "the settings", configured.settings),
    Check("secret-file", "the permissions of secret files", configured.secret_file, ("config",)),
    Check("secret", "the secrets", configured.secret, ("config", "secret-file"), limit_s=35.0),
    Check("state", "the state directory", configured.state, _START),
    Check("port", "the port to listen on", configured.port, _START, limit_s=15.0),
    Check("listen", "the address to listen on", configured.listen, ("config",)),
    Check("discovery", "the discovery of other nodes", configured.discovery, ("config",)),
    Check("limits", "descriptors and threads", machine.limits),
    Check("processor", "withheld processor time", machine.processor),
    Check("disk", "free disk space", disks.disk, ("config",)),
    Check("seeds", "dialling the seeds", connected.seeds, _START, limit_s=15.0),
    Check("seed-secret", "the secret that seeds hold", connected.seed_secret, _START, limit_s=15.0),
    Check("other-network", "other networks on this segment", connected.other_network, (*_START, "seed-secret"), 15.0),
    Check("udp", "datagrams to other nodes and back", connected.datagrams, ("listen", *_PEERS)),
    Check("mtu", "large datagrams to other nodes and back", connected.large_datagrams, ("listen", *_PEERS, "udp")),
    Check("dial-back", "dials from other nodes", connected.dial_back, ("port", "listen", *_PEERS)),
    Check("clock", "the clocks of other nodes", answered.clock, _PEERS),
    Check("versions", "the versions of other nodes", answered.versions, _PEERS),
    Check("generations", "the secret generations of other nodes", answered.generations, _PEERS),
    Check("stalls", "stalled event loops", answered.stalls, _PEERS),
    Check("ring", "the ring", answered.ring, _PEERS, limit_s=15.0),
    Check("parts", "nodes that died together", parts.parts, _PEERS),
    Check("clouds", "the cloud links", clouds.clouds, _PEERS, limit_s=15.0),
    Check("cluster", "the members of the cluster", serving.cluster, _PEERS, limit_s=15.0),
)

NAMES: Final = tuple(check.name for check in CHECKS)
