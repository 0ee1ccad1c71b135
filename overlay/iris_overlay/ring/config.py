"""The numbers of the ring: leaf set, joining, repair, hop acknowledgements; with the cost of too small and too large."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PastryConfig:
    """Configure the ring. All nodes of a network should agree, but nothing breaks if they do not."""

    leaf_half: int = 8
    """Leaves kept on each side. Too small: a few deaths at once cut the ring. Too large: joins and repairs cost more."""

    probe_timeout_s: float = 3.0
    """How long a leaf may take to answer a probe before it is passed over. Too small: a busy neighbour is left out of the ring
    of a joiner, and both deliver the same keys. Too large: a silent one holds up every join next to it."""

    handover_timeout_s: float = 1.0
    """How long the acknowledgement of a probe waits for the owner's handover. Smaller than `probe_timeout_s`. Too small: the
    newcomer answers for keys it knows nothing of yet. Too large: a stuck handover holds up joins."""

    join_retry_s: float = 1.0
    """The first wait for the answer to a join; doubles, with jitter. Too small: long paths are asked twice. Too large: a
    request that died with a hop costs that much time."""

    join_retry_s_max: float = 10.0
    """The longest such wait. Too small: a network in trouble gets more load. Too large: joins resume late."""

    join_alone_attempts: int = 3
    """After this many attempts whose only answer was "I am joining too", a node starts a ring of its own and merges later. Too
    small: many rings to merge after a start of many nodes. Too large: such a start waits that much longer."""

    join_alone_delay_s: float = 0.4
    """How long a node waits for a contact that is joining as well, before it may start a ring of its own. Too small: it does so
    although the contact is almost done. Too large: a start of many nodes takes that much longer."""

    repair_retry_s: float = 0.5
    """How soon a leaf set that is still short after a repair asks again. Too small: traffic while the neighbours repair too.
    Too large: the ring stays thin."""

    repair_attempts: int = 4
    """How often, before a short leaf set is believed to be all there is. Too small: a wide gap after a mass failure is taken
    for the end of the ring. Too large: keys in such a gap wait longer."""

    settled_check_s: float = 5.0
    """When a leaf set is compared with its edges once more, after news, or after repairs that found nobody to fill it.
    Too small: they are still repairing. Too large: what a mass failure left wrong stays so for longer."""

    exchange_interval_s: float = 60.0
    """The time between exchanges with one leaf and one entry of the table. Too small: traffic of idle nodes. Too large: what
    repair missed stays wrong for longer."""

    news_delay_s: float = 0.2
    """How long changes by a merge, or a death, are collected before leaves are told. Too small: more messages for the same
    news. Too large: two rings zip more slowly."""

    hints_interval_s: float = 5.0
    """A node passes on news of another ring at most once in this time. Too small: two merging nodes make everybody seek twice.
    Too large: a third ring waits."""

    hint_jitter_s: float = 0.5
    """A node that hears of another ring seeks its place there after a random part of this. Too small: the contact is flooded.
    Too large: slow merges."""

    hop_timeout_s: float = 0.5
    """When a hop has not acknowledged, before its round-trip time is known. Too small: duplicates. Too large: lookups that meet
    a dead hop take that much longer."""

    hop_timeout_s_min: float = 0.2
    """The shortest such time-out. It contains the delay of acknowledgements."""

    hop_timeout_s_max: float = 3.0
    """The longest such time-out: then the failure detector has spoken."""

    acknowledgement_delay_s: float = 0.05
    """How long acknowledgements of hops are collected. Too small: one message for each. Too large: time-outs grow with it."""

    route_attempts: int = 8
    """How often a node forwards a message before it gives up. Too small: messages die in a mass failure. Too large: hopeless
    ones linger."""

    dead_memory_s: float = 30.0
    """How long a dead node is not believed alive by hearsay. Too small: it is probed again because a neighbour that has not
    noticed yet mentions it. Too large: after a partition, a neighbour is found again only when it speaks up itself."""

    unreachable_memory_s: float = 120.0
    """How long a node that could not be dialled is not put into the table by hearsay, and is reached through others. Too small:
    dead entries of the tables of others are dialled again and again. Too large: one failed dial costs detours for long."""
