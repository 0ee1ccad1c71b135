"""Each fault of docs/operations.md is made here, and each tool shows what the page shows."""

from __future__ import annotations

import re
import shutil
import signal
import sys
from typing import TYPE_CHECKING, Any

import pytest

from tests.monitoring import ALERTS
from tests.network.gateways import CLUSTER, Federation
from tests.network.lab import FAR
from tests.network.operating import PAGE, Operator, Section, Shown
from tests.network.wire import Condition

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.network.clouds import Clouds
    from tests.network.lab import Lab, Process

#: Of the requests that callers make meanwhile: often enough for each second of `iris top` to have some.
ASK_INTERVAL_S = 0.25


@pytest.mark.parametrize("title", re.findall(r"^## (.*)", PAGE.read_text(), re.MULTILINE))
def test_each_fault_has_an_alert(title: str) -> None:
    named = set(re.findall(r"The alert is \[(Iris\w+)\]\(runbook\.md#(iris\w+)\)", Section(title).text))
    assert named
    assert named <= {(rule["alert"], rule["alert"].lower()) for rule in ALERTS}


@pytest.mark.parametrize(
    ("shown", "is_shown"),
    [
        ("failing:  works@eu: 1.5/s unavailable", True),
        ("failing:  ... unavailable", True),
        ("failing:  works@eu: 0/s unavailable", False),
        ("failing:  works@eu: 1.5/s timed out", False),
        ("failing:  works@eu: 1.5/s", False),
        ("... timed out", False),
    ],
)
def test_a_line_of_the_page_needs_its_words_and_its_zeros(shown: str, is_shown: bool) -> None:
    output = "4 of 4 nodes\nfailing:  works@eu: 23/s unavailable\n"
    assert Shown("iris top --once", [shown]).missing(output) == ([] if is_shown else [shown])


def serve(lab: Lab, hosts: Mapping[str, Mapping[str, str]], *options: str) -> list[Process]:
    """Run `iris join databases` on hosts, each with an addition to its environment, and wait until they serve."""
    command = [sys.executable, "-m", "iris_py.cli", "join", "databases", "--exec", "cat", *options]
    members = [lab.run(f"member {host}", host, command, **environment) for host, environment in hosts.items()]
    lab.until(lambda: all("Ctrl-C ends it" in member.errors() for member in members), "all serve")
    return members


def wait_for_members(lab: Lab, host: str, count: int) -> None:
    """Wait until a host sees so many members."""
    command = [sys.executable, "-m", "iris_py.cli", "members", "databases", "--json"]
    said: list[dict[str, Any]] = []
    for _attempt in range(30):
        process = lab.run("members", host, command, IRIS_LISTEN=f"{lab.hosts[host].address}:0")
        lab.until(lambda process=process: process.has_ended, "the members are listed")  # type: ignore[misc]
        said = process.said
        if sum(line.get("kind") == "member" for line in said) == count:
            return
    raise AssertionError(said)


def test_a_cloud_is_gone(clouds: Clouds) -> None:
    federation = Federation(clouds, {"us": ["eu"]})
    federation.start()
    federation.wait_for_bundles("us", "eu", 4)
    section = Section("A cloud is gone")
    operator = Operator(clouds, section, "us3", federation._seeds("us3"))
    gateways = [federation.gateways[host] for host in ("us1", "us2")]
    federation.members["us"].tell(do="load", run="asks", cluster=f"{CLUSTER}@eu", interval_s=ASK_INTERVAL_S)
    wait_for_events = operator.watch()

    clouds.cut("us", "eu")
    clouds.until(lambda: not list(federation.bundles("us", "eu")), "the lines are given up")
    operator.see("iris top")
    operator.see("iris doctor")
    operator.read_log(*gateways)
    wait_for_events()

    clouds.heal("us", "eu")
    federation.wait_for_bundles("us", "eu", 4)
    operator.see("iris doctor")
    operator.see("iris top")
    operator.read_log(*gateways)

    for gateway in gateways:
        gateway.kill()
    operator.see("iris doctor")
    section.check_is_done()


