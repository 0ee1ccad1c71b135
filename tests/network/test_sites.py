"""One network over two sites: nearness, losses, partitions, hosts that fall silent, and hosts that nobody can dial.

The times are promises of the product (docs/design.md 5.4 and 5.8): a silent node is out of all views in 3 s, and parts of a
network are one again 30 s after they can reach each other.
"""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from tests.network.lab import FAR
from tests.network.wire import Condition

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tests.network.lab import Lab, Member

A = ["a1", "a2", "a3"]
B = ["b1", "b2", "b3"]
ALL = frozenset(A + B)
CLUSTER = "works"
#: A node that fell silent leaves all views within this.
DETECTION_S = 3.0
#: Parts that can reach each other again are one network within this.
HEALING_S = 30.0
PARTITION_S = 60.0
#: For processes that share a busy machine, and for looking at views only now and then. It is not part of the promise.
MARGIN_S = 4.0
#: Requests that an idle cluster is asked, and which part of them members of the own site have to answer.
REQUESTS = 400
OWN_SHARE_MIN = 0.95
ASK_INTERVAL_S = 0.1


def share(answers: dict[str, int], names: list[str]) -> float:
    """Return which part of the answers came from these members."""
    return sum(answers.get(name, 0) for name in names) / sum(answers.values())


def check_views(lab: Lab, members: Iterable[Member], expected: Iterable[str], since: float, within_s: float) -> None:
    """Fail unless each of these members sees these and no others within some time of a moment."""
    view, taken = frozenset(expected), {}
    for member in members:
        left = since + within_s - time.monotonic()
        lab.until(partial(_has_view, member, view), f"{member.name} sees {sorted(view)}", within_s=left)
        taken[member.name] = f"{member.views(CLUSTER)[-1][0] - since:.2f}"
    print(f"seconds until each saw {sorted(view)}: {taken}")


def _has_view(member: Member, view: frozenset[str]) -> bool:
    return member.view(CLUSTER) == view


def _knows_all(lab: Lab, member: Member) -> bool:
    return lab.names(member.do("nodes", do="nodes")["ids"]) == ALL


def start_asking(members: Iterable[Member]) -> None:
    for member in members:
        member.tell(do="ask", cluster=CLUSTER, interval_s=ASK_INTERVAL_S)
    for member in members:
        member.wait_for("asked")


def stop_asking(members: Iterable[Member]) -> None:
    for member in members:
        member.tell(do="stop")
    for member in members:
        member.wait_for("stopped")


def has_asked_since(members: Iterable[Member], since: float) -> bool:
    """Tell whether a request that each of these began later has ended."""
    return all(member.asked(CLUSTER)[-1]["began"] > since for member in members)


def check_served(member: Member, names: Iterable[str], since: float, until: float) -> None:
    """Fail unless every request that a member began between two moments was answered, and by these members alone."""
    asked = [said for said in member.asked(CLUSTER) if since <= said["began"] < until]
    wrong = [said for said in asked if said["name"] not in names]
    assert not wrong, f"{member.name}: {len(wrong)} of {len(asked)} requests, first {wrong[:3]}"
    assert asked


def count_failures(members: Iterable[Member]) -> dict[str, int]:
    """Return how many of the requests that each member began have failed."""
    return {member.name: sum(bool(said["error"]) for said in member.asked(CLUSTER)) for member in members}


def test_both_sites_are_one_network_and_answer_from_near(lab: Lab) -> None:
    lab.populate({CLUSTER: [*A, *B]}, watch=CLUSTER)
    for member in lab.members.values():
        assert lab.names(member.do("members", do="members", cluster=CLUSTER)["ids"]) == ALL
        lab.until(partial(_knows_all, lab, member), f"{member.name} knows all nodes")
    for client, near in (("a2", A), ("b3", B)):
        result = lab.members[client].request(CLUSTER, REQUESTS)
        assert result["failures"] == {}
        assert sum(result["answers"].values()) == REQUESTS
        assert share(result["answers"], near) >= OWN_SHARE_MIN, result


def test_the_other_site_answers_when_the_own_members_are_gone(lab: Lab) -> None:
    lab.populate({CLUSTER: ["a2", "a3", *B]}, watch=CLUSTER)
    client = lab.members["a1"]
    assert share(client.request(CLUSTER, REQUESTS)["answers"], A) >= OWN_SHARE_MIN
    lab.members["a2"].tell(do="leave")
    lab.members["a2"].wait_for("left")
    killed = time.monotonic()
    lab.members["a3"].kill()
    check_views(lab, [client], B, killed, DETECTION_S + MARGIN_S)
    result = client.request(CLUSTER, 100)
    assert result["failures"] == {}
    assert set(result["answers"]) <= set(B)
    assert sum(result["answers"].values()) == 100


def test_a_lossy_line_loses_no_request(lab: Lab) -> None:
    lab.populate({CLUSTER: B}, watch=CLUSTER)
    before = lab.set_wire(FAR)
    while True:  # once nearly always; how many packets requests are depends on how many come together
        result = lab.members["a2"].request(CLUSTER, 1000, lanes=10)
        assert result["failures"] == {}
        assert sum(result["answers"].values()) == 1000
        if lab.set_wire(FAR).lost > before.lost:
            break


