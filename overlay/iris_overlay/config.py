"""All constants for the timing and size of an overlay, with the cost of too small and too large values."""

from __future__ import annotations

import msgspec

from iris_overlay.detector.config import DetectorConfig
from iris_overlay.groups.config import GroupConfig
from iris_overlay.peers.config import ContactsConfig
from iris_overlay.ring.config import PastryConfig


class OverlayConfig(msgspec.Struct, frozen=True):
    """The configuration of an overlay. The defaults suit one machine as well as a data centre."""

    ring: PastryConfig = msgspec.field(default_factory=PastryConfig)
    """The configuration of the ring."""

    detector: DetectorConfig = msgspec.field(default_factory=DetectorConfig)
    """The configuration of the failure detector."""

    groups: GroupConfig = msgspec.field(default_factory=GroupConfig)
    """The configuration of memberships, membership views and multicast trees."""

    contacts: ContactsConfig = msgspec.field(default_factory=ContactsConfig)
    """The configuration of links on demand."""

    dials_max: int = 16
    """The largest number of concurrent dials while this node is in a ring and searches for other parts of the network. Too
    small: a network behind dead addresses is found slowly. Too large: a simultaneous start of many nodes overruns the accept
    queues, and the handshakes starve each other.
    """

    search_dials_max: int = 4
    """The largest number of concurrent dials while this node is in no ring: one contact is enough to join, and other nodes
    start at the same time. Too small: black holes among the addresses delay the start. Too large: a hundred nodes started
    together all dial each other.
    """

    dial_timeout_s: float = 10.0
    """The time after which a dial without a report from the owner counts as failed. Too small: slow but good networks are given
    up. Too large: black holes keep their share of the dials. The owner's own time-out should be shorter (about 3 s).
    """

    redial_delay_s_min: float = 0.1
    """The first wait before an address is dialled again; each failure doubles it. Too small: a restarting process is flooded
    with dials. Too large: a peer after a short pause comes back late.
    """

    redial_delay_s_max: float = 15.0
    """The longest wait before an address is dialled again. Too small: dead seeds cost a steady stream of dials. Too large: a
    partitioned network heals later.
    """

    redial_hint_s: float = 3.0
    """The time after a failure during which a sign of life of the peer is ignored. Too small: a peer that can be heard but not
    reached is dialled at every beacon. Too large: partitions heal later.
    """

    forget_s: float = 3600.0
    """The time after which an address or peer, except a seed, is forgotten if all dials fail. Too small: a longer partition
    heals only through seeds and beacons. Too large: dead nodes cost dials and memory.
    """

    unmet_failures_max: int = 5
    """The number of failed dials after which a peer that never had a link is forgotten. A live peer makes itself heard again.
    Too small: a peer behind a lossy path is found late. Too large: a recorded beacon of a dead node causes that number of dials
    to an address that may have a new owner.
    """

    candidates_max: int = 256
    """The largest number of addresses and peers, besides seeds, that wait for a dial. A full table drops the candidate with the
    most failures; if none has failed, it refuses and counts the new one. Too small: a start among many stale addresses may miss
    the live one. Too large: a lying peer causes that number of dials.
    """

    lost_max: int = 32
    """The largest number of silent peers to search for, because they may be beyond a partition. Too small: if exactly these are
    dead, the partition heals only through other nodes. Too large: two dials a minute for each.
    """

    remembered_max: int = 4
    """The number of remembered addresses still tried after a ring was found without them, because they may be in another ring.
    Too small: two rings of one machine merge late. Too large: many dials per node in a start of many nodes.
    """

    seeds_max: int = 64
    """The largest number of seeds. Too small: no known cost. Too large: each costs a dial per `redial_delay_s_max` for ever."""

    seed_interval_s: float = 30.0
    """The time between checks of a found seed, which may be in another ring by now. Too small: dials. Too large: after a
    partition forgotten by all nodes, the network heals later by that time.
    """

    seed_interval_per_node_s: float = 0.1
    """The lower bound of the time between checks of a found seed, per node of the network: all nodes together dial a seed at
    most ten times a second.
    """

    beacon_wait_s: float = 0.05
    """The wait for answers to the first beacon if a start has no other clue. Too small: a busy neighbour is missed at first.
    Too large: every start of a lone node takes that long.
    """

    settle_timeout_s: float = 1.0
    """The longest search for a first link. Too small: a slow seed is missed at first, and its ring is merged later. Too large:
    one black hole among the seeds delays the start of a lone node.
    """

    handshake_wait_s: float = 3.0
    """The longest search for a first link after a dialled address has accepted the connection: a network exists, and may be
    busy with many starts. Too small: on a busy machine each node starts its own ring. Too large: a stopped process at a seed's
    address delays the start of a lone node.
    """

    join_timeout_s: float = 10.0
    """The time to join the ring of a contact before the node starts its own ring, to be merged later. Too small: a start of
    many nodes makes many rings. Too large: a stuck contact delays everything for that time.
    """

    contacts_refresh_s: float = 5.0
    """The time between updates of the contacts (the nodes watched by the failure detector) while the leaf set does not change.
    Too small: work. Too large: new entries of the routing table stay unwatched for that time.
    """

    stall_s: float = 1.0
    """A node later than its deadline by this time compares its leaf set with its neighbours, because they may have declared it
    dead, and registers again. Some timer is due every second, and 2 s of silence can mean death. Too small: a busy event loop
    causes messages. Too large: a node declared dead meanwhile learns of its death only at the next renewal.
    """

    beacon_interval_s: float = 3.0
    """The time between beacons of a small network, jittered by a fifth. Too small: noise. Too large: partitions heal later."""

    beacon_interval_per_peer_s: float = 0.2
    """The lower bound of the time between a node's beacons, per peer: all nodes together send at most five beacons a second.
    Too small: each beacon costs every node on the segment. Too large: two parts of a network meet later.
    """

    answers_wanted: float = 6.0
    """The average number of answers to a question (a beacon that wants an answer). Too small: lost datagrams or chance leave a
    new node alone; a share of about exp(-answers_wanted) of all questions gets no answer. Too large: a storm of starts becomes
    a storm of answers.
    """

    answers_per_s_max: int = 200
    """A node's answers a second to all questions together. Too small: simultaneous starts of many nodes take longer. Too large:
    replayed questions cause traffic.
    """

    beacon_jitter_s: float = 0.01
    """The time over which the nodes of a network with more than `answers_wanted` peers spread their answers. Too small: answers
    collide. Too large: answers miss `beacon_wait_s`.
    """

    beacon_dial_jitter_s: float = 1.0
    """The random delay before a node in a ring dials an unknown node after its beacon; most become known meanwhile. Too small:
    a rush of dials to the new node. Too large: partitions heal later.
    """
