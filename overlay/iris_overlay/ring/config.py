"""The constants of the ring, with the cost of too small and too large values."""

from __future__ import annotations

import msgspec


class PastryConfig(msgspec.Struct, frozen=True):
    """The configuration of the ring. All nodes of a network should agree, but different values break nothing."""

    leaf_half: int = 8
    """The number of leaves on each side of a node. Too small: a few simultaneous deaths cut the ring. Too large: joins and
    repairs cost more.
    """

    probe_timeout_s: float = 3.0
    """The time for a leaf to answer a probe before it is skipped. Too small: a joining node leaves a busy neighbour out of its
    ring, and both deliver the same keys. Too large: a silent leaf delays every join beside it.
    """

    handover_timeout_s: float = 1.0
    """The longest time for which the acknowledgement of a probe waits until the owner has handed its state over to the prober.
    Smaller than `probe_timeout_s`. Too small: the new node serves keys without their state. Too large: a stuck handover delays
    joins.
    """

    join_retry_s: float = 1.0
    """The first wait for the answer to a join; doubles, with jitter. Too small: requests on long paths are repeated. Too large:
    a request lost with a dead hop costs that time.
    """

    join_retry_s_max: float = 10.0
    """The longest wait for the answer to a join, after all doubling. Too small: a network in trouble gets more load. Too large:
    joins resume late.
    """

    join_alone_attempts: int = 3
    """The number of attempts with only the answer "I am joining too" after which a node starts its own ring, to be merged
    later. Too small: a start of many nodes makes many rings to merge. Too large: such a start takes longer.
    """

    join_alone_delay_s: float = 0.4
    """The wait for a contact that is joining as well, before the node may start its own ring. Too small: the node does so
    although the contact is almost done. Too large: a start of many nodes takes longer.
    """

    repair_retry_s: float = 0.5
    """The pause before the next repair of a leaf set that is still short (it lost leaves without a replacement). Too small:
    traffic while the neighbours repair too. Too large: the ring stays thin.
    """

    repair_attempts: int = 4
    """The number of repairs before a short leaf set counts as complete. Too small: a wide gap after a mass failure counts as
    the end of the ring. Too large: keys in such a gap wait longer.
    """

    settled_check_s: float = 5.0
    """The time after news or fruitless repairs until a leaf set is compared with its edges again. Too small: the edges are
    still repairing. Too large: errors after a mass failure last longer.
    """

    exchange_interval_s: float = 60.0
    """The time between exchanges with one leaf and one entry of the table. Too small: traffic of idle nodes. Too large: errors
    missed by repairs last longer.
    """

    news_delay_s: float = 0.2
    """The time for collecting changes by a merge or a death before the leaves are told. Too small: more messages for the same
    news. Too large: two rings merge more slowly.
    """

    hints_interval_s: float = 5.0
    """The shortest time between two hints of a node about another ring. Too small: two merging nodes make all others seek
    twice. Too large: a third ring waits.
    """

    hint_jitter_s: float = 0.5
    """The random time after which a node seeks its place in another ring after a hint. Too small: the contact is flooded. Too
    large: slow merges.
    """

    hop_timeout_s: float = 0.5
    """The time-out of a hop's acknowledgement while its round-trip time is unknown. Too small: duplicates. Too large: messages
    that meet a dead hop are delayed by that time.
    """

    hop_timeout_s_min: float = 0.2
    """The shortest time-out of a hop's acknowledgement. It contains the delay of acknowledgements."""

    hop_timeout_s_max: float = 3.0
    """The longest time-out of a hop's acknowledgement; by its end the failure detector has decided."""

    acknowledgement_delay_s: float = 0.05
    """The time for collecting acknowledgements of hops. Too small: a message for each. Too large: longer time-outs."""

    route_attempts: int = 8
    """The number of times that a node forwards a message before it gives up. Too small: messages get lost in a mass failure.
    Too large: undeliverable messages stay for long.
    """

    dead_memory_s: float = 30.0
    """The time during which hearsay (a mention by another node) cannot revive a dead node. Too small: the node is probed again
    because a neighbour unaware of the death mentions it. Too large: after a partition, a neighbour is found again only by its
    own messages.
    """

    unreachable_memory_s: float = 120.0
    """The time during which hearsay cannot add an undialable node to the table, and the node is reached through others. Too
    small: dead entries in other nodes' tables are dialled again and again. Too large: one failed dial causes detours for long.
    """