def test_a_network_in_halves(lab: Lab) -> None:
    members = serve(lab, {host: {} for host in ("a1", "a2", "b1", "b2")}, "-v")
    wait_for_members(lab, "a3", 4)
    section = Section("A network in halves")
    here, there = (Operator(lab, section, host) for host in ("a3", "b3"))
    wait_for_events = here.watch()

    lab.set_wire(Condition(is_cut=True))
    here.read_log(*members[:2])
    here.see("iris top")
    here.see("iris doctor")
    here.see("iris nodes --gone")
    there.see("iris doctor")

    lab.set_wire(FAR)
    here.see("iris doctor")
    here.see("iris top")
    wait_for_events()
    section.check_is_done()


def test_one_member_is_slow(lab: Lab) -> None:
    for host in ("a1", "a2", "b1", "b2", "b3"):
        lab.start(host, *(["databases"] if host != "b3" else [])).wait_for("serving")
    wait_for_members(lab, "a3", 4)
    section = Section("One member is slow")
    operator = Operator(lab, section, "a3")
    events = operator.start(section.take("iris monitor").command)
    lab.until(lambda: "Ctrl-C ends it" in events.errors(), "the monitor watches")
    lab.members["b3"].tell(do="ask", cluster="databases", interval_s=ASK_INTERVAL_S / 10)

    lab.members["b2"].do("slowed", do="slow_down", delay_s=2.0)
    operator.see("iris doctor")
    operator.see("iris members")
    operator.see("iris top")

    lab.members["b2"].do("slowed", do="slow_down", delay_s=0.0)
    operator.see("iris doctor")
    others = (f"{lab.hosts['a3'].address}:", "  stalled  ")  # commands come and go, and a busy machine stalls processes
    said = [each["text"] for each in events.said if not any(other in each["text"] for other in others)]
    assert said == [], "a member that is slow is no event"
    section.check_is_done()


def test_a_rotation_that_one_node_missed(lab: Lab) -> None:
    secret = lab.path("secret")
    files = {host: lab.path(f"secret of {host}") for host in ("a1", "a2", "b1")}
    for file in files.values():
        shutil.copy(secret, file)
    members = dict(zip(files, serve(lab, {host: {"IRIS_SECRET_FILE": str(file)} for host, file in files.items()}), strict=True))
    wait_for_members(lab, "a3", 3)
    section = Section("A rotation that one node missed")
    operator = Operator(lab, section, "a3")

    def take_step(step: str) -> None:
        keys = lab.run(f"keys {step}", "a3", [sys.executable, "-m", "iris_py.cli", "keys", step, str(secret)])
        assert keys.wait() == 0
        give("a1", "a2")

    def give(*hosts: str) -> None:
        for host in hosts:
            shutil.copy(secret, files[host])
            members[host].signal(signal.SIGHUP)

    take_step("add")
    operator.see("iris doctor")
    operator.see("iris nodes")
    operator.see("iris top")
    assert operator.see("iris monitor") == ""
    operator.read_log(members["a1"])
    assert "read the secrets again" not in members["b1"].errors()

    take_step("rotate")
    operator.see("iris nodes")
    operator.read_log(members["b1"])
    operator.see("iris doctor")

    give("b1")
    operator.see("iris doctor")
    section.check_is_done()


def test_somebody_floods_a_topic(lab: Lab) -> None:
    members = {host: lab.start(host) for host in ("a1", "a2", "b1")}
    for member in members.values():
        member.wait_for("serving")
    for host in ("a1", "a2"):
        members[host].do("following", do="follow", pattern="news.>", pause_s=0.01, queue_messages=1000)
    section = Section("Somebody floods a topic")
    operator = Operator(lab, section, "a3")
    wait_for_events = operator.watch()

    members["b1"].tell(do="flood", topic="news.sport", count=100, interval_s=0.02)
    output = operator.see("iris top")
    assert "(b1) at" in output
    operator.see("iris topics")
    operator.read_log(members["a1"])
    wait_for_events()
    operator.see("iris doctor")

    members["b1"].do("flooded", do="stop")
    operator.see("iris top")
    section.check_is_done()
