from __future__ import annotations

import itertools
import random

import pytest

from iris_overlay.config import OverlayConfig
from iris_overlay.events import Counters
from iris_overlay.ids import NodeId
from iris_overlay.node_info import DATAGRAM_BYTES_MAX, NodeInfo, decode_beacon, encode_beacon
from iris_overlay.peers.dialler import Dialler
from iris_overlay.peers.discovery import ANSWERS_PENDING_MAX, Discovery, Familiarity
from iris_overlay.peers.hearsay import Hearsay
from iris_overlay.peers.vantage import Vantage

CONFIG = OverlayConfig()
LOCAL = NodeInfo(NodeId(b"l" * 16), ("192.0.2.1:7000",))


def stranger(number: int) -> NodeInfo:
    return NodeInfo(NodeId(number.to_bytes(16, "big")), (f"198.51.100.{number % 250}:7000",))


def source(number: int) -> tuple[str, int]:
    return ("198.51.100.1", 10_000 + number)


class Harness:
    def __init__(
        self,
        *,
        local: NodeInfo = LOCAL,
        beacons: bool = True,
        is_complete: bool = False,
        seed: int = 1,
        seeds: tuple[str, ...] = (),
        remembered: tuple[str, ...] = (),
    ) -> None:
        self.counters = Counters()
        self.strangers: dict[NodeId, Familiarity] = {}
        rng = random.Random(seed)
        self.dialler = Dialler(local, CONFIG, rng, self.counters, lambda node: False, Vantage(), Hearsay(CONFIG.contacts))
        self.discovery = Discovery(
            local, CONFIG, rng, self.dialler, self.counters, lambda node: self.strangers.get(node, Familiarity.NEIGHBOUR)
        )
        self.discovery.start(0.0, seeds, remembered, beacons=beacons, is_complete=is_complete)

    def is_over(self, *, has_link: bool = False, is_linking: bool = False) -> bool:
        return self.discovery.should_start_alone(has_link=has_link, is_linking=is_linking)

    def hear(self, number: int, now: float, peers: int, *, wants_answer: bool = True, their_peers: int = 0) -> bytes:
        data = encode_beacon(stranger(number), wants_answer=wants_answer, peers=their_peers)
        assert data is not None
        self.discovery.receive_datagram(stranger(number).id, data, source(number), now, peers)
        return data

    def take(self) -> list[tuple[tuple[str, int] | None, bytes]]:
        datagrams, self.discovery.datagrams = self.discovery.datagrams, []
        return datagrams

    def dials(self, now: float) -> list[str]:
        self.dialler.handle_timeout(now, 2)
        self.dialler.request_dials(now, CONFIG.dials_max)
        return [request.address for request in self.dialler.requests]


@pytest.mark.parametrize("is_connected", [False, True])
def test_after_a_standstill_the_search_has_its_time_again(is_connected: bool) -> None:
    """Answers may lie unread in the sockets: a node that began alone at once would make a ring of its own."""
    harness = Harness(seeds=("192.0.2.9:7000",))
    if is_connected:
        harness.discovery.dial_connected(0.0)
    harness.discovery.resume(12.0)
    harness.discovery.handle_timeout(12.0, 0)
    assert not harness.is_over()
    assert not harness.is_over(has_link=True)
    wait_s = CONFIG.handshake_wait_s if is_connected else CONFIG.settle_timeout_s
    harness.discovery.handle_timeout(12.0 + wait_s - 0.01, 0)
    assert not harness.is_over()
    harness.discovery.handle_timeout(12.0 + wait_s, 0)
    assert harness.is_over()
    assert not harness.is_over(has_link=True)
    harness.discovery.handle_timeout(12.0 + CONFIG.join_timeout_s, 0)
    assert harness.is_over(has_link=True)


def test_after_a_standstill_beacons_have_time_to_be_answered() -> None:
    harness = Harness()
    harness.discovery.resume(12.0)
    harness.discovery.handle_timeout(12.0, 0)
    assert not harness.is_over()
    harness.discovery.handle_timeout(12.0 + CONFIG.beacon_wait_s, 0)
    assert harness.is_over()


