"""Clouds joined by gateways over lines that are long, lossy, narrow, cut, half open or guarded, and gateways that fail.

Gateways run as operators run them, two for each cloud. Times are compared to the line's own where they can be; those that are
promises (docs/design.md 15) get a margin for processes that share a busy machine.
"""

from __future__ import annotations

import signal
import statistics
import time
from typing import TYPE_CHECKING, Any

import pytest

from tests.network.clouds import DELAYS_S
from tests.network.gateways import CLUSTER, LINE_PORT, Federation

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tests.network.clouds import Clouds

#: For processes that share a busy machine, and for the second after which a silence is probed. It is not part of any promise;
#: what waited for a line to be broken in place of suspect would still be seen.
MARGIN_S = 4.0
#: Silence with something outstanding after which a line gets nothing new, and after which it is given up.
SUSPECT_S, BROKEN_S = 3.0, 10.0
#: What a system says of a process that is gone is heard long before anybody is suspect.
KILLED_S = 2.5
#: A line that works again is used again within this.
HEALING_S = 6.0
#: An idle line is probed after so much silence.
PROBE_S = 5.0
#: How late a request may begin to be executed: it was on the line, and in processes that do not run all the time.
LATE_S = 2.0
#: Of loads: requests of each kind begin so often.
INTERVAL_S = 0.04
THERE = f"{CLUSTER}@eu"
BACK = f"{CLUSTER}@us"


def check_answered(asked: list[dict[str, Any]], least: int = 20) -> None:
    """Fail unless there are so many, and all were answered."""
    assert len(asked) >= least
    failed = [said for said in asked if said["error"]]
    assert failed == [], "\n".join(map(str, failed))


def check_held(asked: list[dict[str, Any]], moments: Iterable[float], within_s: float) -> None:
    """Fail if one failed that was not under way at one of these moments, or otherwise than by the loss of who held it.

    Args:
        asked: Requests that have ended.
        moments: When somebody was lost.
        within_s: How late others may have noticed.
    """
    failed = [said for said in asked if said["error"]]
    print(f"{len(failed)} of {len(asked)} failed")
    for said in failed:
        assert said["error"] == "MemberLost", said
        assert any(said["began"] <= moment + within_s and said["at"] >= moment for moment in moments), (said, moments)


def check_never_late(federation: Federation, asked: list[dict[str, Any]], timeout_s: float, *names: str) -> None:
    """Fail if something began to be executed when nobody waited for it any more, or was executed twice."""
    began = {said["id"]: said["began"] for said in asked}
    executed = [said for said in federation.executed(*names) if said["id"] in began]
    assert len(executed) == len({said["id"] for said in executed})
    late = [said for said in executed if said["at"] > began[said["id"]] + timeout_s + LATE_S]
    assert late == []


@pytest.fixture
def joined(clouds: Clouds) -> Federation:
    """The clouds us and eu: us dials, and either has a member."""
    federation = Federation(clouds, {"us": ["eu"]})
    federation.start()
    return federation


def test_a_request_takes_a_round_trip_of_the_line_and_lossy_and_narrow_lines_serve(joined: Federation) -> None:
    clouds, caller = joined.clouds, joined.members["us"]
    trip_s = 2 * DELAYS_S[frozenset(("us", "eu"))]

    def take_one_trip() -> bool:
        """Tell whether requests take hardly more than a round trip: lines are never early, so what needs more never does."""
        done = caller.do("done", do="burst", cluster=THERE, count=40)
        assert done["failures"] == {}
        print(f"round trip {trip_s:.4f} s, requests {min(done['seconds']):.4f}, {statistics.median(done['seconds']):.4f}")
        return bool(min(done["seconds"]) < 1.25 * trip_s and statistics.median(done["seconds"]) < 1.6 * trip_s)

    clouds.until(take_one_trip, "requests take one round trip, unless the machine is late")

    clouds.lose("us", "eu", 0.01)
    done = caller.do("done", do="burst", cluster=THERE, count=400, lanes=20, size=2_000)
    assert done["failures"] == {}
    assert clouds.lost("us", "eu") > 0
    clouds.lose("us", "eu", 0)

    clouds.set_mtu("us", "eu", 1400)
    done = caller.do("done", do="burst", cluster=THERE, count=20, lanes=4, size=100_000)
    assert done["failures"] == {}
    caller.do("returned", do="tunnel", cluster=THERE, count=4, size=200_000)
    assert {said["cloud"] for said in joined.executed("eu")} == {"us"}


