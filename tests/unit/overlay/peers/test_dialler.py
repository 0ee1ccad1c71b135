from __future__ import annotations

import random

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from iris_overlay.config import OverlayConfig
from iris_overlay.events import Counters, DialRequested
from iris_overlay.ids import NodeId
from iris_overlay.node_info import NodeInfo
from iris_overlay.peers.addresses import is_dialable
from iris_overlay.peers.dialler import Dialler, redial_delay_s
from iris_overlay.peers.hearsay import Hearsay
from iris_overlay.peers.vantage import Vantage

CONFIG = OverlayConfig()
LOCAL = NodeInfo(NodeId(b"l" * 16), ("192.0.2.1:7000", "127.0.0.1:7000"))


def peer(number: int, *addresses: str) -> NodeInfo:
    return NodeInfo(NodeId(number.to_bytes(16, "big")), addresses or (f"198.51.100.{number}:7000",))


class Harness:
    """A dialler, with its requests taken after each call."""

    def __init__(self, config: OverlayConfig = CONFIG, *, dials_max: int | None = None) -> None:
        self.counters = Counters()
        self.known: set[NodeId] = set()
        self.dials_max = config.dials_max if dials_max is None else dials_max
        self.hearsay = Hearsay(config.contacts)
        self.dialler = Dialler(LOCAL, config, random.Random(1), self.counters, self.known.__contains__, Vantage(), self.hearsay)

    def take(self, now: float, size: int = 2) -> list[str]:
        self.dialler.handle_timeout(now, size)
        self.dialler.request_dials(now, self.dials_max)
        addresses = [request.address for request in self.dialler.requests]
        self.dialler.requests.clear()
        return addresses

    def is_trying(self) -> bool:
        return self.dialler.is_trying

    def dial_times(self, now: float, until: float) -> list[float]:
        """Fail every dial at once; return when they came."""
        times: list[float] = []
        while True:
            for address in self.take(now):
                times.append(now)
                self.dialler.dial_failed(address, now)
            deadline = self.dialler.deadline()
            if deadline is None or deadline > until:
                return times
            now = deadline


@pytest.mark.parametrize("address", ["0.0.0.0:7000", "[::]:7000", "239.1.2.3:7000", "[ff02::1]:7000"])
def test_unspecified_and_multicast_addresses_are_never_dialled(address: str) -> None:
    assert not is_dialable(address)
    harness = Harness()
    harness.dialler.add_address(address, 0.0, is_seed=True)
    harness.dialler.add_peer(peer(1, address), 0.0, 0.0)
    assert harness.take(0.0) == []


def test_our_own_addresses_are_never_dialled() -> None:
    harness = Harness()
    harness.dialler.add_address("127.0.0.1:7000", 0.0, is_seed=True)
    harness.dialler.add_peer(peer(1, "127.0.0.1:7000", "198.51.100.1:7000"), 0.0, 0.0)
    harness.dialler.add_peer(LOCAL, 0.0, 0.0)
    assert harness.take(0.0) == ["198.51.100.1:7000"]


@given(st.integers(1, 2000), st.integers())
@example(1, 0)
@example(4, 0)
def test_delays_double_and_are_bounded(failures: int, seed: int) -> None:
    limit = min(CONFIG.redial_delay_s_max, CONFIG.redial_delay_s_min * 2 ** min(failures - 1, 20))
    assert limit / 2 <= redial_delay_s(failures, CONFIG, random.Random(seed)) <= limit


def test_dials_are_parallel_and_bounded() -> None:
    harness = Harness()
    for number in range(1, 41):
        harness.dialler.add_peer(peer(number), 0.0, 0.0)
    first = harness.take(0.0)
    assert len(first) == CONFIG.dials_max
    harness.dialler.dial_failed(first[0], 0.0)
    assert harness.dialler.forget(peer(2).id)
    assert len(harness.take(0.0)) == 1  # A link does not end the dial, only its report does.
    harness.dialler.dial_succeeded(first[1], peer(2).id, 0.0)
    assert len(harness.take(0.0)) == 1


def test_fewer_are_dialled_at_once_when_the_owner_says_so() -> None:
    harness = Harness(dials_max=4)
    for number in range(1, 11):
        harness.dialler.add_peer(peer(number), 0.0, 0.0)
    assert len(harness.take(0.0)) == 4
    harness.dials_max = 6
    assert len(harness.take(0.0)) == 2
    harness.dials_max = 2
    harness.dialler.dial_failed("198.51.100.1:7000", 0.0)
    assert harness.take(0.0) == []


