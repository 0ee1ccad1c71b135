"""The dashboard and the alerts of examples/monitoring, for their tests."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import yaml

FOLDER = Path(__file__).parents[1] / "examples" / "monitoring"
DASHBOARD: dict[str, Any] = json.loads((FOLDER / "iris-overview.json").read_text())
RULES: list[dict[str, Any]] = [
    rule for group in yaml.safe_load((FOLDER / "iris-rules.yml").read_text())["groups"] for rule in group["rules"]
]
ALERTS = [rule for rule in RULES if "alert" in rule]
#: Recorded expressions, by their name.
RECORDED: dict[str, str] = {rule["record"]: rule["expr"] for rule in RULES if "record" in rule}


def alert_expressions() -> list[tuple[str, str]]:
    """Return the expression of each alert, with its name."""
    return [(rule["alert"], rule["expr"]) for rule in ALERTS]


def metrics_of(expression: str) -> set[str]:
    """Return the metrics that an expression reads, also through recorded ones."""
    through = [metrics_of(text) for name, text in RECORDED.items() if name in expression]
    return set(re.findall(r"\biris_\w+", expression)).union(*through)


def panel_expressions() -> list[tuple[str, str]]:
    """Return the expressions of each panel, with its title."""
    return [(panel["title"], target["expr"]) for panel in DASHBOARD["panels"] for target in panel.get("targets", ())]


def expressions() -> list[tuple[str, str]]:
    """Return all expressions."""
    return alert_expressions() + list(RECORDED.items()) + panel_expressions()
