"""How many file descriptors a process may have, and what of them strangers get."""

from __future__ import annotations

import resource

import pytest

from iris_overlay.ring import state
from iris_py.net.process import DESCRIPTORS_MAX, gateway_handshakes_max, handshakes_max, links_max, raise_limit
from iris_py.peers.peer_table import HANDSHAKES_MAX, LEAF_LINKS_SHARE, LINKS_MAX

INFINITY = resource.RLIM_INFINITY


@pytest.mark.parametrize(
    ("soft", "hard", "expected"),
    [
        (256, 256, None),
        (1024, 4096, 4096),
        (1024, 1_000_000, DESCRIPTORS_MAX),
        (1024, INFINITY, DESCRIPTORS_MAX),
        (100_000, 1_000_000, None),
        (INFINITY, INFINITY, None),
    ],
)
def test_the_soft_limit_is_raised_to_the_hard_one_within_a_bound(
    monkeypatch: pytest.MonkeyPatch, soft: int, hard: int, expected: int | None
) -> None:
    limits = [(soft, hard)]
    monkeypatch.setattr(resource, "getrlimit", lambda _kind: limits[-1])
    monkeypatch.setattr(resource, "setrlimit", lambda _kind, both: limits.append(both))
    allowed = raise_limit()
    assert limits[1:] == ([] if expected is None else [(expected, hard)])
    assert allowed == (expected or (DESCRIPTORS_MAX if soft == INFINITY else soft))


@pytest.mark.parametrize("error", [OSError("no"), ValueError("not allowed to raise maximum limit")])
def test_a_limit_that_cannot_be_raised_stays(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def refuse(_kind: int, _both: tuple[int, int]) -> None:
        raise error

    monkeypatch.setattr(resource, "getrlimit", lambda _kind: (256, 4096))
    monkeypatch.setattr(resource, "setrlimit", refuse)
    assert raise_limit() == 256


def test_strangers_get_a_quarter_of_the_descriptors() -> None:
    assert [handshakes_max(count) for count in (1, 256, 1024, DESCRIPTORS_MAX)] == [1, 64, HANDSHAKES_MAX, HANDSHAKES_MAX]


def test_strangers_of_a_gateway_get_a_sixteenth_besides() -> None:
    counts = [gateway_handshakes_max(count) for count in (1, 256, 1024, 4096, DESCRIPTORS_MAX)]
    assert counts == [1, 16, 64, HANDSHAKES_MAX, HANDSHAKES_MAX]


def test_links_strangers_and_neighbours_leave_descriptors_to_the_program() -> None:
    assert [links_max(count) for count in (1, 256, 1024, DESCRIPTORS_MAX)] == [1, 128, 512, LINKS_MAX]
    for count in (64, 256, 1024, 8192, DESCRIPTORS_MAX):
        used = handshakes_max(count) + links_max(count) * (1 + LEAF_LINKS_SHARE)
        assert used + gateway_handshakes_max(count) < 0.9 * count


def test_the_ring_remembers_all_links_that_a_node_may_have() -> None:
    assert LINKS_MAX * (1 + LEAF_LINKS_SHARE) < state.LINKS_MAX