def test_the_next_address_is_tried_at_once() -> None:
    harness = Harness()
    harness.dialler.add_peer(peer(1, "a:1", "b:1"), 0.0, 0.0)
    assert harness.take(0.0) == ["a:1"]
    harness.dialler.dial_failed("a:1", 0.0)
    assert harness.take(0.0) == ["b:1"]
    harness.dialler.dial_failed("b:1", 0.0)
    assert harness.take(0.0) == []
    assert 0.05 <= (harness.dialler.deadline() or 0.0) <= 0.1


def test_a_silent_peer_is_dialled_for_a_while_and_then_forgotten() -> None:
    harness = Harness()
    harness.hearsay.meet(peer(1).id, 0.0)
    harness.dialler.look_for(peer(1), 100.0)
    times = harness.dial_times(100.0, 10_000.0)
    assert 100.05 <= times[0] <= 100.1
    assert 0.1 <= times[1] - times[0] <= 0.2
    assert CONFIG.forget_s <= times[-1] - 100.0 <= CONFIG.forget_s + CONFIG.redial_delay_s_max
    # Doubling up to the limit, and then one every 7.5 to 15 s.
    assert CONFIG.forget_s / 15 <= len(times) <= CONFIG.forget_s / 7.5 + 20
    assert len(harness.dialler) == 0


def test_a_peer_that_was_never_met_is_dialled_a_few_times() -> None:
    harness = Harness()
    harness.dialler.add_peer(peer(1), 0.0, 0.0)
    assert len(harness.dial_times(0.0, 10_000.0)) == CONFIG.unmet_failures_max
    assert len(harness.dialler) == 0
    harness.dialler.add_peer(peer(1), 20_000.0, 20_000.0)  # it makes itself heard again
    assert len(harness.dial_times(20_000.0, 30_000.0)) == CONFIG.unmet_failures_max


def test_peers_that_were_never_met_have_one_allowance_together() -> None:
    harness = Harness()
    most = CONFIG.contacts.hearsay_dials_max
    for number in range(200):
        harness.dialler.add_peer(peer(number + 1), 0.0, 0.0)
    times = harness.dial_times(0.0, 100.0)
    assert len(times) <= most + 100.0 * CONFIG.contacts.hearsay_dials_per_s
    assert len(times) >= most


def test_an_address_that_rests_is_dialled_again_later_and_has_not_failed() -> None:
    harness = Harness()
    harness.dialler.add_peer(peer(1, "a.example:1", "b.example:1"), 0.0, 0.0)
    assert harness.take(0.0) == ["a.example:1"]
    again = 0.0
    for _ in range(3):
        harness.dialler.dial_rested("a.example:1", again)
        again += CONFIG.contacts.address_rest_s
        assert harness.take(again - 0.01) == []
        assert harness.dialler.deadline() == again
        assert harness.take(again) == ["a.example:1"]
        assert harness.is_trying()
    harness.dialler.dial_failed("a.example:1", again)
    assert harness.take(again) == ["b.example:1"]


def test_a_seed_is_dialled_at_once_when_the_dial_that_it_shared_was_not_made() -> None:
    harness = Harness()
    harness.dialler.add_peer(peer(1, "seed.example:1"), 0.0, 0.0)
    harness.dialler.request_dials(0.0, 8)
    harness.dialler.add_address("seed.example:1", 0.0, is_seed=True)
    harness.dialler.request_dials(0.0, 8)
    assert harness.dialler.requests == [DialRequested("seed.example:1", peer(1).id)]
    harness.dialler.requests.clear()
    harness.dialler.dial_rested("seed.example:1", 0.1)
    harness.dialler.request_dials(0.1, 8)
    assert harness.dialler.requests == [DialRequested("seed.example:1", None, is_proven=True)]


def test_remembered_addresses_and_those_where_a_peer_was_reached_are_proven() -> None:
    harness = Harness()
    harness.hearsay.reach(peer(1).id, "198.51.100.1:7000", 0.0)
    harness.dialler.add_address("old:1", 0.0)
    for number in (1, 2):
        harness.dialler.add_peer(peer(number), 0.0, 0.0)
    harness.dialler.request_dials(0.0, 8)
    assert [request.is_proven for request in harness.dialler.requests] == [True, True, False]


def test_who_is_looked_for_is_bounded_and_the_latest_stay() -> None:
    harness = Harness(OverlayConfig(lost_max=3))
    for number in range(1, 6):
        harness.dialler.look_for(peer(number), 0.0)
        harness.dialler.look_for(peer(number), 0.0)
    harness.dialler.look_for(NodeInfo(NodeId(b"x" * 16), ()), 0.0)  # Nobody could dial it.
    assert len(harness.dialler) == 3
    assert sorted(harness.take(1.0)) == [f"198.51.100.{number}:7000" for number in (3, 4, 5)]