@pytest.mark.parametrize("refuses", [False, True], ids=["drops", "refuses"])
def test_one_side_that_can_dial_suffices(clouds: Clouds, refuses: bool) -> None:
    clouds.firewall("eu", "us", refuses=refuses)
    federation = Federation(clouds, {"us": ["eu"], "eu": ["us"]})
    federation.start()
    for name, cluster in (("us", THERE), ("eu", BACK)):
        done = federation.members[name].do("done", do="burst", cluster=cluster, count=50, lanes=5)
        assert done["failures"] == {}
    assert not any(bundle["is_dialled"] for bundle in federation.bundles("eu", "us"))
    slots = [slot for gateway in federation.status("eu") for slot in gateway["clouds"]["us"]["dials"]]
    if refuses:
        assert {slot["error"] for slot in slots} == {"nobody listens there"}
    assert not any(slot["is_up"] for slot in slots)


def test_a_line_that_is_cut_in_silence_is_suspect_then_broken_and_heals(joined: Federation) -> None:
    clouds, caller = joined.clouds, joined.members["us"]
    for number in range(4):
        caller.tell(do="once", cluster=THERE, id=f"held/{number}", hold_s=60.0, timeout=60.0)
    clouds.until(lambda: len(joined.executed("eu")) == 4, "the member holds the requests")
    caller.tell(do="load", run="new", cluster=THERE, interval_s=0.25, timeout=30.0)
    clouds.until(lambda: len(joined.asked("us", "new")) > 4, "requests are answered")
    cut = time.monotonic()
    clouds.cut("us", "eu")
    unavailable_s = joined.wait_for_error("us", "new", "CloudUnavailable", cut, SUSPECT_S + MARGIN_S)
    print(f"CloudUnavailable after {unavailable_s:.2f} s")
    assert any(bundle["retransmissions"] for bundle in joined.bundles("us", "eu"))
    clouds.until(lambda: len(joined.asked("us", "held")) == 4, "who waits is told", within_s=BROKEN_S + MARGIN_S)
    for said in joined.asked("us", "held"):
        assert said["error"] == "MemberLost"
        assert BROKEN_S - 1.0 <= said["at"] - cut <= BROKEN_S + MARGIN_S
    began = time.monotonic()
    noticed = cut + SUSPECT_S + MARGIN_S  # gateways notice one by one: the first to say so is not the last to notice
    again = [said for said in joined.asked("us", "new") if said["began"] > noticed and said["error"] != "CloudUnavailable"]
    assert again == []  # nothing went into the dead line any more
    clouds.heal("us", "eu")
    healed_s = joined.wait_for_answer("us", "new", began, HEALING_S + MARGIN_S)
    print(f"healed after {healed_s:.2f} s")
    (new,) = joined.stop_loads("us", "new")
    assert {said["error"] for said in new} <= {"", "CloudUnavailable", "MemberLost"}
    lost = [said for said in new if said["error"] == "MemberLost"]
    assert all(said["at"] > cut and said["began"] < noticed for said in lost)
    check_never_late(joined, new, 30.0, "eu")


def test_idempotent_requests_leave_a_silent_way_for_another(joined: Federation) -> None:
    clouds, caller = joined.clouds, joined.members["us"]
    caller.tell(do="load", run="plain", cluster=THERE, interval_s=INTERVAL_S, timeout=30.0)
    caller.tell(do="load", run="again", cluster=THERE, interval_s=INTERVAL_S, timeout=30.0, idempotent=True)
    clouds.until(lambda: len(joined.asked("us", "again")) > 20, "requests are answered")
    silent = time.monotonic()
    clouds.silence("eu1", "us")
    clouds.until(lambda: time.monotonic() > silent + BROKEN_S, "nearly all that went the silent way has ended")
    plain, again = joined.stop_loads("us", "plain", "again")
    check_answered(again, 100)
    slowest_s = max(said["at"] - said["began"] for said in again)
    print(f"slowest idempotent request: {slowest_s:.2f} s")
    assert slowest_s < SUSPECT_S + MARGIN_S
    lost = [said for said in plain if said["error"]]
    assert lost  # so it was in use
    assert {said["error"] for said in lost} == {"MemberLost"}
    assert all(said["at"] > silent and said["began"] < silent + SUSPECT_S + MARGIN_S for said in lost)
    check_never_late(joined, plain, 30.0, "eu")


