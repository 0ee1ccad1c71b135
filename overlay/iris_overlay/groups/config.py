"""All constants for the timing and size of the groups layer, with the cost of too small and too large values."""

from __future__ import annotations

import msgspec

from iris_overlay.groups.entries import ENTRIES_MAX
from iris_overlay.groups.messages import VIEW_MAX


class GroupConfig(msgspec.Struct, frozen=True):
    """The configuration of a node's groups. All nodes of a network should agree on `renew_s`."""

    told_timeout_s: float = 1.0
    """The longest wait of a join, leave or multicast for the acknowledgements of the nodes concerned: watchers, copies, and
    inner nodes of the multicast tree. Too small: a busy watcher has not heard yet, and its messages are lost or fail. Too
    large: one stalled watcher delays every start and stop.
    """

    resend_s: float = 1.5
    """The wait for an answer before a message is repeated by another way; from the third wait on, the wait doubles. Above
    `told_timeout_s`, the longest time of a root's answer. Too small: load on an overloaded network. Too large: messages lost in
    a crash are repeated later.
    """

    resend_s_max: float = 30.0
    """The longest wait for an answer, after all doubling. Too small: traffic to dead nodes. Too large: repair after a long
    outage takes that long.
    """

    renew_s: float = 60.0
    """The time between renewals of memberships and watches, jittered by a tenth. Too small: traffic. Too large: entries lost
    with all copies of a directory are missing for that time.
    """

    renewals_missed_max: int = 3
    """The number of missed renewals after which soft state expires. Too small: two lost messages remove live nodes. Too large:
    dead nodes without a death report stay longer.
    """

    sweep_s: float = 10.0
    """The time between checks for expired soft state. Too small: work. Too large: dead nodes stay longer."""

    repair_jitter_s: float = 0.2
    """The random delay of members and watchers of a dead root before they ask the new one. Too small: a rush on a root that is
    just taking over. Too large: the directory is incomplete for that time, if all its copies died.
    """

    replay_s: float = 5.0
    """The time for which a root keeps multicasts, and repeats them to nodes that lost their parent in the tree. Too small:
    multicasts sent through an inner node between its death and the detection, 3 s, are lost. Too large: memory, and
    repetitions.
    """

    reorder_s: float = 1.0
    """The longest time for which a received multicast waits for an earlier, missing one of the same source. Too small: repairs
    of the tree lose multicasts. Too large: a lost multicast delays the later ones.
    """

    watch_refresh_s: float = 1.0
    """The age at which a membership view without updates is requested again on use. Too small: a question per request. Too
    large: requests go to departed members.
    """

    view_members_max: int = VIEW_MAX
    """The largest number of members in a whole membership view, at most `VIEW_MAX`; broadcasts to larger groups go down trees.
    All nodes of a network should agree. Too small: large groups cost more. Too large: each watcher holds that many members, and
    is told of each change.
    """

    table_entries_max: int = ENTRIES_MAX
    """The number of entries beyond which the root splits a table (splits.py). Too small: watchers look up many tables. Too
    large: each watcher gets, and holds, that many entries.
    """

    groups_watched_max: int = 4096
    """The largest number of groups watched at once; more are refused with an error. Too small: gateways reach it. Too large:
    memory.
    """

    tells_counts: bool = True
    """Whether a root tells any insider the numbers of a group's members and watchers, but not their ids."""

    def resend_after_s(self, attempts: int) -> float:
        """Return the wait for an answer after a number of earlier attempts.

        The second wait is not longer than the first. Two consecutive losses are mostly chance, and with two waits of 1.5 s a
        watch or join at a bad moment still succeeds in about 3 s.
        """
        return min(self.resend_s_max, self.resend_s * 2.0 ** max(0, attempts - 1))

    @property
    def expiry_s(self) -> float:
        """The lifetime of soft state without renewal."""
        return self.renewals_missed_max * self.renew_s