def test_who_there_is_no_room_for_is_not_looked_for() -> None:
    """While a liar fills the table of candidates, many may fall silent. Nothing is remembered of them."""
    harness = Harness(OverlayConfig(candidates_max=1, lost_max=3))
    harness.dialler.add_peer(peer(200), 0.0, 0.0)
    for number in range(1, 10):
        harness.dialler.look_for(peer(number), 0.0)
    assert harness.counters.candidates_refused == 9
    assert len(harness.dialler) == 1
    assert not harness.dialler._lost


def test_who_is_known_again_is_not_looked_for() -> None:
    harness = Harness()
    harness.dialler.look_for(peer(1), 0.0)
    assert harness.dialler.forget(peer(1).id)
    assert not harness.dialler.forget(peer(1).id)
    harness.dialler.look_for(peer(2), 0.0)
    harness.known.add(peer(2).id)  # Somebody else told of it.
    harness.dialler.add_peer(peer(2), 0.0, 0.0)
    assert harness.take(1.0) == []
    assert len(harness.dialler) == 0


def test_seeds_are_dialled_for_ever_at_a_bounded_rate() -> None:
    harness = Harness()
    harness.dialler.add_address("seed:1", 0.0, is_seed=True)
    times = harness.dial_times(0.0, 10_000.0)
    assert times[-1] > 9_900.0
    assert 10_000 / 15 <= len(times) <= 10_000 / 7.5 + 20


def test_links_that_never_open_are_dialled_ever_more_slowly() -> None:
    harness = Harness()
    harness.dialler.add_peer(peer(1), 0.0, 0.0)
    now, delays = 0.0, []
    for _ in range(12):
        for address in harness.take(now):
            harness.dialler.dial_succeeded(address, peer(1).id, now)
        deadline = harness.dialler.deadline()
        assert deadline is not None
        delays.append(deadline - now)
        now = deadline
    assert max(delays[:2]) < 1.0
    assert delays[-1] >= CONFIG.redial_delay_s_max / 2
    assert len(harness.dialler.found) == 12


def test_a_process_that_took_the_port_of_another() -> None:
    harness = Harness()
    harness.dialler.add_peer(peer(1, "a:1"), 0.0, 0.0)
    harness.dialler.add_peer(peer(2, "a:1", "b:1"), 0.0, 0.0)
    assert harness.take(0.0) == ["a:1"]  # One dial for both.
    harness.dialler.dial_succeeded("a:1", peer(3).id, 0.0)
    assert harness.dialler.found == []  # Nobody asked for that one.
    assert len(harness.dialler) == 1
    assert harness.take(0.0) == ["b:1"]


def test_the_last_address_of_a_peer_that_another_process_took() -> None:
    harness = Harness()
    harness.dialler.add_peer(peer(1, "a:1", "b:1"), 0.0, 0.0)
    harness.take(0.0)
    harness.dialler.dial_failed("a:1", 0.0)
    assert harness.take(0.0) == ["b:1"]
    harness.dialler.dial_succeeded("b:1", peer(3).id, 0.0)
    assert harness.take(0.0) == []
    assert harness.take(1.0) == ["a:1"]  # That one is left.


def test_who_answers_is_found_and_only_once() -> None:
    harness = Harness()
    harness.dialler.add_address("seed:1", 0.0, is_seed=True)
    harness.dialler.add_peer(peer(2), 0.0, 0.0)
    assert harness.take(0.0) == ["seed:1", "198.51.100.2:7000"]
    harness.dialler.dial_succeeded("seed:1", peer(1).id, 0.0)
    harness.dialler.dial_succeeded("seed:1", peer(1).id, 0.0)
    harness.dialler.dial_succeeded("198.51.100.2:7000", peer(2).id, 0.0)
    harness.dialler.dial_succeeded("nobody:1", peer(3).id, 0.0)
    assert harness.dialler.found == [peer(1).id, peer(2).id]


def test_a_name_that_is_ourselves() -> None:
    harness = Harness()
    harness.dialler.add_address("seed:1", 0.0, is_seed=True)
    harness.dialler.add_address("remembered:1", 0.0)
    assert harness.is_trying()
    for address in harness.take(0.0):
        harness.dialler.dial_succeeded(address, LOCAL.id, 0.0)
    assert harness.dialler.found == []
    assert not harness.is_trying()
    assert len(harness.dialler) == 1
    assert harness.take(7.0) == []
    assert harness.take(15.0) == ["seed:1"]  # A name can denote several hosts.


