"""Parts that this machine has no client for are left out, and named at the start."""

from __future__ import annotations

from tests.nats.languages import missing_clients
from tests.nats.places import SUITE

collect_ignore = [] if SUITE.is_dir() else ["test_suite.py"]


def pytest_report_header() -> list[str]:
    """Name the parts that are left out."""
    missing = [f"the client in {language}: {advice}" for language, advice in missing_clients().items()]
    if collect_ignore:
        missing.append("the tests of nats-py: NATS_PY=/path of a checkout")
    return [f"left out: {each}" for each in missing]
