"""Whatever the description of a door allows, and its opposite, asked of a running door: each answer is as described."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest

if TYPE_CHECKING:
    from collections.abc import Generator

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
#: Tests of each operation; more with EXAMPLES=1000.
EXAMPLES = os.environ.get("EXAMPLES", "50")
TIMEOUT_S = 900
#: Names and patterns have rules beyond a schema. In a query every wrong value is a text, which may be a right one. And some 5xx
#: are answers, as for a cluster without members.
EXCLUDED = "positive_data_acceptance,negative_data_rejection,not_a_server_error"


class Network(msgspec.Struct):
    """A running network: the address of its door, and a token."""

    url: str
    token: str


@pytest.fixture
def network() -> Generator[Network]:
    command = [sys.executable, "-m", "tests.web.network"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        try:
            yield msgspec.json.decode(process.stdout.readline(), type=Network)
            assert process.poll() is None, "the door has ended"
        finally:
            process.terminate()
            process.wait(20)


@pytest.mark.timeout(TIMEOUT_S)
def test_each_answer_is_as_described(network: Network) -> None:
    done = subprocess.run(
        [
            *(Path(sys.executable).parent / "schemathesis", "--config-file", HERE / "schemathesis.toml"),
            *("run", f"{network.url}/v1/openapi.json", "--header", f"Authorization: Bearer {network.token}"),
            *("--max-examples", EXAMPLES, "--exclude-checks", EXCLUDED, "--continue-on-failure", "--no-color"),
        ],
        cwd=ROOT,
        env={**os.environ, "SCHEMATHESIS_HOOKS": "tests.web.checks", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    print(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Tested: 9" in done.stdout, "every operation was asked"