@pytest.mark.timeout(300)
def test_sites_that_are_parted_serve_themselves_and_heal(lab: Lab) -> None:
    lab.populate({CLUSTER: [*A, *B]}, watch=CLUSTER)
    members = list(lab.members.values())
    sides = {name: side for side in (A, B) for name in side}
    start_asking(members)
    parted = time.monotonic()
    lab.set_wire(Condition(delay_s=FAR.delay_s, is_cut=True))
    for side in (A, B):
        check_views(lab, (lab.members[name] for name in side), side, parted, DETECTION_S + MARGIN_S)

    served = time.monotonic()  # from when on each asks its own side alone, for each has seen that the other is gone
    over = parted + PARTITION_S
    lab.until(lambda: has_asked_since(members, over), "the partition has lasted", within_s=PARTITION_S + DETECTION_S + MARGIN_S)
    for member in members:
        check_served(member, sides[member.name], served, over)
        assert member.view(CLUSTER) == frozenset(sides[member.name])

    healed = time.monotonic()
    lab.set_wire(FAR)
    check_views(lab, members, ALL, healed, HEALING_S)
    stop_asking(members)
    for member in members:
        check_served(member, ALL, served, time.monotonic())
        left = healed + HEALING_S - time.monotonic()
        lab.until(partial(_knows_all, lab, member), f"{member.name} knows all nodes", within_s=left)
    print("requests that failed:", count_failures(members))


def test_a_host_that_is_cut_off_silently_is_lost_and_found_again(lab: Lab) -> None:
    lab.populate({CLUSTER: [*A, *B]}, watch=CLUSTER)
    others = [member for name, member in lab.members.items() if name != "a2"]
    start_asking(others)
    cut = time.monotonic()
    lab.cut_off("a2")
    check_views(lab, others, ALL - {"a2"}, cut, DETECTION_S + MARGIN_S)
    lost = time.monotonic()
    # The lonely one first doubts itself, and so takes longer to give up all others at once.
    check_views(lab, [lab.members["a2"]], ["a2"], cut, HEALING_S)
    back = time.monotonic()
    lab.reconnect("a2")
    check_views(lab, lab.members.values(), ALL, back, HEALING_S)
    lab.until(lambda: has_asked_since(others, back), "all have asked again")
    stop_asking(others)
    for member in others:
        check_served(member, ALL, lost, time.monotonic())
    print("requests that failed:", count_failures(others))


def test_a_host_that_cannot_be_dialled_takes_part(lab: Lab) -> None:
    lab.shield("a3")
    lab.populate({CLUSTER: [*A, *B], "behind": ["a3"], "ahead": ["a1", "b2"]}, watch=CLUSTER)
    _check_asked(lab, lab.members["a3"], "ahead", ["a1", "b2"])
    for client in ("a2", "b1", "b3"):
        _check_asked(lab, lab.members[client], "behind", ["a3"])


def test_hosts_of_which_neither_can_dial_the_other_talk_through_a_third(lab: Lab) -> None:
    for host in ("a3", "b3"):
        lab.shield(host)
    lab.populate({CLUSTER: [*A, *B], "behind a": ["a3"], "behind b": ["b3"]}, watch=CLUSTER)
    _check_asked(lab, lab.members["a3"], "behind b", ["b3"])
    _check_asked(lab, lab.members["b3"], "behind a", ["a3"])


def _check_asked(lab: Lab, client: Member, cluster: str, names: list[str]) -> None:
    # A join returns after a second at the latest; who can be reached through others only may need longer to be known.
    lab.until(
        lambda: lab.names(client.do("members", do="members", cluster=cluster)["ids"]) == frozenset(names),
        f"{client.name} sees the members of {cluster!r}",
    )
    result: dict[str, Any] = client.request(cluster, 50)
    assert result["failures"] == {}, client.name
    assert sum(result["answers"].values()) == 50
    assert set(result["answers"]) <= set(names)


def test_a_line_that_is_slow_keeps_its_links_under_bulk(lab: Lab) -> None:
    """Of 2 Mbit/s: what the buffers of sender and line hold takes longer than a silent peer is kept, and PINGs wait behind."""
    caller, member = lab.start("a1"), lab.start("b1", CLUSTER)
    member.wait_for("serving")
    caller.wait_for("serving")
    for each in (caller, member):
        each.tell(do="watch", cluster=CLUSTER)
    lab.until(lambda: all(each.view(CLUSTER) == frozenset(["b1"]) for each in (caller, member)), "both see the member")
    lab.set_wire(Condition(delay_s=0.02, rate_bytes_s=250_000.0))
    assert caller.do("sent", do="send", cluster=CLUSTER, count=6, size=1_000_000)["failures"] == []
    assert caller.view(CLUSTER) == frozenset(["b1"])
    assert len(caller.views(CLUSTER)) <= 2