def test_trying_ends_with_the_first_outcome_of_everybody() -> None:
    harness = Harness(dials_max=1)
    harness.dialler.add_address("seed:1", 0.0, is_seed=True)
    harness.dialler.add_address("old:1", 0.0)
    assert harness.take(0.0) == ["seed:1"]
    harness.dialler.dial_failed("seed:1", 0.0)
    assert harness.is_trying()  # The other one waits for its turn.
    assert harness.take(0.0) == ["old:1"]
    harness.dialler.dial_failed("old:1", 0.0)
    assert not harness.is_trying()


@pytest.mark.parametrize(("size", "shortest"), [(2, 0.75 * CONFIG.seed_interval_s), (1000, 75.0)])
def test_a_seed_whose_peer_is_known_is_looked_at_now_and_then(size: int, shortest: float) -> None:
    harness = Harness()
    harness.dialler.add_address("seed:1", 0.0, is_seed=True)
    harness.take(0.0)
    harness.dialler.dial_succeeded("seed:1", peer(1).id, 0.0)
    harness.known.add(peer(1).id)
    rests_from = harness.dialler.deadline()
    assert rests_from is not None
    assert harness.take(rests_from, size) == []
    again = harness.dialler.deadline()
    assert again is not None
    assert shortest <= again - rests_from <= shortest / 0.75 * 1.25
    harness.known.clear()
    assert harness.take(again, size) == ["seed:1"]


def test_a_remembered_address_whose_peer_is_known_is_done() -> None:
    harness = Harness()
    harness.dialler.add_address("old:1", 0.0)
    harness.take(0.0)
    harness.dialler.dial_succeeded("old:1", peer(1).id, 0.0)
    harness.known.add(peer(1).id)
    assert harness.take(60.0) == []
    assert len(harness.dialler) == 0


def test_a_seed_that_does_not_answer_any_more_is_not_taken_for_its_old_peer() -> None:
    harness = Harness()
    harness.dialler.add_address("seed:1", 0.0, is_seed=True)
    harness.take(0.0)
    harness.dialler.dial_succeeded("seed:1", peer(1).id, 0.0)
    assert harness.take(CONFIG.redial_delay_s_max) == ["seed:1"]  # No link came of it.
    harness.dialler.dial_failed("seed:1", 20.0)
    harness.known.add(peer(1).id)  # From elsewhere.
    assert harness.take(21.0) == ["seed:1"]


def test_a_seed_that_was_found_waits_as_after_its_first_failure_when_it_fails_again() -> None:
    harness = Harness()
    harness.dialler.add_address("seed:1", 0.0, is_seed=True)
    now = harness.dial_times(0.0, 60.0)[-1] + CONFIG.redial_delay_s_max
    assert harness.take(now) == ["seed:1"]
    harness.dialler.dial_succeeded("seed:1", peer(1).id, now)
    now += CONFIG.redial_delay_s_max
    assert harness.take(now) == ["seed:1"]
    harness.dialler.dial_failed("seed:1", now)
    assert harness.take(now + CONFIG.redial_delay_s_min) == ["seed:1"]


def test_what_nobody_tried_is_forgotten_when_a_ring_was_found() -> None:
    harness = Harness(dials_max=2)
    harness.dialler.add_address("seed:1", 0.0, is_seed=True)
    for number in range(10):
        harness.dialler.add_address(f"old:{number + 1}", 0.0)
    assert harness.take(0.0) == ["seed:1", "old:1"]
    harness.dialler.forget_untried(3)
    assert len(harness.dialler) == 5
    harness.dialler.dial_failed("old:1", 0.0)
    harness.dialler.forget_untried(0)
    assert len(harness.dialler) == 2  # The seed, and the one that failed.


def test_a_success_without_a_link_is_tried_again() -> None:
    harness = Harness()
    harness.dialler.add_peer(peer(1), 0.0, 0.0)
    (address,) = harness.take(0.0)
    harness.dialler.dial_succeeded(address, peer(1).id, 0.0)
    assert harness.take(0.2) == [address]


def test_a_dial_without_report_ends() -> None:
    harness = Harness(dials_max=1)
    harness.dialler.add_peer(peer(1), 0.0, 0.0)
    harness.dialler.add_peer(peer(2), 0.0, 0.0)
    assert len(harness.take(0.0)) == 1
    assert harness.take(9.9) == []
    assert harness.take(10.0) == ["198.51.100.2:7000"]
    assert harness.counters.dials_timed_out == 1
    harness.dialler.dial_failed("198.51.100.1:7000", 10.5)  # Late, and harmless.