def test_processes_that_are_killed_under_load_fail_only_what_they_held(joined: Federation) -> None:
    clouds, caller = joined.clouds, joined.members["us"]
    joined.start_member("eu extra", "eu3", CLUSTER, port=7401).wait_for("serving")
    caller.tell(do="load", run="plain", cluster=THERE, interval_s=INTERVAL_S)
    caller.tell(do="load", run="again", cluster=THERE, interval_s=INTERVAL_S, idempotent=True)
    clouds.until(lambda: len(joined.executed("eu extra")) > 10, "both members work")
    killed = []
    for process in (joined.gateways["us1"], joined.gateways["eu2"], joined.members["eu extra"]):
        killed.append(time.monotonic())
        process.kill()
        answered_s = joined.wait_for_answer("us", "plain", killed[-1], 2 * KILLED_S)
        print(f"{process.name} killed: the next request that was answered began after {answered_s:.3f} s")
        seen = len(joined.asked("us", "again"))
        clouds.until(lambda seen=seen: len(joined.asked("us", "again")) > seen + 20, "requests go on")  # type: ignore[misc]
    plain, again = joined.stop_loads("us", "plain", "again")
    check_answered(again, 60)
    check_held(plain, killed, within_s=1.0)
    check_never_late(joined, plain, 30.0, "eu", "eu extra")


def test_a_gateway_that_stood_still_executes_nothing_late(joined: Federation) -> None:
    clouds, caller = joined.clouds, joined.members["us"]
    caller.tell(do="load", run="plain", cluster=THERE, interval_s=INTERVAL_S, timeout=4.0)
    caller.tell(do="load", run="again", cluster=THERE, interval_s=INTERVAL_S, timeout=30.0, idempotent=True)
    clouds.until(lambda: len(joined.asked("us", "again")) > 20, "requests are answered")
    stopped = time.monotonic()
    for host in ("us2", "eu1"):  # one at each side: one way is left of four
        joined.gateways[host].signal(signal.SIGSTOP)
    clouds.until(lambda: time.monotonic() > stopped + 20, "they stand still")
    for host in ("us2", "eu1"):
        joined.gateways[host].signal(signal.SIGCONT)
    clouds.until(lambda: time.monotonic() > stopped + 20 + HEALING_S, "they go on")
    plain, again = joined.stop_loads("us", "plain", "again")
    check_answered(again, 200)
    slowest_s = max(said["at"] - said["began"] for said in again)
    print(f"slowest idempotent request: {slowest_s:.2f} s")
    failed = [said for said in plain if said["error"]]
    print(f"{len(failed)} of {len(plain)} plain requests failed")
    assert {said["error"] for said in failed} <= {"MemberLost", "RequestTimeout", "CloudUnavailable"}
    quiet = [said for said in failed if stopped + SUSPECT_S + MARGIN_S + 1.0 < said["began"] < stopped + 20]
    assert quiet == []  # others have taken over
    check_never_late(joined, plain, 4.0, "eu")
    joined.wait_until_joined()


def test_gateways_restart_one_by_one_without_a_failure_and_all_at_once_with_a_gap(joined: Federation) -> None:
    clouds, caller = joined.clouds, joined.members["us"]
    caller.tell(do="load", run="plain", cluster=THERE, interval_s=INTERVAL_S)
    for host in ("eu1", "eu2", "us1"):
        before = joined.gateways[host]
        before.signal(signal.SIGTERM)
        assert before.wait() == 0, before.errors()
        joined.start_gateway(host)
        joined.wait_for_bundles("us", "eu", 4)
    clouds.until(lambda: len(joined.asked("us", "plain")) >= 100, "requests go on")
    (plain,) = joined.stop_loads("us", "plain")
    check_answered(plain, 100)

    caller.tell(do="load", run="gap", cluster=THERE, interval_s=0.2)
    killed = time.monotonic()
    for host in ("eu1", "eu2"):
        joined.gateways[host].kill()
    unavailable_s = joined.wait_for_error("us", "gap", "CloudUnavailable", killed, KILLED_S)
    print(f"CloudUnavailable after {unavailable_s:.2f} s")
    joined.start_gateways("eu")
    for host in ("eu1", "eu2"):
        clouds.until(lambda host=host: joined.gateways[host].said, "it listens")  # type: ignore[misc]
    began = time.monotonic()
    print(f"healed after {joined.wait_for_answer('us', 'gap', began, HEALING_S + MARGIN_S):.2f} s")
    (gap,) = joined.stop_loads("us", "gap")
    assert {said["error"] for said in gap} <= {"", "CloudUnavailable", "MemberLost"}