def test_the_first_beacon_asks() -> None:
    ((destination, data),) = Harness().take()
    assert destination is None
    assert decode_beacon(data).wants_answer


def test_a_lonely_node_asks_for_ever() -> None:
    harness = Harness()
    times = []
    now = 0.0
    harness.take()
    while now < 60.0:
        now = harness.discovery.deadline() or 1e9
        harness.discovery.handle_timeout(now, 0)
        times += [now for _, data in harness.take() if decode_beacon(data).wants_answer]
    gaps = [later - earlier for earlier, later in itertools.pairwise(times)]
    assert all(2.4 <= gap <= 3.6 for gap in gaps)
    assert len(gaps) > 15


def test_with_peers_it_only_says_that_it_exists_and_ever_more_rarely() -> None:
    harness = Harness()
    harness.take()
    harness.discovery.handle_timeout(10.0, 500)
    ((_, data),) = harness.take()
    assert not decode_beacon(data).wants_answer
    interval = 500 * CONFIG.beacon_interval_per_peer_s
    assert 10.0 + 0.8 * interval <= (harness.discovery.deadline() or 0.0) <= 10.0 + 1.2 * interval


def test_a_question_is_answered_by_a_lonely_node_at_once_and_not_amplified() -> None:
    harness = Harness(local=NodeInfo(LOCAL.id, tuple(f"host{n}.{'x' * 200}:7000" for n in range(8)), "z" * 64))
    harness.take()
    question = harness.hear(1, 0.0, peers=0)
    ((destination, answer),) = harness.take()
    assert destination == source(1)
    assert not decode_beacon(answer).wants_answer
    assert 0 < len(answer) <= len(question) < DATAGRAM_BYTES_MAX


def test_a_question_smaller_than_its_answer_is_not_answered_but_dialled() -> None:
    harness = Harness(local=NodeInfo(LOCAL.id, ("h" * 255 + ":7000",), "z" * 64))
    harness.take()
    data = encode_beacon(stranger(1), wants_answer=False, peers=0)
    assert data is not None
    small = data.replace(b"\xc2", b"\xc3", 1)  # wants_answer, without the padding
    assert decode_beacon(small).wants_answer
    harness.discovery.receive_datagram(stranger(1).id, small, source(1), 0.0, 0)
    assert harness.take() == []
    assert harness.counters.answers_suppressed == 1
    assert harness.dials(0.0) == ["198.51.100.1:7000"]


def test_about_six_of_many_answer_after_a_jitter() -> None:
    answers = 0
    for seed in range(300):
        harness = Harness(seed=seed)
        harness.take()
        harness.hear(1, 1.0, peers=99)
        assert harness.take() == []
        harness.discovery.handle_timeout(1.0 + CONFIG.beacon_jitter_s, 99)
        answers += sum(destination is not None for destination, _ in harness.take())
    # 300 of 100 nodes each with probability 0.06: 18 expected.
    assert 6 <= answers <= 35


def test_answers_are_bounded_per_second() -> None:
    harness = Harness()
    harness.take()
    for number in range(1, CONFIG.answers_per_s_max + 50):
        harness.hear(number, 1.0, peers=0)
    assert len(harness.take()) == CONFIG.answers_per_s_max
    harness.hear(300, 2.0, peers=0)
    assert len(harness.take()) == 1


def test_a_start_that_hears_nobody_asks_once_more_before_it_settles() -> None:
    harness = Harness()
    assert len(harness.take()) == 1
    harness.discovery.handle_timeout(CONFIG.beacon_wait_s / 2, 0)
    assert len(harness.take()) == 1
    harness.discovery.handle_timeout(CONFIG.beacon_wait_s, 0)
    assert harness.take() == []
    assert harness.is_over()


def test_one_source_gets_one_answer_at_a_time() -> None:
    harness = Harness()
    harness.take()
    for _ in range(100):
        harness.hear(1, 1.0, peers=8)
    harness.discovery.handle_timeout(1.1, 8)
    assert len(harness.take()) == 1
    assert harness.counters.answers_suppressed == 0  # It did not use up the answers of others either.


