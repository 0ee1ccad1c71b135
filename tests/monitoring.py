"""The dashboard and the alerts of examples/monitoring, for their tests."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import yaml

FOLDER = Path(__file__).parents[1] / "examples" / "monitoring"
DASHBOARD: dict[str, Any] = json.loads((FOLDER / "iris-overview.json").read_text())
ALERTS: list[dict[str, Any]] = [
    rule for group in yaml.safe_load((FOLDER / "iris-rules.yml").read_text())["groups"] for rule in group["rules"]
]


def alert_expressions() -> list[tuple[str, str]]:
    """Return the expression of each alert, with its name."""
    return [(rule["alert"], rule["expr"]) for rule in ALERTS]


def panel_expressions() -> list[tuple[str, str]]:
    """Return the expressions of each panel, with its title."""
    return [(panel["title"], target["expr"]) for panel in DASHBOARD["panels"] for target in panel.get("targets", ())]


def expressions() -> list[tuple[str, str]]:
    """Return all expressions."""
    return alert_expressions() + panel_expressions()