def test_a_load_balancer_may_stand_in_front_of_gateways(clouds: Clouds) -> None:
    federation = Federation(clouds, {"us": ["eu"]})
    address = f"{clouds.hosts['eu3'].address}:{LINE_PORT}"
    targets = [f"{clouds.hosts[host].address}:{LINE_PORT}" for host in ("eu1", "eu2")]
    balancer = clouds.run_module("balancer", "eu3", "balancer", clouds.hosts["eu3"].address, str(LINE_PORT), *targets)
    balancer.wait_for("listening")
    federation.set_addresses("eu", address)
    federation.start()
    caller = federation.members["us"]

    def bundles() -> list[set[str]]:
        gateways = federation.status("us")
        return [{bundle["gateway"] for bundle in gateway["clouds"]["eu"]["bundles"]} for gateway in gateways]

    clouds.until(lambda: [len(found) for found in bundles()] == [2, 2], "each has a bundle to each gateway behind it")
    clouds.until(
        lambda: {bundle["connections"] for bundle in federation.bundles("us", "eu")} == {4},
        "each bundle has all of its connections, which the balancer brings to either gateway",
    )
    done = caller.do("done", do="burst", cluster=THERE, count=100, lanes=10, size=100_000)
    assert done["failures"] == {}
    caller.do("returned", do="tunnel", cluster=THERE, count=4, size=200_000)
    federation.gateways["eu1"].kill()
    caller.tell(do="load", run="again", cluster=THERE, interval_s=INTERVAL_S, idempotent=True)
    clouds.until(lambda: len(federation.asked("us", "again")) > 50, "requests go on")
    (again,) = federation.stop_loads("us", "again")
    check_answered(again, 50)


def test_a_nat_that_forgets_is_found_by_probes(clouds: Clouds) -> None:
    clouds.translate("us", "eu")
    federation = Federation(clouds, {"us": ["eu"]})
    federation.start()
    federation.wait_for_bundles("us", "eu", 4)
    hosts = {bundle["address"] for bundle in federation.bundles("eu", "us")}
    assert hosts.isdisjoint(clouds.hosts[host].address for host in ("us1", "us2"))
    clouds.forget_connections("us")
    forgot = time.monotonic()

    def is_whole(site: str, other: str) -> bool:
        bundles = list(federation.bundles(site, other))
        return len(bundles) == 4 and not any(bundle["is_suspect"] for bundle in bundles)

    noticed = set[str]()

    def have_noticed() -> bool:  # both are looked at all the time: one may have dialled anew before the other has noticed
        noticed.update(site for site, other in (("us", "eu"), ("eu", "us")) if not federation.is_up(site, other))
        return len(noticed) == 2

    clouds.until(have_noticed, "the probes of both are not answered", within_s=PROBE_S + SUSPECT_S + MARGIN_S)
    print(f"found after {time.monotonic() - forgot:.2f} s")
    clouds.until(
        lambda: is_whole("us", "eu") and is_whole("eu", "us"),
        "all lines were dialled anew",
        within_s=forgot + PROBE_S + BROKEN_S + HEALING_S + MARGIN_S - time.monotonic(),
    )
    print(f"healed after {time.monotonic() - forgot:.2f} s")
    federation.wait_until_joined()
    for name, cluster in (("us", THERE), ("eu", BACK)):
        done = federation.members[name].do("done", do="burst", cluster=cluster, count=20, lanes=5)
        assert done["failures"] == {}
