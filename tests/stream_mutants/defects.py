"""The defects: each breaks one rule of replication in a few lines."""

from __future__ import annotations

from typing import Final, NamedTuple

__all__ = ["DEFECTS", "Defect", "Patch"]


class Patch(NamedTuple):
    """A change of one module."""

    module: str
    old: str
    """Text that the module has once."""
    new: str

    def apply(self, source: str) -> str:
        """Return the source of the module with the change."""
        assert source.count(self.old) == 1, f"{self.module} has {self.old!r} {source.count(self.old)} times"
        return source.replace(self.old, self.new)


class Defect(NamedTuple):
    """A broken rule."""

    name: str
    kind: str
    """The schedules that may notice it: ``one``, ``all`` damaged, or ``changes`` of members."""
    patches: tuple[Patch, ...]


def _defect(name: str, kind: str, *changes: tuple[str, str, str]) -> Defect:
    return Defect(name, kind, tuple(Patch(f"iris_py.streams.raft.{module}", old, new) for module, old, new in changes))


DEFECTS: Final = (
    _defect(
        "acknowledged before the sync",
        "one",
        ("follower", "index = min(self.match, context.disk.synced)", "index = self.match"),
    ),
    _defect(
        "vote not saved",
        "one",
        ("election", "if store is None or not context.is_state_durable or", "if store is None or"),
    ),
    _defect(
        "log cut at the first bad block",
        "all",
        (
            "recovery",
            "    is_damaged = state.is_damaged or has_lost\n",
            "    is_damaged, state = False, ReplicaState(state.term, state.vote)\n",
        ),
    ),
    _defect(
        "votes of damaged replicas counted",
        "all",
        ("election", "return voters.count(False) >= members.majority", "return len(voters) >= members.majority"),
    ),
    _defect(
        "damage forgotten at a restart",
        "all",
        (
            "recovery",
            "    is_damaged = state.is_damaged or has_lost\n",
            "    is_damaged, state = has_lost, state._replace(is_damaged=False)\n",
        ),
    ),
    _defect(
        "level when the holes are filled",
        "all",
        (
            "repair",
            "            context.events.append(BlocksRepaired(index))\n",
            "            context.events.append(BlocksRepaired(index))\n"
            "            if not entries.holes:\n"
            "                context.end_damage()\n",
        ),
    ),
    _defect(
        "tail of a damaged replica cut",
        "all",
        (
            "recovery",
            "            entries.append_holes(entries.last + 1)\n",
            "            is_torn = True\n"
            "        behind = [first for first, _last in entries.holes if first > state.mark.index]\n"
            "        if behind:\n"
            "            is_torn = True\n"
            "            entries.cut(behind[0] - 1)\n",
        ),
    ),
    _defect(
        "mark ahead of the sync",
        "one",
        ("context", "index = min(self.disk.synced, self.entries.last)", "index = self.entries.last"),
        (
            "replica",
            "        context.disk.flush()\n        if self._election",
            "        self._save_mark()\n        context.disk.flush()\n        if self._election",
        ),
    ),
    _defect(
        "commit of a block of an older term",
        "one",
        (
            "replication",
            "return index if index > context.commit and context.entries.term_at(index) == self.term else context.commit",
            "return max(index, context.commit)",
        ),
    ),
    _defect(
        "two changes of members at once",
        "changes",
        ("membership", "if self.newest_index > commit:", "if False:"),
    ),
)
