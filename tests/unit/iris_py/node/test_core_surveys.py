"""Surveys on links that come and go, and without any."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from iris_overlay.events import ConnectFailed, LinkReleased, PeerDied
from iris_py.node.spare_links import LINK_IDLE_S
from iris_py.patterns.survey import SurveyAnswered, SurveyEnded
from iris_py.wire.packets import DECLINE, REPLY
from tests.unit.iris_py.nodes import Net

if TYPE_CHECKING:
    from iris_py.errors import IrisError
    from iris_py.link.link import Link
    from iris_py.node.core import NodeCore
    from iris_py.peers.member import KnownMember


class Scene:
    """Members, and somebody who knows them and surveys them."""

    def __init__(self, members: int) -> None:
        self.net = Net(members + 1)
        *self.members, self.caller = self.net.cores.nodes.values()
        for member in self.members:
            self.net.join(member)
        self.net.watch(self.caller)
        self.net.cores.drive_until(self.net.now + LINK_IDLE_S + 5.0)

    def survey(self, payload: bytes = b"?", *, timeout_s: float = 60.0, stop_after: int | None = None) -> int:
        return self.caller.survey("cluster", payload, timeout_s, stop_after, "token", self.net.now)

    def seen(self, core: NodeCore) -> KnownMember:
        (member,) = [each for each in self.net.watch(self.caller).members or () if each.peer.id == core.info.id]
        return member

    def release(self, core: NodeCore, other: NodeCore) -> None:
        """Let a node close its idle link to another; it is not written yet."""
        core._exchange.handle_overlay_event(LinkReleased(other.info.id), self.net.now)

    def unlink(self, core: NodeCore) -> None:
        self.release(self.caller, core)
        self.net.cores.drive()
        assert self.caller.peers.find(core.info.id) is None

    def answers(self) -> list[int]:
        events = self.net.take(self.caller, SurveyAnswered)
        return [event.kind for event in events if isinstance(event, SurveyAnswered)]

    def ends(self) -> list[IrisError | None]:
        events = self.net.take(self.caller, SurveyEnded)
        ends = [event.error for event in events if isinstance(event, SurveyEnded)]
        if ends:
            assert all(member.peer.awaited == 0 for member in self.net.watch(self.caller).members or ())
        return ends


def test_answers_to_a_survey_may_wait_for_the_last_one_and_replies_to_requests_may_not() -> None:
    scene = Scene(3)
    found: list[tuple[int, bool]] = []
    receive = scene.caller.link_received

    def note(link: Link, now: float) -> bool:
        may_wait = receive(link, now)
        found.append((len(scene.caller.surveyor.events), may_wait))
        return may_wait

    scene.caller.link_received = note  # type: ignore[method-assign]
    scene.survey()
    scene.net.cores.drive()
    found.clear()
    for member in scene.members:
        scene.net.serve(member)
    scene.net.cores.drive()
    assert found == [(1, True), (1, True), (2, False)], "the last answer, and the end"
    scene.net.request(scene.caller)
    scene.net.cores.drive()
    found.clear()
    for member in scene.members:
        scene.net.serve(member)
    scene.net.cores.drive()
    assert found == [(0, False)]


def test_a_member_without_a_link_is_asked_over_a_new_one() -> None:
    scene = Scene(2)
    scene.unlink(scene.members[0])
    scene.survey()
    scene.net.cores.drive()
    for member in scene.members:
        assert scene.net.serve(member) == 1
    assert scene.answers() == [REPLY, REPLY]
    assert scene.ends() == [None]
    assert not scene.caller.drops


def test_the_time_that_a_question_waits_for_a_link_counts() -> None:
    scene = Scene(1)
    (member,) = scene.members
    scene.unlink(member)
    scene.survey(timeout_s=10.0)
    deadline = scene.net.now + 10.0
    scene.caller.flush(scene.net.now)
    scene.net.cores.now += 4.0
    scene.net.cores.drive()
    (execution,) = scene.net.started(member)
    assert execution.deadline == pytest.approx(deadline, abs=0.1)


def test_a_cancelled_survey_that_waits_for_a_link_is_not_sent() -> None:
    scene = Scene(1)
    (member,) = scene.members
    scene.unlink(member)
    survey_id = scene.survey()
    scene.caller.flush(scene.net.now)
    scene.caller.surveyor.cancel(survey_id)
    scene.net.cores.drive()
    assert scene.net.started(member) == []
    assert not scene.caller.drops
    assert not member.service._early_cancels


@pytest.mark.parametrize("released_by_caller", [True, False])
def test_a_survey_that_crosses_the_release_is_executed_once(released_by_caller: bool) -> None:
    scene = Scene(1)
    (member,) = scene.members
    one, other = (scene.caller, member) if released_by_caller else (member, scene.caller)
    scene.release(one, other)
    scene.survey()
    scene.net.cores.drive()
    assert scene.net.serve(member) == 1
    assert scene.answers() == [REPLY]
    assert scene.ends() == [None]
    assert member.service.executed == 1


def test_a_link_is_not_idle_while_a_survey_waits() -> None:
    scene = Scene(1)
    (member,) = scene.members
    scene.survey(timeout_s=1000.0)
    scene.net.cores.drive_until(scene.net.now + 2 * LINK_IDLE_S)
    (execution,) = scene.net.started(member)
    scene.release(scene.caller, member)
    scene.release(member, scene.caller)
    scene.net.cores.drive()
    member.service.decline(execution, scene.net.now)
    scene.net.cores.drive()
    assert scene.answers() == [DECLINE]
    assert scene.ends() == [None]


def test_who_cannot_be_dialled_is_asked_through_the_ring() -> None:
    scene = Scene(3)
    member, *others = scene.members
    scene.unlink(member)
    one, two = member.info.addresses[0], scene.caller.info.addresses[0]
    scene.net.cores.walls |= {(one, two), (two, one)}
    scene.survey()
    scene.net.cores.drive_until(scene.net.now + 10.0)
    assert [scene.net.serve(core) for core in (*others, member)] == [1, 1, 1]
    assert scene.answers() == [REPLY] * 3
    assert scene.ends() == [None]
    assert scene.caller.peers.find(member.info.id) is None


def test_who_dies_without_a_link_is_not_waited_for() -> None:
    scene = Scene(1)
    (member,) = scene.members
    scene.unlink(member)
    seen = scene.seen(member)
    for is_routed in (True, False):
        scene.survey()
        scene.caller.flush(scene.net.now)
        if is_routed:
            scene.caller._exchange.handle_overlay_event(ConnectFailed(member.info.id), scene.net.now)
            scene.caller.flush(scene.net.now)
        scene.caller._exchange.handle_overlay_event(PeerDied(member.info.id), scene.net.now)
        scene.caller.flush(scene.net.now)
        assert [type(event) for event in scene.caller.events_received()][-1] is SurveyEnded
        assert seen.peer.awaited == 0