def test_answers_that_wait_are_bounded() -> None:
    harness = Harness()
    harness.take()
    number, now = 0, 1.0
    while harness.discovery.answers_count < ANSWERS_PENDING_MAX:
        number += 1
        now += 0.5
        harness.hear(number, now, peers=8)  # Nobody calls handle_timeout.
    suppressed = harness.counters.answers_suppressed
    for _ in range(100):
        number += 1
        now += 0.5
        harness.hear(number, now, peers=8)
    assert harness.discovery.answers_count == ANSWERS_PENDING_MAX
    assert harness.counters.answers_suppressed > suppressed
    harness.discovery.handle_timeout(now + 1.0, 8)
    assert harness.discovery.answers_count == 0
    assert sum(destination is not None for destination, _ in harness.take()) == ANSWERS_PENDING_MAX


def test_our_own_beacon_and_those_of_nodes_that_are_known_are_ignored() -> None:
    harness = Harness()
    ((_, own),) = harness.take()
    harness.discovery.receive_datagram(LOCAL.id, own, source(0), 0.0, 0)
    harness.strangers[stranger(1).id] = Familiarity.KNOWN
    harness.hear(1, 0.0, peers=1)
    assert harness.take() == []
    assert harness.dials(5.0) == []


def test_of_many_that_hear_a_stranger_about_one_dials_it_unless_it_belongs_next_to_us() -> None:
    dials = 0
    for seed in range(400):
        far = Harness(seed=seed)
        far.strangers[stranger(1).id] = Familiarity.FAR
        far.hear(1, 0.0, peers=99, wants_answer=False)
        dials += len(far.dials(CONFIG.beacon_dial_jitter_s))
    assert 1 <= dials <= 12  # 400 of 100 nodes each: four expected.
    near = Harness()
    near.hear(1, 0.0, peers=99, wants_answer=False)
    assert near.dials(CONFIG.beacon_dial_jitter_s) == ["198.51.100.1:7000"]


def test_nobody_announces_another_node() -> None:
    harness = Harness()
    data = encode_beacon(stranger(1), wants_answer=True, peers=0)
    assert data is not None
    harness.take()
    harness.discovery.receive_datagram(stranger(2).id, data, source(2), 0.0, 0)
    assert harness.counters.datagrams_invalid == 1
    assert not harness.take()
    assert not harness.dials(CONFIG.beacon_dial_jitter_s)


def test_junk_is_counted() -> None:
    harness = Harness()
    harness.discovery.receive_datagram(stranger(0).id, b"junk", source(0), 0.0, 0)
    harness.discovery.receive_datagram(stranger(0).id, b"", source(0), 0.0, 0)
    assert harness.counters.datagrams_invalid == 2


def test_who_took_a_connection_is_waited_for_though_it_is_busy() -> None:
    harness = Harness(beacons=False, seeds=("198.51.100.1:7000",))
    harness.dials(0.0)
    harness.discovery.dial_connected(0.9)
    harness.discovery.handle_timeout(CONFIG.settle_timeout_s, 0)
    assert not harness.is_over()
    harness.discovery.handle_timeout(0.9 + CONFIG.handshake_wait_s, 0)
    assert harness.is_over()


def test_an_answer_is_dialled_at_once_by_who_is_alone_and_later_by_who_is_not() -> None:
    alone = Harness()
    alone.hear(1, 0.0, peers=0, wants_answer=False)
    assert alone.dials(0.0) == ["198.51.100.1:7000"]
    among_many = Harness()
    among_many.hear(1, 0.0, peers=10, wants_answer=False)
    assert among_many.dials(0.2) == []
    assert among_many.dials(CONFIG.beacon_dial_jitter_s) == ["198.51.100.1:7000"]


