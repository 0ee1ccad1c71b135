"""Dials in search of a network or of another part of it.

A **candidate** is an address (a seed or a remembered address of an unknown node), or a peer with one or more addresses. The
peer was heard by its beacon, or fell silent and may be beyond a partition. The addresses of a candidate are dialled one after
the other without a pause. When all have failed, the candidate has failed once, and waits longer each time. Candidates with the
same address share a dial.

Nodes of the same ring are not dialled here: `contacts.py` opens those links. `RunningDials` keeps the search and the contacts
from dialling the same address twice at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

import msgspec

from iris_overlay.events import DialRequested
from iris_overlay.ids import NodeId
from iris_overlay.peers.addresses import is_dialable
from iris_overlay.timers import DeadlineTable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from iris_overlay.config import OverlayConfig
    from iris_overlay.environment import Rng
    from iris_overlay.events import Counters
    from iris_overlay.node_info import NodeInfo
    from iris_overlay.peers.hearsay import Hearsay
    from iris_overlay.peers.vantage import Vantage

#: The time after which a dial without a report from the owner may be requested again. Above every time-out of a dial.
DIAL_FORGOTTEN_S: Final = 15.0

#: The largest number of running dials remembered, above the bounds of search and contacts together. Beyond it the oldest is
#: forgotten, and at worst requested twice.
DIALS_MAX: Final = 512


class RunningDials:
    """The running dials of all components, so that no address is dialled twice at once."""

    __slots__ = ("_requested_at",)

    def __init__(self) -> None:
        self._requested_at: dict[str, float] = {}  # The oldest first.

    def __len__(self) -> int:
        return len(self._requested_at)

    def begin(self, requests: Iterable[DialRequested], now: float) -> list[DialRequested]:
        """Return the requests for addresses that are not being dialled yet, and remember their dials."""
        requested_at = self._requested_at
        while requested_at and now - next(iter(requested_at.values())) > DIAL_FORGOTTEN_S:
            del requested_at[next(iter(requested_at))]
        fresh = []
        for request in requests:
            if request.address not in requested_at:
                if len(requested_at) >= DIALS_MAX:
                    del requested_at[next(iter(requested_at))]
                requested_at[request.address] = now
                fresh.append(request)
        return fresh

    def end(self, address: str) -> None:
        """Forget a dial after the owner's report on it."""
        self._requested_at.pop(address, None)


#: The maximum count of failures: the delay reaches its limit long before, and 2 to this power is still a valid float.
FAILURES_MAX: Final = 30

#: The key of a candidate: the id of a peer, or an address.
Key: TypeAlias = NodeId | str


def redial_delay_s(failures: int, config: OverlayConfig, rng: Rng) -> float:
    """Return the wait before a redial: doubled by each consecutive failure, bounded, and half random."""
    limit = config.redial_delay_s_min * 2.0 ** (min(failures, FAILURES_MAX) - 1)
    return min(limit, config.redial_delay_s_max) * rng.uniform(0.5, 1.0)


class _DialCandidate(msgspec.Struct):
    key: Key
    addresses: list[str]
    peer: NodeId | None
    """The expected node; None for any node."""
    is_seed: bool = False
    position: int = 0
    """The index of the next address. Invariant: 0 <= position < len(addresses)."""
    failures: int = 0
    failed_first: float | None = None
    failed_last: float | None = None
    found: NodeId | None = None
    """The node of the last answer."""
    due: float = 0.0


class _RunningDial(msgspec.Struct):
    is_retry: bool
    candidates: dict[Key, None] = {}


