from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from overlay.config import OverlayConfig
from overlay.counters import Counters
from overlay.dialling import DEPARTED_MAX, Dialler, is_dialable, parse_address, redial_delay_s
from overlay.errors import AddressError
from overlay.ids import NodeId
from overlay.messages import NodeInfo

CONFIG = OverlayConfig()
LOCAL = NodeInfo(NodeId(b"l" * 16), ("192.0.2.1:7000", "127.0.0.1:7000"))


def peer(number: int, *addresses: str) -> NodeInfo:
    return NodeInfo(NodeId(number.to_bytes(16, "big")), addresses or (f"198.51.100.{number}:7000",))


class Harness:
    """A dialler, with its requests taken after each call."""

    def __init__(self, config: OverlayConfig = CONFIG) -> None:
        self.counters = Counters()
        self.dialler = Dialler(LOCAL, config, random.Random(1), self.counters)

    def take(self, now: float) -> list[str]:
        self.dialler.handle_timeout(now)
        self.dialler.request_dials(now)
        addresses = [request.address for request in self.dialler.requests]
        self.dialler.requests.clear()
        return addresses

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


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("a:1", ("a", 1)),
        ("192.0.2.1:65535", ("192.0.2.1", 65535)),
        ("[::1]:7", ("::1", 7)),
        ("[fe80::1%eth0]:7", ("fe80::1%eth0", 7)),
    ],
)
def test_addresses(address: str, expected: tuple[str, int]) -> None:
    assert parse_address(address) == expected


@pytest.mark.parametrize(
    "address",
    [
        "",
        ":",
        "a",
        "a:",
        ":1",
        "a:0",
        "a:65536",
        "a:-1",
        "a:+1",
        "a: 1",
        "::1:7",
        "[]:7",
        "a:" + "9" * 5000,
        "a:\u0661",
        "h" * 300 + ":1",
    ],
)
def test_no_addresses(address: str) -> None:
    with pytest.raises(AddressError):
        parse_address(address)
    assert not is_dialable(address)


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
    harness.dialler.link_opened(peer(2).id, 0.0)
    assert len(harness.take(0.0)) == 1  # A link does not end the dial, only its report does.
    harness.dialler.dial_succeeded(first[1], peer(2).id, 0.0)
    assert len(harness.take(0.0)) == 1


def test_the_next_address_is_tried_at_once() -> None:
    harness = Harness()
    harness.dialler.add_peer(peer(1, "a:1", "b:1"), 0.0, 0.0)
    assert harness.take(0.0) == ["a:1"]
    harness.dialler.dial_failed("a:1", 0.0)
    assert harness.take(0.0) == ["b:1"]
    harness.dialler.dial_failed("b:1", 0.0)
    assert harness.take(0.0) == []
    assert 0.05 <= (harness.dialler.deadline() or 0.0) <= 0.1


def test_a_lost_peer_is_dialled_for_a_while_and_then_forgotten() -> None:
    harness = Harness()
    harness.dialler.link_opened(peer(1).id, 0.0)
    harness.dialler.link_lost(peer(1), 100.0, is_departed=False, is_violator=False)
    times = harness.dial_times(100.0, 10_000.0)
    assert 100.05 <= times[0] <= 100.1
    assert 15 <= len(times) <= 35
    assert CONFIG.forget_s <= times[-1] - 100.0 <= CONFIG.forget_s + CONFIG.redial_delay_s_max
    assert len(harness.dialler) == 0


def test_seeds_are_dialled_for_ever_at_a_bounded_rate() -> None:
    harness = Harness()
    harness.dialler.add_address("seed:1", 0.0, is_seed=True)
    times = harness.dial_times(0.0, 10_000.0)
    assert times[-1] > 9_900.0
    assert 10_000 / 30 <= len(times) <= 10_000 / 15 + 20


def test_who_left_is_not_dialled_whatever_others_say() -> None:
    harness = Harness()
    harness.dialler.link_opened(peer(1).id, 0.0)
    harness.dialler.link_lost(peer(1), 1.0, is_departed=True, is_violator=False)
    harness.dialler.add_peer(peer(1), 2.0, 2.0)
    assert harness.dial_times(2.0, 1000.0) == []


def test_the_departed_are_bounded() -> None:
    harness = Harness()
    for number in range(DEPARTED_MAX + 10):
        harness.dialler.link_opened(peer(number).id, 0.0)
        harness.dialler.link_lost(peer(number), 1.0, is_departed=True, is_violator=False)
    assert harness.dialler.departed_count == DEPARTED_MAX


def test_a_violator_waits_long() -> None:
    harness = Harness()
    harness.dialler.link_opened(peer(1).id, 0.0)
    harness.dialler.link_lost(peer(1), 100.0, is_departed=False, is_violator=True)
    assert (harness.dialler.deadline() or 0.0) >= 115.0


