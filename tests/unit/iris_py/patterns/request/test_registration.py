"""Registrations: what they say of their work, and which of them is given more."""

from __future__ import annotations

import pytest

from iris_overlay.ids import NodeId
from iris_overlay.node_info import NodeInfo
from iris_py.patterns.request.registration import Execution, Registration, least_loaded
from iris_py.peers.group import Group
from iris_py.peers.peer import Peer
from iris_security import Keyring, Secret

KEYRING = Keyring(Secret(bytes(range(32))), network="test")
GROUP = Group("cluster", KEYRING.cluster("cluster"), NodeId(bytes(16)), 1)
PEER = Peer(NodeInfo(NodeId(b"p" * 16), ()), None)


def make(
    concurrency: int = 1, queue_messages: int = 10, *, running: int = 0, waiting: int = 0, tunnels: int = 0
) -> Registration:
    registration = Registration(GROUP, concurrency, queue_messages)
    registration.running = running
    registration.tunnels_open = tunnels
    for number in range(waiting):
        registration.add(Execution(registration, GROUP, PEER, number, b"payload", 1.0))
    return registration


@pytest.mark.parametrize(
    ("registration", "text"),
    [
        (make(), ""),
        (make(running=1), "1 request that runs"),
        (make(running=2, waiting=1), "2 requests that run, 1 request that waits"),
        (make(waiting=2, tunnels=1), "2 requests that wait, 1 tunnel that is open"),
        (make(running=1, waiting=3, tunnels=2), "1 request that runs, 3 requests that wait, 2 tunnels that are open"),
    ],
)
def test_what_a_registration_has_to_do_is_said_in_words(registration: Registration, text: str) -> None:
    assert registration.describe_work() == text
    assert registration.is_idle == (not text)


def test_a_registration_is_the_less_loaded_the_more_it_could_run_at_once() -> None:
    wide, narrow = make(4, running=4, waiting=2), make(2, running=2, waiting=2)
    assert least_loaded([narrow, wide], 0) is wide
    wide.add(Execution(wide, GROUP, PEER, 9, b"", 1.0))
    wide.add(Execution(wide, GROUP, PEER, 10, b"", 1.0))
    assert least_loaded([narrow, wide], 0) is narrow, "where both have as much, it is the first"
