"""`iris demo --nats` with nats-py; tests/integration/test_demo_nats.py has it without."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from iris_py.cli.demo.nats_client import client_name

COMMAND = [sys.executable, "-m", "iris_py.cli", "demo", "--nats", "--check", "--json"]


@pytest.mark.timeout(240)
def test_all_claims_hold_for_clients_of_nats_py() -> None:
    assert client_name() == "nats-py"
    done = subprocess.run(COMMAND, capture_output=True, text=True, timeout=200, check=False)
    line = json.loads(done.stdout)
    assert [finding for finding in line["findings"] if not finding["holds"]] == []
    assert done.returncode == 0
