"""All checks of `iris doctor`, in the order of execution: a check follows its prerequisites."""

from __future__ import annotations

from typing import Final

from iris_py.cli.doctor import answers, clouds, cluster, configuration, connectivity, disks, machine, partition
from iris_py.cli.doctor.check import DoctorCheck

#: The checks before the doctor's node can start, which examines the network.
_START: Final = ("config", "secret")
#: The checks before other nodes can be queried.
_PEERS: Final = (*_START, "discovery", "seeds", "seed-secret", "other-network")

CHECKS: Final = (
    DoctorCheck("config", "the settings", configuration.settings),
    DoctorCheck("secret-file", "the permissions of secret files", configuration.secret_file, ("config",)),
    DoctorCheck("secret", "the secrets", configuration.secret, ("config", "secret-file"), limit_s=35.0),
    DoctorCheck("state", "the state directory", configuration.state, _START),
    DoctorCheck("port", "the port to listen on", configuration.port, _START, limit_s=15.0),
    DoctorCheck("listen", "the address to listen on", configuration.listen, ("config",)),
    DoctorCheck("discovery", "the discovery of other nodes", configuration.discovery, ("config",)),
    DoctorCheck("limits", "descriptors and threads", machine.limits),
    DoctorCheck("processor", "withheld processor time", machine.processor),
    DoctorCheck("disk", "free disk space", disks.disk, ("config",)),
    DoctorCheck("seeds", "dialling the seeds", connectivity.seeds, _START, limit_s=15.0),
    DoctorCheck("seed-secret", "the secret that seeds hold", connectivity.seed_secret, _START, limit_s=15.0),
    DoctorCheck("other-network", "other networks on this segment", connectivity.other_network, (*_START, "seed-secret"), 15.0),
    DoctorCheck("udp", "datagrams to other nodes and back", connectivity.datagrams, ("listen", *_PEERS)),
    DoctorCheck("mtu", "large datagrams to other nodes and back", connectivity.large_datagrams, ("listen", *_PEERS, "udp")),
    DoctorCheck("dial-back", "dials from other nodes", connectivity.dial_back, ("port", "listen", *_PEERS)),
    DoctorCheck("clock", "the clocks of other nodes", answers.clock, _PEERS),
    DoctorCheck("versions", "the versions of other nodes", answers.versions, _PEERS),
    DoctorCheck("generations", "the secret generations of other nodes", answers.generations, _PEERS),
    DoctorCheck("stalls", "stalled event loops", answers.stalls, _PEERS),
    DoctorCheck("ring", "the ring", answers.ring, _PEERS, limit_s=15.0),
    DoctorCheck("parts", "nodes that died together", partition.parts, _PEERS),
    DoctorCheck("clouds", "the cloud links", clouds.clouds, _PEERS, limit_s=15.0),
    DoctorCheck("cluster", "the members of the cluster", cluster.cluster, _PEERS, limit_s=15.0),
)

NAMES: Final = tuple(check.name for check in CHECKS)
