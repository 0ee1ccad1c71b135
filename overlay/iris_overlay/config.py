"""Every number that the timing and the size of an overlay depend on, with the cost of too small and too large."""

from __future__ import annotations

from dataclasses import dataclass, field

from iris_overlay.detector.config import DetectorConfig
from iris_overlay.groups.config import GroupConfig
from iris_overlay.peers.config import ContactsConfig
from iris_overlay.ring.config import PastryConfig


@dataclass(frozen=True, slots=True)
class OverlayConfig:
    """Configure an overlay. The defaults suit one machine as well as a data centre."""

    ring: PastryConfig = field(default_factory=PastryConfig)
    """The ring."""

    detector: DetectorConfig = field(default_factory=DetectorConfig)
    """The failure detector."""

    groups: GroupConfig = field(default_factory=GroupConfig)
    """Memberships, views and trees."""

    contacts: ContactsConfig = field(default_factory=ContactsConfig)
    """Links on demand."""

    dials_max: int = 16
    """Dials of the search under way at once. Too small: a network behind dead addresses is found slowly. Too large: a start of
    many nodes at once overruns the accept queues, and the handshakes starve each other."""

    search_dials_max: int = 4
    """The same while this node is in no ring: one contact is enough to join, and others start at the same time. Too small:
    black holes among the addresses hold up the start. Too large: a hundred nodes that start at once dial each other all."""

    dial_timeout_s: float = 10.0
    """When a dial that the owner never reported on is taken for failed. Too small: slow but good networks are given up. Too
    large: black holes keep their share of the dials. The owner's own time-out should be shorter (about 3 s)."""

    redial_delay_s_min: float = 0.1
    """The first wait before an address is dialled again; it doubles with each failure. Too small: a restarting process is
    hammered. Too large: a peer that stood still for a moment comes back late."""

    redial_delay_s_max: float = 15.0
    """The longest wait before an address is dialled again. Too small: dead seeds cost a steady stream of dials. Too large: a
    network that was cut in two is whole again that much later."""

    redial_hint_s: float = 3.0
    """How long after a failure a sign of life of that peer is believed again. Too small: a peer that can be heard but not
    reached is dialled at every beacon. Too large: partitions heal later."""

    forget_s: float = 3600.0
    """When an address or peer, not a seed, that all dials failed is forgotten. Too small: a longer partition heals only through
    seeds and beacons. Too large: the dead cost dials and room."""

    unmet_failures_max: int = 5
    """When a peer that there was never a link to, and all dials failed as often, is forgotten. A living one makes itself heard
    again. Too small: one behind a lossy line is found late. Too large: the recorded beacon of a node that is gone costs as many
    dials of an address which may be somebody else's by now."""

    candidates_max: int = 256
    """Addresses and peers, besides seeds, that wait to be dialled. When full, the one that failed most makes room; when none
    failed yet, the newcomer is refused and counted. Too small: a start among many stale addresses may miss the living one. Too
    large: a lying peer makes us dial as many addresses of its choice."""

    lost_max: int = 32
    """Peers that fell silent and are looked for, since they may be beyond a partition. Too small: if just those are dead, it
    heals only through others. Too large: dials, two of each in a minute."""

    remembered_max: int = 4
    """Remembered addresses that are still tried when a ring was found without them: they may be in another one. Too small: two
    rings of one machine merge late. Too large: a start of many nodes dials that many addresses each."""

    seeds_max: int = 64
    """Seeds. Too small for nobody. Too large: each costs a dial per `redial_delay_s_max` for ever."""

    seed_interval_s: float = 30.0
    """How often a seed that was found is looked at again, for it may be in another ring by now. Too small: dials. Too large:
    after a partition that nobody remembers, the network is whole again that much later."""

    seed_interval_per_node_s: float = 0.1
    """The same is at least this times the number of nodes, so a seed gets no more than ten such dials a second from all."""

    beacon_wait_s: float = 0.05
    """How long a start without any other clue waits for answers to its beacon. Too small: a busy neighbour is overlooked,
    and found only later. Too large: every lonely start takes that long."""

    settle_timeout_s: float = 1.0
    """The longest search for a first link. Too small: a slow seed is overlooked at first, and merged with later. Too large: one
    black hole among the seeds delays a lonely start."""

    handshake_wait_s: float = 3.0
    """The same once somebody took a connection: there is a network, and it may be busy with many starts at once. Too small: on
    a busy machine each starts a ring of its own. Too large: a stopped process among the seeds delays a lonely start."""

    join_timeout_s: float = 10.0
    """How long joining the ring of a contact may take before the node starts one of its own, to be merged later. Too small: a
    start of many nodes makes many rings. Too large: behind a contact that is stuck, nothing works for as long."""

    contacts_refresh_s: float = 5.0
    """How often the failure detector is told whom to watch, if the leaf set does not change. Too small: work. Too large: new
    entries of the routing table are not watched for as long."""

    stall_s: float = 1.0
    """A node that comes so much later than it should compares its leaf set with its neighbours, who may have buried it, and
    registers anew. Some timer is due every second, and who is silent for 2 s may be dead. Too small: a busy event loop makes
    messages. Too large: a node that was declared dead meanwhile notices it when it renews."""

    beacon_interval_s: float = 3.0
    """The time between beacons of a small network, jittered by a fifth. Too small: noise. Too large: partitions heal later."""

    beacon_interval_per_peer_s: float = 0.2
    """The interval is at least this times the number of peers, so all nodes together send no more than five a second. Too
    small: each of them costs every node on the segment. Too large: two parts of a network meet later."""

    answers_wanted: float = 6.0
    """Answers that a question gets on average. Too small: lost datagrams leave a newcomer alone, and so does chance: of all
    questions a part of about exp(-answers_wanted) gets none. Too large: a storm of starts becomes a storm of answers."""

    answers_per_s_max: int = 200
    """Answers that a node sends in a second, to all questions together. Too small: starts of many nodes at once take longer.
    Too large: replayed questions make us talk."""

    beacon_jitter_s: float = 0.01
    """Answers of a network with more than `answers_wanted` peers are spread over this time. Too small: they collide. Too
    large: they miss `beacon_wait_s`."""

    beacon_dial_jitter_s: float = 1.0
    """A node of a ring that hears the beacon of an unknown node dials it after a random part of this: most are known by then.
    Too small: a rush of dials towards that node. Too large: partitions heal later."""