def test_black_holes_leave_room_for_newcomers() -> None:
    harness = Harness()
    for number in range(1, 31):
        harness.dialler.add_peer(peer(number), 0.0, 0.0)
    for _ in range(2):
        for address in harness.take(0.0):
            harness.dialler.dial_failed(address, 0.0)
    assert len(harness.take(1.0)) == CONFIG.dials_max // 2
    harness.dialler.add_peer(peer(99), 1.0, 1.0)
    assert harness.take(1.0) == ["198.51.100.99:7000"]


def test_when_few_are_dialled_at_once_one_is_a_retry_at_a_time() -> None:
    harness = Harness(dials_max=3)
    for number in (1, 2, 3):
        harness.dialler.add_peer(peer(number), 0.0, 0.0)
    for address in harness.take(0.0):
        harness.dialler.dial_failed(address, 0.0)
    for _ in range(3):
        (address,) = harness.take(1.0)
        harness.dialler.dial_failed(address, 1.0)


def test_where_one_is_dialled_at_a_time_that_may_be_a_retry() -> None:
    harness = Harness(dials_max=1)
    harness.dialler.add_peer(peer(1), 0.0, 0.0)
    assert harness.take(0.0) == ["198.51.100.1:7000"]
    harness.dialler.dial_failed("198.51.100.1:7000", 0.0)
    assert harness.take(1.0) == ["198.51.100.1:7000"]


def test_who_waits_for_a_dial_shares_one_to_its_address_that_is_under_way() -> None:
    harness = Harness(dials_max=1)
    harness.dialler.add_peer(peer(1, "a:1"), 0.0, 0.0)
    harness.dialler.add_peer(peer(2, "b:1"), 0.0, 0.0)
    harness.dialler.add_peer(peer(3, "a:1"), 0.0, 0.0)
    assert harness.take(0.0) == ["a:1"]
    harness.dialler.dial_succeeded("a:1", peer(3).id, 0.0)
    assert harness.dialler.found == [peer(3).id]


def test_the_deadline_is_that_of_a_wait_or_of_a_dial_whichever_is_first() -> None:
    harness = Harness()
    harness.dialler.add_peer(peer(1), 0.0, 0.0)
    harness.take(0.0)
    for waits_until in (5.0, 20.0):
        harness.dialler.add_peer(peer(2), waits_until, 0.0)
        assert harness.dialler.deadline() == min(waits_until, CONFIG.dial_timeout_s)
        harness.dialler.forget(peer(2).id)


def test_who_is_known_is_not_looked_for_by_its_beacon() -> None:
    harness = Harness()
    harness.known.add(peer(1).id)
    harness.dialler.add_peer(peer(1), 0.0, 0.0)
    assert len(harness.dialler) == 0


def test_candidates_are_bounded_and_failures_make_room() -> None:
    harness = Harness(OverlayConfig(candidates_max=2))
    harness.dialler.add_address("seed:1", 0.0, is_seed=True)
    for number in (1, 2, 3):
        harness.dialler.add_peer(peer(number), 0.0, 0.0)
    assert harness.counters.candidates_refused == 1
    harness.take(0.0)
    harness.dialler.dial_failed("198.51.100.2:7000", 0.0)
    harness.dialler.add_peer(peer(4), 0.0, 0.0)
    assert len(harness.dialler) == 3
    assert harness.take(0.0) == ["198.51.100.4:7000"]


def test_a_sign_of_life_shortens_a_long_wait_but_not_right_after_a_failure() -> None:
    harness = Harness()
    harness.hearsay.meet(peer(1).id, 0.0)
    harness.dialler.add_peer(peer(1), 0.0, 0.0)
    last = harness.dial_times(0.0, 60.0)[-1]
    harness.dialler.add_peer(peer(1), last + 1.0, last + 1.0)
    assert harness.take(last + 1.0) == []
    harness.dialler.add_peer(peer(1), last + 4.0, last + 4.0)
    assert harness.take(last + 4.0) == ["198.51.100.1:7000"]


def test_stopping_ends_everything() -> None:
    harness = Harness()
    harness.dialler.add_address("seed:1", 0.0, is_seed=True)
    harness.dialler.add_address("dialled:1", 0.0)
    harness.take(0.0)
    harness.dialler.stop()
    harness.dialler.add_peer(peer(1), 0.0, 0.0)
    harness.dialler.look_for(peer(2), 0.0)
    harness.dialler.forget_untried(0)
    assert harness.take(1.0) == []
    harness.dialler.dial_succeeded("dialled:1", peer(3).id, 0.0)
    assert harness.dialler.found == []
    assert harness.dialler.deadline() is None
    harness.dialler.dial_failed("seed:1", 0.0)