def test_of_several_addresses_in_a_beacon_the_one_that_it_came_from_is_dialled_first() -> None:
    harness, host = Harness(), "198.51.100.1"
    info = NodeInfo(stranger(1).id, ("203.0.113.1:7000", f"{host}:7000"))
    data = encode_beacon(info, wants_answer=False, peers=0)
    assert data is not None
    harness.discovery.receive_datagram(info.id, data, (host, 7000), 0.0, 0)
    assert harness.dials(0.0) == [f"{host}:7000"]
    harness.dialler.dial_failed(f"{host}:7000", 0.1)
    assert harness.dials(0.1) == [f"{host}:7000", "203.0.113.1:7000"]


def test_the_smaller_network_dials_first() -> None:
    smaller = Harness()
    smaller.hear(1, 0.0, peers=10, wants_answer=False, their_peers=50)
    assert smaller.dials(0.25 * 0.25 * CONFIG.beacon_dial_jitter_s) == []  # One of its nodes is first.
    assert smaller.dials(0.25 * CONFIG.beacon_dial_jitter_s) == ["198.51.100.1:7000"]


def test_who_was_answered_is_dialled_later_in_case_the_answer_was_lost() -> None:
    harness = Harness()
    harness.hear(1, 0.0, peers=0)
    assert harness.dials(0.2) == []
    assert harness.dials(1.0) == ["198.51.100.1:7000"]


def test_a_node_without_addresses_is_silent() -> None:
    harness = Harness(local=NodeInfo(LOCAL.id, ()))
    assert harness.take() == []
    harness.hear(1, 0.0, peers=0)
    assert harness.take() == []
    assert harness.dials(0.0) == ["198.51.100.1:7000"]


def test_without_beacons_nothing_is_heard_or_said() -> None:
    harness = Harness(beacons=False)
    harness.hear(1, 0.0, peers=0)
    assert harness.take() == []
    assert harness.dials(5.0) == []
    assert harness.is_over()


def test_a_search_waits_for_answers_to_its_beacon() -> None:
    harness = Harness()
    assert not harness.is_over()
    harness.discovery.handle_timeout(CONFIG.beacon_wait_s, 0)
    assert harness.is_over()
    assert Harness(is_complete=True).is_over()


def test_a_search_waits_for_every_dial_but_not_for_ever() -> None:
    harness = Harness(seeds=("seed:1",), remembered=("old:1",), beacons=False)
    assert sorted(harness.dials(0.0)) == ["old:1", "seed:1"]
    harness.dialler.dial_failed("old:1", 0.1)
    assert not harness.is_over()
    harness.discovery.handle_timeout(CONFIG.settle_timeout_s, 0)
    assert harness.is_over()
    failed = Harness(seeds=("seed:1",), beacons=False)
    failed.dials(0.0)
    failed.dialler.dial_failed("seed:1", 0.1)
    assert failed.is_over()


def test_who_was_heard_before_the_wait_ended_is_part_of_the_search() -> None:
    harness = Harness()
    harness.hear(1, 0.01, peers=0, wants_answer=False)
    harness.discovery.handle_timeout(0.5, 0)
    assert not harness.is_over()
    harness.discovery.handle_timeout(CONFIG.settle_timeout_s, 0)
    assert harness.is_over()


@pytest.mark.parametrize("is_linking", [True, False])
def test_with_a_link_it_waits_longer_and_then_believes_that_the_contact_is_stuck(is_linking: bool) -> None:
    harness = Harness(is_complete=True)
    assert not harness.is_over(has_link=True, is_linking=is_linking)
    harness.discovery.handle_timeout(CONFIG.settle_timeout_s, 0)
    assert not harness.is_over(has_link=True, is_linking=is_linking)
    harness.discovery.handle_timeout(CONFIG.join_timeout_s, 0)
    assert harness.is_over(has_link=True, is_linking=is_linking)


def test_a_link_that_is_about_to_open_is_waited_for_until_the_bound() -> None:
    harness = Harness(is_complete=True)
    assert not harness.is_over(is_linking=True)
    harness.discovery.handle_timeout(CONFIG.settle_timeout_s, 0)
    assert harness.is_over(is_linking=True)