class Dialler:
    """Dial candidates (addresses and peers that may be in another part of the network), and report the found nodes.

    Each failure doubles the wait of a candidate. Retries take at most half of the dials, so that black holes cannot delay
    untried candidates.
    """

    def __init__(
        self,
        local: NodeInfo,
        config: OverlayConfig,
        rng: Rng,
        counters: Counters,
        is_known: Callable[[NodeId], bool],
        vantage: Vantage,
        hearsay: Hearsay,
    ) -> None:
        """Create the dialler, without candidates.

        Args:
            local: The node itself.
            config: The constants.
            rng: The source of jitter.
            counters: The counters of drops.
            is_known: Tells whether a node has a link or is known to be in the same ring; such nodes are not dialled.
            vantage: Orders the addresses of a peer.
            hearsay: Bounds the dials of unproven addresses.
        """
        self.requests: list[DialRequested] = []
        # The nodes that answered a dial, for the owner to take: they may be in another ring.
        self.found: list[NodeId] = []
        self._local = local
        self._config = config
        self._rng = rng
        self._counters = counters
        self._is_known = is_known
        self._vantage = vantage
        self._hearsay = hearsay
        # Invariant: each candidate is in exactly one of _waiting (by its key), _ready and the dials of _dials.
        self._candidates: dict[Key, _DialCandidate] = {}
        self._seeds: dict[str, None] = {}
        # The candidates that fell silent.
        self._lost: dict[NodeId, None] = {}
        self._waiting: DeadlineTable[Key] = DeadlineTable()
        self._ready: dict[Key, None] = {}
        self._dials: dict[str, _RunningDial] = {}
        self._retries = 0
        self._dial_timeouts: DeadlineTable[str] = DeadlineTable()
        self._is_stopped = False

    def __len__(self) -> int:
        return len(self._candidates)

    @property
    def is_trying(self) -> bool:
        """Return whether some candidate has no outcome yet, because its first dial is running or waiting."""
        return any(not candidate.failures and candidate.found is None for candidate in self._candidates.values())

    def add_address(self, address: str, now: float, *, is_seed: bool = False) -> None:
        """Add an address to dial now; ignore a known, own or undialable address."""
        if is_dialable(address) and address not in self._local.addresses and address not in self._candidates:
            self._add(_DialCandidate(address, [address], None, is_seed), now, now)

    def add_peer(self, info: NodeInfo, when: float, now: float) -> None:
        """Add a peer that was heard, to be dialled at a time (`when`); ignore a peer that needs no dial."""
        node = info.id
        if node == self._local.id or self._is_known(node):
            return
        self._hearsay.note(node)
        known = self._candidates.get(node)
        if known is not None:
            # A sign of life ends a long delay, unless the last failure is recent.
            is_rested = known.failed_last is None or now - known.failed_last >= self._config.redial_hint_s
            if node in self._waiting and is_rested and when < known.due:
                self._schedule(known, when, now)
            return
        addresses = self._dialable(info)
        if addresses:
            self._add(_DialCandidate(node, addresses, node), when, now)

    def look_for(self, info: NodeInfo, now: float) -> None:
        """Add a silent peer: its process may be paused, or the peer may be beyond a partition."""
        node = info.id
        self._hearsay.note(node)
        addresses = self._dialable(info)
        if node in self._candidates or not addresses or self._is_stopped:
            return
        if len(self._lost) >= self._config.lost_max:
            # Keep the latest silent peers, which are the most likely to return; in a partition all of them are on the other
            # side.
            self.forget(next(iter(self._lost)))
        candidate = _DialCandidate(node, addresses, node, failures=1, failed_first=now, failed_last=now)
        self._add(candidate, now + redial_delay_s(1, self._config, self._rng), now)
        if node in self._candidates:  # else the table was full
            self._lost[node] = None

    def forget(self, node: NodeId) -> bool:
        """Stop searching for a peer that has a link, left or is certainly dead. Return whether it was a candidate."""
        candidate = self._candidates.get(node)
        if candidate is not None:
            self._forget(candidate)
        return candidate is not None

    def forget_untried(self, keep: int) -> None:
        """Forget the untried candidates except seeds and a few others, because a ring was found without them."""
        untried = [c for c in self._candidates.values() if not (c.is_seed or c.failures or self._is_dialled(c))]
        while len(untried) > keep:
            self._forget(untried.pop(self._rng.randrange(len(untried))))

    def dial_failed(self, address: str, now: float) -> None:
        """Dial the next address of the candidates at a failed address; after its last address, a candidate waits."""
        for candidate in self._end_dial(address):
            self._fail_address(candidate, now)

    def dial_rested(self, address: str, now: float) -> None:
        """Dial the candidates at an address that rests again later; seeds and proven addresses, at once."""
        for candidate in self._end_dial(address):
            if self._is_proven(candidate, address):
                self._ready[candidate.key] = None
            else:
                self._wait(candidate, now + self._config.contacts.address_rest_s)

    def dial_succeeded(self, address: str, node: NodeId, now: float) -> None:
        """Report the node that answered at an address; candidates for another node lose the address."""
        for candidate in self._end_dial(address):
            if candidate.peer is not None and candidate.peer != node:
                # Another process has that port now, perhaps on another machine: loopback addresses mean the dialling machine
                # itself.
                candidate.addresses.remove(address)
                if not candidate.addresses:
                    self._forget(candidate)
                    continue
                candidate.position -= 1
                self._fail_address(candidate, now)
                continue
            self._find(candidate, node, now)

    def resume(self, now: float) -> None:
        """Wait anew for the reports of running dials after a standstill of this process, which made them late."""
        for address in self._dials:
            self._dial_timeouts.set(address, now + self._config.dial_timeout_s)

    def handle_timeout(self, now: float, size: int) -> None:
        """Make waiting candidates ready for a dial, and give up dials without a report; harmless if early.

        Args:
            now: Monotonic seconds.
            size: The estimated number of nodes in the network.
        """
        for address in self._dial_timeouts.expired(now):
            self._counters.dials_timed_out += 1
            self.dial_failed(address, now)
        for key in self._waiting.expired(now):
            candidate = self._candidates[key]
            known = candidate.found if candidate.peer is None else candidate.peer
            if known is None or not self._is_known(known):
                self._ready[key] = None
            elif candidate.is_seed:
                self._rest(candidate, now, size)
            else:
                self._forget(candidate)

    def request_dials(self, now: float, dials_max: int) -> None:
        """Start the ready dials, untried ones first. Call it once after all inputs of a moment.

        Args:
            now: Monotonic seconds.
            dials_max: The bound of concurrent dials.
        """
        if not self._ready or len(self._dials) > dials_max:
            return
        fresh = [key for key in self._ready if self._candidates[key].failures == 0]
        failed = [key for key in self._ready if self._candidates[key].failures > 0]
        for key in fresh + failed:
            candidate = self._candidates[key]
            address = candidate.addresses[candidate.position]
            dial = self._dials.get(address)
            if dial is None:
                is_retry = candidate.failures > 0
                has_turn = not is_retry or self._retries < max(1, dials_max // 2)
                if len(self._dials) >= dials_max or not has_turn:
                    continue  # another candidate may share a running dial
                is_proven = self._is_proven(candidate, address)
                if candidate.peer is not None and not (is_proven or self._hearsay.charge(candidate.peer, now)):
                    del self._ready[key]
                    self._wait(candidate, now + redial_delay_s(candidate.failures + 1, self._config, self._rng))
                    continue
                dial = self._dials[address] = _RunningDial(is_retry)
                self._retries += is_retry
                self._dial_timeouts.set(address, now + self._config.dial_timeout_s)
                self.requests.append(DialRequested(address, candidate.peer, is_proven))
            dial.candidates[key] = None
            del self._ready[key]

    def deadline(self) -> float | None:
        """Return the earliest time to call `handle_timeout`, or None."""
        first, second = self._waiting.deadline(), self._dial_timeouts.deadline()
        if first is None or second is None:
            return second if first is None else first
        return min(first, second)

    def stop(self) -> None:
        """Stop all dialling."""
        self._is_stopped = True
        self._candidates.clear()
        self._seeds.clear()
        self._lost.clear()
        self._ready.clear()
        self._dials.clear()
        self.requests.clear()
        self._waiting = DeadlineTable()
        self._dial_timeouts = DeadlineTable()

    def _dialable(self, info: NodeInfo) -> list[str]:
        own = self._local.addresses
        return [address for address in self._vantage.order(info) if address not in own]

    def _is_proven(self, candidate: _DialCandidate, address: str) -> bool:
        """Return whether the owner gave an address, or a dial has reached the peer there."""
        return candidate.peer is None or self._hearsay.is_proven(candidate.peer, address)

    def _is_dialled(self, candidate: _DialCandidate) -> bool:
        return candidate.key not in self._ready and candidate.key not in self._waiting

    def _add(self, candidate: _DialCandidate, when: float, now: float) -> None:
        if self._is_stopped or not (candidate.is_seed or self._has_room()):
            self._counters.candidates_refused += 1
            return
        self._candidates[candidate.key] = candidate
        if candidate.is_seed:
            self._seeds[str(candidate.key)] = None
        self._schedule(candidate, when, now)

    def _has_room(self) -> bool:
        if len(self._candidates) - len(self._seeds) < self._config.candidates_max:
            return True
        worst = max((c for c in self._candidates.values() if not c.is_seed), key=lambda c: c.failures, default=None)
        if worst is None or worst.failures == 0:
            return False
        self._forget(worst)
        return True

    def _forget(self, candidate: _DialCandidate) -> None:
        # A running dial for it continues; its outcome is ignored.
        del self._candidates[candidate.key]
        if candidate.peer is not None:
            self._lost.pop(candidate.peer, None)
        self._waiting.cancel(candidate.key)
        self._ready.pop(candidate.key, None)
        for dial in self._dials.values():
            dial.candidates.pop(candidate.key, None)

    def _schedule(self, candidate: _DialCandidate, when: float, now: float) -> None:
        if when > now:
            self._wait(candidate, when)
        else:
            self._waiting.cancel(candidate.key)
            self._ready[candidate.key] = None

    def _wait(self, candidate: _DialCandidate, when: float) -> None:
        candidate.due = when
        self._waiting.set(candidate.key, when)

    def _end_dial(self, address: str) -> list[_DialCandidate]:
        self._dial_timeouts.cancel(address)
        dial = self._dials.pop(address, None)
        if dial is None:
            return []
        self._retries -= dial.is_retry
        return [self._candidates[key] for key in dial.candidates]

    def _fail_address(self, candidate: _DialCandidate, now: float) -> None:
        candidate.position += 1
        if candidate.position < len(candidate.addresses):
            self._ready[candidate.key] = None
            return
        candidate.position = 0
        candidate.found = None
        is_unmet = candidate.peer is not None and not self._hearsay.has_met(candidate.peer)
        if is_unmet and candidate.failures >= self._config.unmet_failures_max - 1:
            self._forget(candidate)
        else:
            self._fail(candidate, now)

    def _fail(self, candidate: _DialCandidate, now: float) -> None:
        candidate.failures = min(candidate.failures + 1, FAILURES_MAX)
        candidate.failed_last = now
        if candidate.failed_first is None:
            candidate.failed_first = now
        if not candidate.is_seed and now - candidate.failed_first >= self._config.forget_s:
            self._forget(candidate)
        else:
            self._wait(candidate, now + redial_delay_s(candidate.failures, self._config, self._rng))

    def _find(self, candidate: _DialCandidate, node: NodeId, now: float) -> None:
        candidate.found = node
        candidate.position = 0
        if node == self._local.id:
            # A name for the local node may denote other nodes too, now or later; an address alone is not worth another dial.
            if candidate.is_seed:
                candidate.failures = FAILURES_MAX
                self._fail(candidate, now)
            else:
                self._forget(candidate)
            return
        self.found.append(node)
        if candidate.is_seed:
            candidate.failures = 0
            candidate.failed_first = None
            self._wait(candidate, now + self._config.redial_delay_s_max)
        else:
            # Success is a claim until the link is open: then its peer is known, and the candidate forgotten.
            self._fail(candidate, now)

    def _rest(self, candidate: _DialCandidate, now: float, size: int) -> None:
        """Let a seed of a known node rest; dial the seed again later, in case it then leads to another ring."""
        candidate.failures = 0
        interval = max(self._config.seed_interval_s, size * self._config.seed_interval_per_node_s)
        self._wait(candidate, now + interval * self._rng.uniform(0.75, 1.25))
