"""A real Prometheus reads a node, and judges its metrics, the alerts and the dashboard: `make test-prometheus`."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import sys
import time
import urllib.parse
import urllib.request
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from iris_overlay.ring.config import PastryConfig
from tests.monitoring import FOLDER, expressions
from tests.ports import free_port

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PATIENCE_S = 60.0
#: Alerts that a node is not to be blamed for: on a busy machine its event loop stands still.
OF_THE_MACHINE = {"IrisLoopStalls"}
#: Leaves of a node on each side.
LEAF_HALF = PastryConfig().leaf_half
#: What the dashboard leaves to Grafana.
VARIABLES = {"$job": ".*", "$instance": ".*", "$cluster": ".*", "$__rate_interval": "1m"}


def tool(name: str) -> str:
    path = shutil.which(name)
    assert path is not None, f"there is no {name}: run make test-prometheus, which fetches it"
    return path


def promtool(*arguments: str, given: str | None = None) -> str:
    done = subprocess.run([tool("promtool"), *arguments], input=given, capture_output=True, text=True, timeout=PATIENCE_S)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def get(address: str, path: str) -> str:
    with urllib.request.urlopen(f"http://{address}{path}", timeout=PATIENCE_S) as response:
        return str(response.read().decode())


def query(address: str, expression: str) -> Any:
    for name, value in VARIABLES.items():
        expression = expression.replace(name, value)
    answer = json.loads(get(address, f"/api/v1/query?query={urllib.parse.quote(expression)}"))
    assert answer["status"] == "success", (expression, answer)
    return answer["data"]["result"]


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of the metrics of a member that has served a request."""
    home = tmp_path_factory.mktemp("home")
    environment = {"HOME": str(home), "PYTHONPATH": ":".join(sys.path), "PATH": "/usr/bin:/bin"}
    command = [sys.executable, "-m", "iris_py.cli"]
    arguments = ["join", "upper", "--exec", "tr a-z A-Z", "--http", "0", "--json"]
    with subprocess.Popen([*command, *arguments], env=environment, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            address = json.loads(process.stdout.readline())["http"]
            done = subprocess.run([*command, "request", "upper", "hello"], env=environment, capture_output=True, check=True)
            assert done.stdout.strip() == b"HELLO"
            yield address
        finally:
            process.terminate()


@pytest.fixture(scope="module")
def server(node: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a Prometheus that has read the node."""
    folder = tmp_path_factory.mktemp("prometheus")
    configuration = yaml.safe_load((FOLDER / "prometheus.yml").read_text())
    configuration["global"]["scrape_interval"] = "1s"
    configuration["rule_files"] = [str(FOLDER / name) for name in configuration["rule_files"]]
    configuration["scrape_configs"][0]["static_configs"][0]["targets"] = [node]
    (folder / "prometheus.yml").write_text(yaml.safe_dump(configuration))
    address = f"127.0.0.1:{free_port()}"
    command = [
        tool("prometheus"),
        f"--config.file={folder / 'prometheus.yml'}",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address={address}",
        "--log.level=error",
    ]
    with subprocess.Popen(command) as process:
        try:
            deadline = time.monotonic() + PATIENCE_S
            while True:
                try:
                    if query(address, "count_over_time(iris_build_info[1m]) >= 3"):
                        break
                except OSError:
                    pass  # it does not listen yet
                assert time.monotonic() < deadline, "nothing was read"
                assert process.poll() is None
                time.sleep(0.1)
            yield address
        finally:
            process.terminate()


def test_the_metrics_are_named_as_prometheus_wants(node: str) -> None:
    assert promtool("check", "metrics", given=get(node, "/metrics")) == ""


def test_the_configuration_and_the_alerts_are_read(tmp_path: Path) -> None:
    assert "SUCCESS" in promtool("check", "config", str(FOLDER / "prometheus.yml"))
    assert "SUCCESS" in promtool("test", "rules", str(FOLDER / "iris-rules.test.yml"))


#: The parts of a network of a hundred nodes, all of which are scraped, and whether the alert fires.
PARTS = {
    "whole": ((100,), False),
    "halves": ((50, 50), True),
    "60 to 40": ((60, 40), True),
    "90 to 10": ((90, 10), True),
    "one node outside": ((99, 1), True),
    "ten nodes killed": ((90,), False),
}


@pytest.mark.parametrize(("parts", "is_fault"), PARTS.values(), ids=PARTS)
def test_parts_of_a_network_are_told_from_the_noise_of_estimates(
    parts: tuple[int, ...], is_fault: bool, tmp_path: Path
) -> None:
    tests = []
    for seed in range(5):
        rng = random.Random(seed)
        sizes = [size for part in parts for size in estimates(part, rng)]
        series = [
            {"series": f'iris_network_nodes{{job="iris",instance="{number}"}}', "values": f"{size}x20"}
            for number, size in enumerate(sizes)
        ]
        summary = {"summary": "the network iris is in 2 parts", "runbook_url": "docs/runbook.md#irisnetworkinparts"}
        alert = {"exp_labels": {"severity": "critical", "job": "iris"}, "exp_annotations": summary}
        look = {"eval_time": "15m", "alertname": "IrisNetworkInParts", "exp_alerts": [alert] * is_fault}
        tests.append({"interval": "1m", "input_series": series, "alert_rule_test": [look]})
    file = tmp_path / "parts.test.yml"
    file.write_text(yaml.safe_dump({"rule_files": [str(FOLDER / "iris-rules.yml")], "tests": tests}))
    assert "SUCCESS" in promtool("test", "rules", str(file))


def estimates(nodes: int, rng: random.Random) -> list[int]:
    """Return the size of a ring as each of its nodes estimates it: from the span of its leaves, or exactly if it knows all."""
    if nodes <= 2 * LEAF_HALF:
        return [nodes] * nodes
    places = sorted(rng.random() for _ in range(nodes))
    spans = [(places[(n + LEAF_HALF) % nodes] - places[n - LEAF_HALF]) % 1 for n in range(nodes)]
    return [max(2 * LEAF_HALF + 1, round(2 * LEAF_HALF / span)) for span in spans]


def test_every_expression_is_evaluated_and_the_usual_ones_have_a_value(server: str) -> None:
    found = {text: query(server, text) for _where, text in expressions()}
    panels = dict(expressions())
    for title in ("Nodes", "Versions", "Requests by cluster", "Members by cluster", "Memory", "Executed by cluster", "Uptime"):
        assert found[panels[title]], title
    (nodes,) = found[panels["Nodes"]]
    assert nodes["value"][1] == "1"
    alerts = json.loads(get(server, "/api/v1/alerts"))["data"]["alerts"]
    assert {alert["labels"]["alertname"] for alert in alerts} <= OF_THE_MACHINE