def test_settling_keeps_a_few_addresses_and_asks_no_more() -> None:
    harness = Harness(seeds=("seed:1",), remembered=tuple(f"old:{number}" for number in range(1, 50)))
    harness.take()
    harness.discovery.settle()
    assert harness.discovery.is_settled
    assert len(harness.dialler) == 1 + CONFIG.remembered_max
    harness.discovery.handle_timeout(1.0, 0)
    assert harness.take() == []
    harness.discovery.handle_timeout(10.0, 3)
    ((_, data),) = harness.take()
    assert not decode_beacon(data).wants_answer


def test_those_who_start_together_do_not_go_to_the_same_few() -> None:
    remembered = tuple(f"old:{number}" for number in range(1, 101))
    first = {tuple(Harness(seed=seed, remembered=remembered).dials(0.0)) for seed in range(5)}
    assert len(first) == 5
    assert Harness(seed=7, remembered=remembered).dials(0.0) == Harness(seed=7, remembered=remembered).dials(0.0)


def test_stopping_is_silent() -> None:
    harness = Harness()
    harness.hear(1, 0.0, peers=8)
    harness.discovery.stop()
    harness.discovery.stop()
    harness.hear(2, 0.0, peers=0)
    harness.discovery.handle_timeout(100.0, 0)
    assert harness.take() == []
    assert harness.dials(100.0) == []
    assert harness.discovery.deadline() is None


class Chance(random.Random):
    """A source of randomness that says what the test wants."""

    def __init__(self, value: float) -> None:
        super().__init__(1)
        self.value = value

    def random(self) -> float:
        return self.value


@pytest.mark.parametrize(("chance", "answers"), [(0.49, 1), (0.51, 0)])
def test_of_twelve_nodes_each_answers_with_the_probability_of_six_of_twelve(chance: float, answers: int) -> None:
    assert CONFIG.answers_wanted == 6
    harness = Harness()
    harness.take()
    harness.discovery._rng = Chance(chance)
    harness.hear(1, 1.0, peers=11)
    assert harness.discovery.answers_count == answers


@pytest.mark.parametrize(("peers", "at_once"), [(6, True), (7, False)])
def test_as_many_as_are_wanted_answer_at_once_and_more_take_their_time(peers: int, at_once: bool) -> None:
    harness = Harness()
    harness.take()
    harness.discovery._rng = Chance(0.0)
    harness.hear(1, 1.0, peers=peers)
    assert bool(harness.take()) is at_once


def test_an_answer_that_waits_is_due_before_the_next_beacon() -> None:
    harness = Harness()
    harness.take()
    harness.discovery.handle_timeout(1.0, 0)
    harness.discovery._rng = Chance(0.0)
    harness.hear(1, 1.0, peers=50)
    due = harness.discovery.deadline()
    assert due is not None
    assert 1.0 <= due <= 1.0 + CONFIG.beacon_jitter_s


@pytest.mark.parametrize(
    ("chance", "peers", "is_dialled"), [(0.49, 1, True), (0.51, 1, False), (0.24, 3, True), (0.26, 3, False)]
)
def test_one_of_those_who_hear_a_stranger_dials_it_by_chance(chance: float, peers: int, is_dialled: bool) -> None:
    harness = Harness()
    harness.strangers[stranger(1).id] = Familiarity.FAR
    rng = harness.discovery._rng
    harness.discovery._rng = Chance(chance)
    harness.hear(1, 1.0, peers=peers, wants_answer=False)
    harness.discovery._rng = rng
    assert bool(harness.dials(1.0 + CONFIG.beacon_dial_jitter_s)) is is_dialled


def test_a_question_that_is_left_to_others_is_neither_answered_nor_dialled() -> None:
    harness = Harness()
    harness.take()
    harness.strangers[stranger(1).id] = Familiarity.FAR
    harness.discovery._rng = Chance(0.9)
    harness.hear(1, 1.0, peers=99)
    assert harness.discovery.answers_count == 0
    assert harness.dials(1.0 + CONFIG.beacon_dial_jitter_s) == []
