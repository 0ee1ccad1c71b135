"""Each fault of docs/operations.md is made here, and each tool shows what the page shows."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from tests.monitoring import ALERTS
from tests.network.gateways import CLUSTER, Federation
from tests.network.operating import PAGE, Operator, Section

if TYPE_CHECKING:
    from tests.network.clouds import Clouds

#: Of the requests that callers make meanwhile: often enough for each second of `iris top` to have some.
ASK_INTERVAL_S = 0.25


@pytest.mark.parametrize("title", re.findall(r"^## (.*)", PAGE.read_text(), re.MULTILINE))
def test_each_fault_has_an_alert(title: str) -> None:
    named = set(re.findall(r"The alert is \[(Iris\w+)\]\(runbook\.md#(iris\w+)\)", Section(title).text))
    assert named
    assert named <= {(rule["alert"], rule["alert"].lower()) for rule in ALERTS}


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
    section.check_is_done()
