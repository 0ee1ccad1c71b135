"""The node of a Python worker, and its settings, without Spark."""

from __future__ import annotations

import os
import pickle
from typing import TYPE_CHECKING

import pytest

import iris_py.sync as iris
from iris_security import Secret
from spark_connector import Network
from spark_connector.dataframes import worker_node as worker

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytest_plugins = ["iris_py.testing.fixtures"]

SECRET = Secret.generate(os.urandom).text


@pytest.fixture
def seed(iris_isolated: Path) -> Iterator[iris.Node]:
    with iris.connect(secret=SECRET, discovery=False) as node, node.join("echo", lambda request: request.payload):
        yield node
        worker.end_task()


def reachable(seed: iris.Node) -> Network:
    return Network(secret=SECRET, seeds=[seed.address], discovery=False)


def test_one_node_serves_all_tasks_of_a_process(seed: iris.Node, monkeypatch: pytest.MonkeyPatch) -> None:
    worker_node = worker.worker_node(reachable(seed), "echo")
    assert worker_node.call(worker_node.node.request("echo", b"hello")) == b"hello"

    with monkeypatch.context() as patch:
        patch.setenv("SPARK_REUSE_WORKER", "1")
        worker.end_task()
        assert worker.worker_node(pickle.loads(pickle.dumps(reachable(seed))), "echo") is worker_node
    assert len(seed.nodes()) == 2


def test_a_process_that_is_not_used_again_says_goodbye(seed: iris.Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPARK_REUSE_WORKER", raising=False)
    worker_node = worker.worker_node(reachable(seed), "echo")

    worker.end_task()

    assert not worker_node.is_alive
    assert worker.worker_node(reachable(seed), "echo") is not worker_node


def test_a_forked_process_has_a_node_of_its_own(seed: iris.Node, monkeypatch: pytest.MonkeyPatch) -> None:
    worker_node = worker.worker_node(reachable(seed), "echo")
    monkeypatch.setattr(worker, "_owner", 1)  # as in the child of a fork: the parent was another process

    other = worker.worker_node(reachable(seed), "echo")

    assert other is not worker_node
    assert worker_node.is_alive, "what belongs to the parent is left alone"
    worker_node.close()


def test_a_node_that_does_not_start_says_for_what(iris_isolated: Path) -> None:
    with pytest.raises(
        iris.IrisError, match="a Spark task cannot reach the cluster 'echo', because its Iris node does not start: listen"
    ):
        worker.worker_node(Network(listen="nowhere"), "echo")


# -- settings


def test_a_secret_is_not_shown() -> None:
    assert SECRET not in repr(Network(secret=SECRET))


def test_a_secret_may_be_in_a_file(seed: iris.Node, tmp_path: Path) -> None:
    path = tmp_path / "secret"
    path.write_text(f"# of the cluster\n\n{SECRET}\n")
    path.chmod(0o640)

    worker_node = worker.worker_node(Network(secret_file=str(path), seeds=[seed.address], discovery=False), "echo")

    assert worker_node.call(worker_node.node.request("echo", b"hello")) == b"hello"


def test_a_command_may_print_the_secret(seed: iris.Node, tmp_path: Path) -> None:
    path = tmp_path / "secret"
    path.write_text(SECRET)
    network = Network(secret_command=["cat", str(path)], seeds=[seed.address], discovery=False)

    worker_node = worker.worker_node(pickle.loads(pickle.dumps(network)), "echo")

    assert worker_node.call(worker_node.node.request("echo", b"hello")) == b"hello"


@pytest.mark.parametrize(
    ("content", "mode", "reason"),
    [
        (SECRET, 0o622, "other users can write"),
        ("", 0o600, "holds no secret"),
        (f"{SECRET}\nand another", 0o600, "is not a secret"),
        ("x" * 2000, 0o600, "is larger than"),
        (None, 0o600, "on this executor: .* cannot be read: No such file"),
    ],
    ids=["open", "empty", "two", "long", "missing"],
)
def test_a_file_that_holds_no_secret_is_told(
    iris_isolated: Path, tmp_path: Path, content: str | None, mode: int, reason: str
) -> None:
    path = tmp_path / "secret"
    if content is not None:
        path.write_text(content)
        path.chmod(mode)

    with pytest.raises(iris.IrisError, match=reason) as caught:
        worker.worker_node(Network(secret_file=str(path)), "echo")
    assert SECRET not in str(caught.value)


def test_settings_that_cannot_be_meant_are_told_at_once() -> None:
    with pytest.raises(iris.ConfigurationError, match="both given"):
        Network(secret=SECRET, secret_file="/run/secret")
    with pytest.raises(iris.ConfigurationError, match="secret_file is a secret, not the path of a file") as caught:
        Network(secret_file=SECRET)
    assert SECRET not in str(caught.value)
    with pytest.raises(iris.ConfigurationError, match="secret= and secret_command= are both given"):
        Network(secret=SECRET, secret_command=["pass", "show", "iris"])
    with pytest.raises(iris.ConfigurationError, match="secret_command must be a list of strings"):
        Network(secret_command="pass show iris")
    assert hash(Network(secret_command=["pass"])) == hash(Network(secret_command=("pass",)))
    with pytest.raises(iris.ConfigurationError, match="must be a list"):
        Network(seeds="db1:4711")
