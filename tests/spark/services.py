"""A network with services in this process, for tests of what uses it from a task or a query."""

from __future__ import annotations

import os
import threading
import time
from typing import TYPE_CHECKING

import pytest

import iris_py.sync as iris
from iris_security import Secret
from spark_connector import Network

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

#: How long a test waits for a state (seconds). The first micro-batch of a query starts a Python process for each thing that
#: Spark asks of a source, which took 60 s on two cores with twenty processes that wanted them.
PATIENCE_S = 200.0
#: To look at the progress of a query costs some milliseconds, of a machine that runs it.
POLL_S = 0.05


class Service:
    """A network of one node in this process, which serves what a test asks for.

    Attributes:
        node: The node.
        network: How Spark's tasks find it.
        asked: The payloads of the requests that were executed, in the order of their arrival.
    """

    def __init__(self, node: iris.Node, network: Network) -> None:
        self.node = node
        self.network = network
        self.asked: list[bytes] = []
        self._lock = threading.Lock()

    def serve(self, cluster: str, answer: Callable[[bytes], bytes], *, members: int = 1) -> None:
        """Serve a cluster until the end of the test."""

        def handle(request: iris.Request) -> bytes:
            with self._lock:
                self.asked.append(request.payload)
            return answer(request.payload)

        for _ in range(members):
            self.node.join(cluster, handle)


@pytest.fixture(scope="session")
def secret() -> str:
    """The secret of the network of the tests."""
    return Secret.generate(os.urandom).text


@pytest.fixture
def service(secret: str) -> Iterator[Service]:
    """A network of its own for each test; no task of another one is in it."""
    with iris.connect(secret=secret, network="tests", listen="127.0.0.1:0", seeds=(), discovery=False) as node:
        yield Service(node, Network(name="tests", secret=secret, seeds=[node.address], discovery=False))


def wait_until(condition: Callable[[], object], what: str) -> None:
    """Wait until something is the case."""
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, f"{what} was not the case within {PATIENCE_S:g} s"
        threading.Event().wait(POLL_S)


@pytest.fixture
def until() -> Callable[[Callable[[], object], str], None]:
    """Waits until something is the case."""
    return wait_until


@pytest.fixture
def options(service: Service, secret: str, tmp_path: Path) -> dict[str, str]:
    """The options of ``format("iris")`` that name the network of a test."""
    path = tmp_path / "secret"
    path.write_text(secret)
    path.chmod(0o600)
    return {"network": "tests", "secretFile": str(path), "seeds": service.node.address, "discovery": "false"}
