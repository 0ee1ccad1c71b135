"""Tests of Requester.request_many: many at once do what one after the other would do."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import astuple

from iris_overlay.ids import NodeId
from iris_overlay.node_info import NodeInfo
from iris_py.patterns.request.deduplication import identity_of_key
from iris_py.patterns.request.losses import Losses
from iris_py.patterns.request.pending import TIMEOUT_S_MAX, Pending, RequestSpec, new_request
from iris_py.patterns.request.requester import Requester
from iris_py.patterns.request.retry import IDEMPOTENT
from iris_py.peers.group import Group
from iris_py.peers.member import KnownMember
from iris_py.peers.peer import Peer
from iris_security import Keyring, Secret

if TYPE_CHECKING:
    from collections.abc import Sequence

    from iris_py.link.link import Link

KEYRING = Keyring(Secret(bytes(range(32))), network="test")
#: The state of each member's link, or None for a view that is not known.
STATES = ("open", "unlinked", "congested", "busy", "full")


class Caller:
    """A requester, and the one cluster that it asks."""

    def __init__(self, members: Sequence[str] | None) -> None:
        self.requester = Requester(random.Random(1), lambda: 7, Losses(bytes(16)))
        self.group = Group("cluster", KEYRING.cluster("cluster"), NodeId(bytes(16)), 1)
        if members is not None:
            self.group.members = [self._member(number, state) for number, state in enumerate(members, 1)]

    @staticmethod
    def _member(number: int, state: str) -> KnownMember:
        link = SimpleNamespace(congested=state in ("congested", "busy"), is_busy=state == "busy", is_open=True)
        peer = Peer(NodeInfo(NodeId(number.to_bytes(16, "big")), ()), None if state == "unlinked" else cast("Link", link))
        peer.is_full = state == "full"
        return KnownMember(peer)

    def one_by_one(self, asked: Sequence[tuple[object, str | bytes, bytes]], timeout_s: float, now: float) -> list[int]:
        return [
            self.requester.begin(self.request_of(token, key, payload, timeout_s, now), now) for token, key, payload in asked
        ]

    def request_of(self, token: object, key: str | bytes, payload: bytes, timeout_s: float, now: float) -> Pending:
        identity = identity_of_key("cluster", key)
        spec = RequestSpec(payload, timeout_s, IDEMPOTENT, identity, is_anchored=True, waits=True)
        return new_request(self.group, spec, token, now)

    def state(self) -> dict[str, Any]:
        """Return everything that there is to compare."""
        requester = self.requester
        members = self.group.members or ()
        loads = [(member.in_flight, member.peer.awaited, member.service_time_s) for member in members]
        pending = {number: _describe(each) for number, each in requester._pending.items()}
        return {
            "pending": pending,
            "loads": loads,
            "sent": (
                requester.last_id,
                self.group.counts.sent,
                self.group.counts.round_trip.show().count,
                requester.counts.late,
            ),
            "waiting": list(requester._backlog._waiting),
            "new deadline": requester.has_new_deadline,
            "deadline": requester.deadline(),
            "outcomes": [(token, str(outcome)) for token, outcome in requester.outcomes_received()],
            "out": [(message.peer.id, *astuple(message)[2:]) for message in requester.messages_to_send()],
        }


def _describe(pending: Pending) -> dict[str, Any]:
    values = {name: getattr(pending, name) for name in Pending.__struct_fields__ if name not in ("group", "together")}
    return {**values, "member": pending.member and pending.member.peer.id}


@given(
    members=st.none() | st.lists(st.sampled_from(STATES), max_size=4),
    batches=st.lists(
        st.tuples(
            st.floats(0.1, 2 * TIMEOUT_S_MAX),
            st.lists(st.tuples(st.text(min_size=1, max_size=5) | st.binary(min_size=1, max_size=5), st.binary(max_size=20))),
        ),
        max_size=4,
    ),
)
def test_many_at_once_do_what_one_after_the_other_would(
    members: Sequence[str] | None, batches: list[tuple[float, list[tuple[str | bytes, bytes]]]]
) -> None:
    many, single = Caller(members), Caller(members)
    now = 0.0
    for timeout_s, batch in batches:
        asked = [((now, number), key, payload) for number, (key, payload) in enumerate(batch)]
        assert [*many.requester.request_many(many.group, asked, timeout_s, now)] == single.one_by_one(asked, timeout_s, now)
        assert many.state() == single.state()
        now += 1.0
    for number, caller in enumerate((many, single)):
        held = [(id_, each.member.peer) for id_, each in caller.requester._pending.items() if each.member is not None]
        for peer in [member.peer for member in caller.group.members or ()]:
            replies = [(id_, b"reply") for id_, holder in held if holder is peer and id_ % 3]
            replies += [(id_, b"of another") for id_, holder in held if holder is not peer] + replies[:1]
            if number:
                for id_, payload in replies:
                    caller.requester.receive_reply(peer, id_, payload, now)
            else:
                caller.requester.receive_replies(peer, replies, now)
    assert many.state() == single.state()
    for caller in (many, single):
        caller.requester.handle_timeout(now + 3 * TIMEOUT_S_MAX)
    assert many.state() == single.state()
    assert not many.requester._pending


@pytest.mark.parametrize(("key", "error"), [("", ValueError), (7, TypeError), ("\ud800", ValueError)])
def test_of_those_with_a_wrong_key_none_is_started(key: Any, error: type[Exception]) -> None:
    caller = Caller(["open"])
    with pytest.raises(error):
        caller.requester.request_many(caller.group, [("a", "good", b""), ("b", key, b"")], 1.0, 0.0)
    assert caller.state() == Caller(["open"]).state()


def test_what_many_have_begun_can_be_cancelled_and_answered() -> None:
    caller = Caller(["open"])
    requester = caller.requester
    first, second = requester.request_many(caller.group, [("a", "a", b"1"), ("b", "b", b"2")], 1.0, 0.0)
    assert caller.group.members is not None
    (member,) = caller.group.members

    requester.cancel(first)
    requester.receive_reply(member.peer, second, b"reply", 0.5)

    assert requester.outcomes_received() == [("b", b"reply")]
    assert (member.in_flight, member.peer.awaited) == (0, 0)
    assert requester.deadline() is None


def test_replies_to_what_no_member_holds_are_dropped_one_and_all() -> None:
    """One of a batch waits for another member, one was rerouted: replies to them are nobody's, and the others count."""
    caller = Caller(["open", "open"])
    asked = [(number, f"key {number}", b"") for number in range(3)]
    first, second, third = caller.requester.request_many(caller.group, asked, 5.0, 0.0)
    caller.requester.outcomes_received()
    pending = caller.requester._pending[second]
    assert pending.member is not None
    pending.member.in_flight -= 1
    pending.member = None
    assert caller.group.members is not None
    replies: dict[int, list[tuple[int, bytes]]] = {}
    for index, member in enumerate(caller.group.members):
        mine = [id_ for id_ in (first, third) if caller.requester._pending[id_].member is member]
        replies[index] = [(second, b"nobody's"), *((id_, b"reply") for id_ in mine), (999, b"unknown")]
    for index, batch in replies.items():
        caller.requester.receive_replies(caller.group.members[index].peer, batch, 1.0)
    assert dict(caller.requester.outcomes_received()) == {0: b"reply", 2: b"reply"}
    assert list(caller.requester._pending) == [second]
    assert caller.requester.counts.late == 4
