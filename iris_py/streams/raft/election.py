"""Elections: candidates, votes, and the weight of votes of damaged replicas."""

from __future__ import annotations

from enum import Enum, auto
from typing import TYPE_CHECKING

from iris_py.streams.blocks import ID_BYTES
from iris_py.streams.raft.entries import LogEnd
from iris_py.streams.raft.limits import ELECTION_S_MAX, ELECTION_S_MIN, LOST_LEADER_S_MAX
from iris_py.streams.raft.messages import Vote, Voted

if TYPE_CHECKING:
    from iris_py.streams.raft.context import ReplicaContext
    from iris_py.streams.raft.membership import MemberSet

__all__ = ["Election", "Role", "has_won"]

_NO_VOTE = bytes(ID_BYTES)


class Role(Enum):
    """The role of a replica."""

    FOLLOWER = auto()
    PRE_CANDIDATE = auto()
    CANDIDATE = auto()
    LEADER = auto()


def has_won(votes: dict[bytes, bool], members: MemberSet) -> bool:
    """Whether votes elect a leader: those of a majority without damage, or those of all voters.

    A damaged replica may have forgotten acknowledged blocks. Its vote proves nothing while another voter may know of more.

    Args:
        votes: Damage by store, for all granted votes.
        members: The members by the candidate's log.
    """
    voters = [votes[store] for store in members.voters if store in votes]
    return voters.count(False) >= members.majority or (len(voters) == len(members.voters) and bool(voters))


class Election:
    """The votes that a replica grants, and the votes that a candidate gets.

    Attributes:
        role: The role.
        leader: The known leader of this term.
        timeout_at: The time to stand.
        heard_at: The time of the leader's last word.
    """

    def __init__(self, context: ReplicaContext) -> None:
        self.role = Role.FOLLOWER
        self.leader: bytes | None = None
        self.timeout_at = float("inf")
        self.heard_at = float("-inf")
        self._context = context
        self._votes: dict[bytes, bool] = {}
        self._unsaid: bytes | None = None  # the store whose vote waits for the disk

    def restart_timeout(self) -> None:
        """Wait for a leader, or for the result of an election, anew."""
        context = self._context
        self.timeout_at = context.now + ELECTION_S_MIN + context.draw() * (ELECTION_S_MAX - ELECTION_S_MIN)

    def note_leader(self, store: bytes) -> None:
        """Note a message of the present leader."""
        self.role, self.leader, self.heard_at = Role.FOLLOWER, store, self._context.now
        self.restart_timeout()

    def note_lost(self, store: bytes) -> None:
        """Take the report that a store's node is dead: stand soon if it leads."""
        if store == self.leader and self.role is Role.FOLLOWER:
            self.leader, self.heard_at = None, float("-inf")
            self.timeout_at = self._context.now + self._context.draw() * LOST_LEADER_S_MAX

    def follow(self, term: int) -> None:
        """Become a follower; in a higher term without a vote."""
        context = self._context
        if self.role is not Role.FOLLOWER:
            self.role = Role.FOLLOWER
            self.restart_timeout()
        if term > context.state.term:
            self.leader, self._unsaid = None, None
            context.save(context.state._replace(term=term, vote=_NO_VOTE))

    def handle_timeout(self) -> bool:
        """Ask voters about an election; returns whether the replica, as the only voter, won."""
        self.restart_timeout()
        self.leader = None
        if not self._can_stand():
            self.role = Role.FOLLOWER
            return False
        self.role = Role.PRE_CANDIDATE
        return self._ask(is_pre=True)

    def stand(self) -> None:
        """Begin a term; the votes are asked for when the own vote is on the disk."""
        if self._can_stand():
            context = self._context
            self.role, self.leader, self._votes = Role.CANDIDATE, None, {}
            self.restart_timeout()
            self._unsaid = context.store
            context.save(context.state._replace(term=context.state.term + 1, vote=context.store))

    def handle_saved(self) -> bool:
        """Send votes after the disk's report; returns whether the replica won."""
        context, store = self._context, self._unsaid
        if store is None or not context.is_state_durable or context.state.vote != store:
            return False
        self._unsaid = None
        if store == context.store:
            return self.role is Role.CANDIDATE and self._ask(is_pre=False)
        damaged = context.state.is_damaged or context.disk.durable.state.is_damaged
        context.send(store, Voted(context.state.term, is_pre=False, is_granted=True, is_damaged=damaged))
        return False

    def handle_vote(self, sender: bytes, vote: Vote) -> None:
        """Answer a candidate."""
        context = self._context
        state = context.state
        is_newer = LogEnd(vote.last_term, vote.last_index) >= context.end
        if vote.is_pre:
            is_led = self.role is Role.LEADER or context.now - self.heard_at < ELECTION_S_MIN
            is_granted = vote.term > state.term and is_newer and not is_led
            term = vote.term if is_granted else state.term
            context.send(sender, Voted(term, is_pre=True, is_granted=is_granted, is_damaged=state.is_damaged))
            return
        if vote.term == state.term and is_newer and self.role is Role.FOLLOWER and state.vote in (_NO_VOTE, sender):
            self.restart_timeout()
            self._unsaid = sender
            if state.vote != sender:
                context.save(state._replace(vote=sender))
            self.handle_saved()
        else:
            context.send(sender, Voted(state.term, is_pre=False, is_granted=False, is_damaged=state.is_damaged))

    def handle_voted(self, sender: bytes, voted: Voted) -> bool:
        """Count an answer; returns whether the replica won."""
        context = self._context
        asked = Role.PRE_CANDIDATE if voted.is_pre else Role.CANDIDATE
        if (
            sender not in context.members.newest.voters
            or self.role is not asked
            or not voted.is_granted
            or voted.term != context.state.term + voted.is_pre
        ):
            return False
        self._votes[sender] = voted.is_damaged
        return self._count()

    def _can_stand(self) -> bool:
        context = self._context
        return context.is_whole and context.members.may_lead(context.store, context.commit) and not context.is_halted

    def _ask(self, *, is_pre: bool) -> bool:
        context = self._context
        end = context.end
        self._votes = {context.store: context.state.is_damaged}
        for store in context.members.newest.voters:
            if store != context.store:
                context.send(store, Vote(context.state.term + is_pre, is_pre, end.term, end.index))
        return self._count()

    def _count(self) -> bool:
        if not has_won(self._votes, self._context.members.newest):
            return False
        if self.role is Role.PRE_CANDIDATE:
            self.stand()
            return False
        self.role, self.leader = Role.LEADER, self._context.store
        return True