def test_links_that_break_early_are_dialled_ever_more_slowly() -> None:
    harness = Harness()
    harness.dialler.add_address("198.51.100.1:7000", 0.0, is_seed=True)
    harness.dialler.add_peer(peer(1), 0.0, 0.0)
    now, delays = 0.0, []
    for _ in range(12):
        for address in harness.take(now):
            harness.dialler.dial_succeeded(address, peer(1).id, now)
        harness.dialler.link_opened(peer(1).id, now)
        harness.dialler.link_lost(peer(1), now, is_departed=False, is_violator=False)
        deadline = harness.dialler.deadline()
        assert deadline is not None
        delays.append(deadline - now)
        now = deadline
    assert max(delays[:2]) < 1.0
    assert delays[-1] > 10.0


def test_a_process_that_took_the_port_of_another() -> None:
    harness = Harness()
    harness.dialler.is_searching = True
    harness.dialler.add_peer(peer(1, "a:1"), 0.0, 0.0)
    harness.dialler.add_peer(peer(2, "a:1", "b:1"), 0.0, 0.0)
    assert harness.take(0.0) == ["a:1"]  # One dial for both.
    harness.dialler.dial_succeeded("a:1", peer(3).id, 0.0)
    assert peer(1).id not in harness.dialler.awaited
    assert len(harness.dialler) == 1
    assert harness.take(0.0) == ["b:1"]


def test_a_name_that_is_ourselves() -> None:
    harness = Harness()
    harness.dialler.is_searching = True
    harness.dialler.add_address("seed:1", 0.0, is_seed=True)
    harness.dialler.add_address("remembered:1", 0.0)
    for address in harness.take(0.0):
        harness.dialler.dial_succeeded(address, LOCAL.id, 0.0)
    assert not harness.dialler.awaited
    assert len(harness.dialler) == 1
    assert harness.take(14.0) == []
    assert harness.take(30.0) == ["seed:1"]  # A name can denote several hosts.


def test_a_seed_whose_peer_is_live_rests_and_wakes_when_it_is_lost() -> None:
    harness = Harness()
    harness.dialler.add_address("seed:1", 0.0, is_seed=True)
    harness.take(0.0)
    harness.dialler.dial_succeeded("seed:1", peer(1).id, 0.0)
    harness.dialler.link_opened(peer(1).id, 0.0)
    for now in range(1, 200):
        assert harness.take(float(now)) == []
    harness.dialler.link_lost(peer(1), 200.0, is_departed=True, is_violator=False)
    assert harness.take(200.2) == ["seed:1"]


def test_a_seed_that_does_not_answer_any_more_is_not_taken_for_its_old_peer() -> None:
    harness = Harness()
    harness.dialler.add_address("seed:1", 0.0, is_seed=True)
    harness.take(0.0)
    harness.dialler.dial_succeeded("seed:1", peer(1).id, 0.0)
    assert harness.take(1.0) == ["seed:1"]  # No link came of it.
    harness.dialler.dial_failed("seed:1", 1.0)
    harness.dialler.link_opened(peer(1).id, 1.0)  # From elsewhere.
    assert harness.take(2.0) == ["seed:1"]


def test_a_success_without_a_link_is_tried_again() -> None:
    harness = Harness()
    harness.dialler.add_peer(peer(1), 0.0, 0.0)
    (address,) = harness.take(0.0)
    harness.dialler.dial_succeeded(address, peer(1).id, 0.0)
    assert harness.take(0.2) == [address]


def test_a_dial_without_report_ends() -> None:
    harness = Harness(OverlayConfig(dials_max=1))
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
    harness.dialler.add_peer(peer(1), 0.0, 0.0)
    last = harness.dial_times(0.0, 60.0)[-1]
    harness.dialler.add_peer(peer(1), last + 1.0, last + 1.0)
    assert harness.take(last + 1.0) == []
    harness.dialler.add_peer(peer(1), last + 4.0, last + 4.0)
    assert harness.take(last + 4.0) == ["198.51.100.1:7000"]


def test_nobody_is_dialled_when_all_links_are_in_use() -> None:
    harness = Harness(OverlayConfig(peers_max=1))
    harness.dialler.link_opened(peer(1).id, 0.0)
    harness.dialler.add_peer(peer(2), 0.0, 0.0)
    assert harness.take(0.0) == []
    harness.dialler.link_lost(peer(1), 1.0, is_departed=True, is_violator=False)
    assert harness.take(1.0) == ["198.51.100.2:7000"]


def test_stopping_ends_everything() -> None:
    harness = Harness()
    harness.dialler.add_address("seed:1", 0.0, is_seed=True)
    harness.dialler.stop()
    harness.dialler.add_peer(peer(1), 0.0, 0.0)
    assert harness.take(0.0) == []
    assert harness.dialler.deadline() is None
    harness.dialler.dial_failed("seed:1", 0.0)
