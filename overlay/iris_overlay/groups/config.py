"""Every number that the timing and the size of the groups layer depend on, with the cost of too small and too large."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class GroupConfig:
    """Configure the groups of a node. All nodes of a network should agree on `renew_s`."""

    told_timeout_s: float = 1.0
    """How long joining, leaving and casting wait for those who have to know. Too small: a busy watcher has not heard yet, and
    what it sends is lost or fails. Too large: one stalled watcher holds up every start and stop."""

    resend_s: float = 1.5
    """When an unanswered message is sent again, by another way; twice, then it doubles each time. More than `told_timeout_s`,
    for so long a root may take to answer. Too small: load when there is too much already. Too large: what a crash swallowed is
    missing longer."""

    resend_s_max: float = 30.0
    """The longest such wait. Too small: traffic to nodes that are gone. Too large: repair after a long outage takes as long."""

    renew_s: float = 60.0
    """How often memberships and watches are renewed, jittered by a tenth. Too small: traffic. Too large: what every copy of a
    directory lost at once is missing for as long."""

    renewals_missed_max: int = 3
    """After so many renewals without a sign soft state expires. Too small: two lost messages remove the living. Too large: the
    dead whom nobody reported stay longer."""

    sweep_s: float = 10.0
    """How often a node with soft state of others looks for what expired. Too small: work. Too large: the dead stay longer."""

    repair_jitter_s: float = 0.2
    """Members and watchers of a dead root ask the new one after a random part of this. Too small: a rush on a root that is just
    taking over. Too large: the directory is incomplete for as long, if all its copies died."""

    replay_s: float = 5.0
    """A cast is kept at the root for so long, and repeated to who lost its parent in the tree meanwhile. Too small: what was
    sent through an inner node between its death and the detection, 3 s, is lost. Too large: memory, and repetitions."""

    reorder_s: float = 1.0
    """How long a cast waits for an earlier one of the same source. Too small: repairs of the tree lose casts. Too large: a lost
    cast holds up the later ones."""

    watch_refresh_s: float = 1.0
    """How old a view that is not kept fresh may be when it is used. Too small: a question per request. Too large: requests go
    to members that are gone."""

    groups_watched_max: int = 4096
    """Groups watched at once; beyond, watching raises. Too small: gateways run out. Too large: memory."""

    tells_counts: bool = True
    """Whether a root tells any node that asks how many members and watchers a group has, though not which."""

    def resend_after_s(self, attempts: int) -> float:
        """Return how long to wait for an answer, after so many earlier attempts.

        The second wait is not longer than the first: of two losses in a row most are chance, and with two waits of 1.5 s
        whoever watches or joins in a bad moment is still served in about 3 s.
        """
        return min(self.resend_s_max, self.resend_s * 2.0 ** max(0, attempts - 1))

    @property
    def expiry_s(self) -> float:
        """Return how long soft state lives without renewal."""
        return self.renewals_missed_max * self.renew_s
