"""The dashboard and the alerts in examples/monitoring: what they ask for is what a node shows, and each alert has its runbook.

`make test-prometheus` has a real Prometheus judge the same files.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

import iris_py
from iris_py.gateway.metrics import GatewayCollector
from iris_py.metrics import StatusServer
from iris_py.metrics.families import OUTCOMES
from iris_py.patterns.topic.queue import POLICIES
from tests.monitoring import ALERTS, DASHBOARD, FOLDER, RECORDED, alert_expressions, expressions, metrics_of, panel_expressions

if TYPE_CHECKING:
    from collections.abc import Mapping

ROOT = Path(__file__).parents[1]
RUNBOOK = (ROOT / "docs" / "runbook.md").read_text()
#: Labels that Prometheus itself adds.
OF_PROMETHEUS = {"job", "instance"}
SECRET = bytes(range(32, 64))


@pytest.fixture(scope="module")
def scraped() -> Mapping[str, set[str]]:
    """The names of all series of a node that is a gateway, each with its labels: as far as something has happened."""

    async def main() -> str:
        async with iris_py.connect(secret=SECRET, listen="127.0.0.1:0", discovery=False) as node, node.join("a", echo):
            await node.request("a", b"")
            status = StatusServer()
            status.show(node, GatewayCollector(lambda: {"clouds": {}}, {}))
            try:
                return (await status._metrics()).decode()
            finally:
                status.abort()

    found: dict[str, set[str]] = {}
    for line in iris_py.run(main()).splitlines():
        if (declared := re.fullmatch(r"# TYPE (\w+) (\w+)", line)) is not None:
            names = (
                [declared[1]]
                if declared[2] != "histogram"
                else [f"{declared[1]}{end}" for end in ("_bucket", "_sum", "_count")]
            )
            found |= {name: set() for name in names}
        elif (sample := re.match(r"(\w+)(?:\{(.*)\})? ", line)) is not None:
            found[sample[1]] |= set(re.findall(r"(\w+)=\"", sample[2] or ""))
    return found


async def echo(request: iris_py.Request) -> bytes:
    return request.payload


def test_there_are_enough_of_both() -> None:
    assert len(alert_expressions()) >= 8
    assert len(panel_expressions()) >= 40


@pytest.mark.parametrize("expression", sorted({text for _where, text in expressions()}))
def test_each_expression_asks_for_what_a_node_shows(expression: str, scraped: Mapping[str, set[str]]) -> None:
    names = metrics_of(expression)
    assert names
    assert names <= scraped.keys()
    assert set(re.findall(r"\biris:[\w:]+", expression)) <= RECORDED.keys()
    for name, matchers in re.findall(r"\b(iris_\w+)\{([^}]*)\}", expression):
        labels = set(re.findall(r"(\w+)[=!]", matchers)) - OF_PROMETHEUS
        assert labels <= scraped[name] or not scraped[name], f"{name} has no labels {labels}"
    for outcome in re.findall(r'outcome[!=~]+"([^"]*)"', expression):
        assert outcome in {"done", *OUTCOMES.values()}


@pytest.mark.parametrize("rule", ALERTS, ids=lambda rule: rule["alert"])
def test_each_alert_says_what_to_do(rule: Mapping[str, Any]) -> None:
    assert rule["labels"]["severity"] in ("critical", "warning")
    assert rule["annotations"]["runbook_url"] == f"docs/runbook.md#{rule['alert'].lower()}"
    section = re.search(rf"^## {rule['alert']}\n(.*?)(?=^## |\Z)", RUNBOOK, re.DOTALL | re.MULTILINE)
    assert section is not None
    assert len(section[1]) > 200


@pytest.mark.parametrize("is_fault", [True, False], ids=["with the fault", "without it"])
@pytest.mark.parametrize("rule", ALERTS, ids=lambda rule: rule["alert"])
def test_each_alert_is_tested_with_its_fault_and_without(rule: Mapping[str, Any], is_fault: bool) -> None:
    tests = yaml.safe_load((FOLDER / "iris-rules.test.yml").read_text())["tests"]
    looks = [
        {re.match(r"\w+", series["series"])[0] for series in test["input_series"]}  # type: ignore[index]
        for test in tests
        for look in test["alert_rule_test"]
        if look["alertname"] == rule["alert"] and bool(look.get("exp_alerts")) is is_fault
    ]
    wanted = metrics_of(rule["expr"])
    if rule["alert"] == "IrisGatewayLost":
        assert any(wanted & metrics for metrics in looks)  # either of two metrics shows the fault
    else:
        assert any(wanted <= metrics for metrics in looks), f"{rule['alert']} has no such test with {wanted}"


def test_the_runbook_has_no_alert_that_is_not_there_and_names_what_the_code_says() -> None:
    assert set(re.findall(r"^## (Iris\w+)", RUNBOOK, re.MULTILINE)) == {rule["alert"] for rule in ALERTS}
    titles = {panel["title"] for panel in DASHBOARD["panels"]}
    for title in re.findall(r"panel \*([^*]+)\*", RUNBOOK):
        assert title in titles
    source = "\n".join(path.read_text() for path in (ROOT / "iris_py").rglob("*.py"))
    of_subscriptions = {f"subscription_{policy}" for policy in POLICIES}
    for line in re.findall(r"^\| (`[a-z_`, ]+) \|", RUNBOOK, re.MULTILINE):
        for word in re.findall(r"`(\w+)`", line):
            assert word in of_subscriptions or f'"{word}"' in source, word


def test_the_dashboard_is_whole() -> None:
    panels = DASHBOARD["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    boxes = [panel["gridPos"] for panel in panels]
    for number, one in enumerate(boxes):
        assert 0 <= one["x"] <= one["x"] + one["w"] <= 24
        for other in boxes[:number]:
            apart = (
                one["x"] + one["w"] <= other["x"]
                or other["x"] + other["w"] <= one["x"]
                or one["y"] + one["h"] <= other["y"]
                or other["y"] + other["h"] <= one["y"]
            )
            assert apart, (one, other)
    assert all(panel["description"] for panel in panels if panel["type"] != "row")
    variables = {variable["name"] for variable in DASHBOARD["templating"]["list"]}
    used = set(re.findall(r"\$(?!__)\{?(\w+)", json.dumps(panels)))
    assert used == variables


def test_the_configuration_reads_the_rules_that_lie_beside_it() -> None:
    configuration = yaml.safe_load((FOLDER / "prometheus.yml").read_text())
    assert [(FOLDER / name).exists() for name in configuration["rule_files"]] == [True]
