"""Times and bounds of replication, each with the effect of a too small and a too large value."""

from __future__ import annotations

from typing import Final

#: The shortest time without a word of the leader before a replica stands. Too small: a pause of the leader is an election; too
#: large: a partition without a leader waits.
ELECTION_S_MIN: Final = 1.5
#: The longest such time; a leader without a majority for this long gives up. Too near to the shortest: replicas stand together,
#: and split the votes; too large: as above.
ELECTION_S_MAX: Final = 3.0
#: The longest wait after the overlay reported the death of the leader's node. Too small: replicas stand together; too large:
#: the report saves little.
LOST_LEADER_S_MAX: Final = 0.15
#: The time between heartbeats. Too small: idle partitions cost much; too large: one lost heartbeat is an election.
HEARTBEAT_S: Final = 0.5
#: The time without an acknowledgement before a leader sends blocks again. Too small: a slow disk gets blocks twice; too large:
#: a lost message stops a follower.
RESEND_S: Final = 1.0
#: The time between two questions for missing blocks. Too small: a damaged log asks for the same blocks again; too large: repair
#: takes long.
REPAIR_S: Final = 0.5
#: Blocks in one question and its answers. Too small: repair takes many round trips; too large: all answers come at once.
REPAIR_BLOCKS_MAX: Final = 8
#: Runs of missing blocks in one turn of questions. Too small: a run that nobody answers holds up the rest; too large: many
#: questions at once.
REPAIR_RUNS_MAX: Final = 4
#: The time between two saves of the mark. Too small: a second write for each group of batches; too large: damage to the newest
#: records after a power loss looks like a torn write.
MARK_S: Final = 0.25
#: Bytes of blocks in one message; one block may be larger. Too small: a message for each block; too large: it waits in lanes.
MESSAGE_BYTES_MAX: Final = 224 << 10
#: Blocks in one message. Too small: small blocks need many messages; too large: a message takes long to check.
MESSAGE_BLOCKS_MAX: Final = 64
#: Messages that a follower keeps because they overtook others. Too small: their blocks come twice; too large: memory.
EARLY_MESSAGES_MAX: Final = 64
#: Bytes of such blocks. Too small and too large: likewise.
EARLY_BYTES_MAX: Final = 8 << 20
#: Bytes under way to one follower. Too small: a long line stays empty; too large: a slow follower fills the memory of links.
FLIGHT_BYTES_MAX: Final = 4 << 20
#: Bytes of the newest blocks in memory. Too small: followers that are a little behind cost reads; too large: memory for each
#: partition.
RECENT_BYTES_MAX: Final = 8 << 20
#: Uncommitted blocks and bytes of a partition. Too small: few writers wait for one sync; too large: memory, and a long wait.
UNCOMMITTED_BLOCKS_MAX: Final = 1024
UNCOMMITTED_BYTES_MAX: Final = 16 << 20
#: Terms that a follower lists to a leader for the fork. Too small: the leader asks several times; too large: a long message.
TERMS_LISTED_MAX: Final = 64
#: Voters of a group. Too small: fewer disks may fail; too large: each block goes to all of them.
VOTERS_MAX: Final = 7
#: Learners of a group. Too small: few stores follow the catalog; too large: the leader sends to all of them.
LEARNERS_MAX: Final = 32
#: Questions for the linearizable end that wait for one round of heartbeats. Too small: readers are refused; too large: memory.
READS_WAITING_MAX: Final = 1024
#: Bytes that a learner may be behind when it becomes a voter. Too small: under load it never does; too large: a majority
#: with it waits for it.
PROMOTION_BYTES_MAX: Final = 1 << 20
#: Bytes of a snapshot. Too small: a large state machine is refused; too large: it fills the memory of a follower.
SNAPSHOT_BYTES_MAX: Final = 64 << 20
