"""The public names: these and no others, each documented."""

from __future__ import annotations

import inspect
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

import iris_py
import iris_py.sync
import iris_py.testing
import iris_security
import pyspark_iris
import spark_connector

if TYPE_CHECKING:
    import types

PUBLIC = {
    "AdministrationKey",
    "Answers",
    "Config",
    "ConfigurationError",
    "Handler",
    "HandshakeError",
    "IrisError",
    "Keyring",
    "Member",
    "MemberLost",
    "Members",
    "Membership",
    "Message",
    "MessageTooLarge",
    "NoMembers",
    "Node",
    "NodeClosed",
    "NotConnected",
    "Overloaded",
    "RemoteError",
    "Request",
    "RequestTimeout",
    "RotationIncomplete",
    "RotationStatus",
    "Secret",
    "SlowSubscriber",
    "Statistics",
    "Subscription",
    "Survey",
    "SurveyFailure",
    "SurveyReply",
    "Tunnel",
    "TunnelBroken",
    "TunnelClosed",
    "connect",
    "run",
    "until_stopped",
}

TESTING = {
    "ClockError",
    "DeadlockError",
    "Faults",
    "LimitError",
    "MemoryHost",
    "MemoryNetwork",
    "NodeSimulation",
    "OverlaySimulation",
    "Record",
    "VirtualLoop",
    "VirtualNetwork",
    "run",
}

SPARK = {
    "AgentLost",
    "AgentUnavailable",
    "ArrowHandler",
    "DispatchCounts",
    "DispatchError",
    "DispatchMetrics",
    "Executor",
    "ExecutorCluster",
    "ExecutorsMissing",
    "JavaNotFound",
    "LocalAgent",
    "MessageIds",
    "Network",
    "Notified",
    "SourceMetrics",
    "UpdateFailed",
    "configure",
    "decode_batch",
    "dispatch",
    "encode_batch",
    "ensure_java",
    "local_agent",
    "notify",
    "register",
    "source_metrics",
}


@pytest.mark.parametrize(
    ("module", "names"),
    [(iris_py, PUBLIC), (iris_py.testing, TESTING), (spark_connector, SPARK)],
    ids=["iris_py", "testing", "spark_connector"],
)
def test_the_public_names_are_pinned(module: types.ModuleType, names: set[str]) -> None:
    assert set(module.__all__) == names
    assert list(module.__all__) == sorted(module.__all__, key=lambda name: (not name[0].isupper(), name))
    for name in names:
        assert getattr(module, name) is not None


def test_spark_finds_the_data_source_by_the_name_of_its_module() -> None:
    """It imports each module named pyspark_*, and takes what is called DefaultSource."""
    assert pyspark_iris.__all__ == ["DefaultSource"]
    assert pyspark_iris.DefaultSource.name() == "iris"


def test_nothing_else_looks_public() -> None:
    names = [name for name in dir(iris_py) if not name.startswith("_")]
    assert {name for name in names if not inspect.ismodule(getattr(iris_py, name))} == PUBLIC


def test_a_name_is_imported_when_it_is_used() -> None:
    program = (
        "import sys, iris_py; print(iris_py.NoMembers.__name__, 'asyncio' in sys.modules, 'iris_py.api.node' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["NoMembers", "False", "False"]
    with pytest.raises(AttributeError, match="no attribute 'NoSuchName'"):
        getattr(iris_py, "No" + "SuchName")


@pytest.mark.parametrize(
    "module", [iris_py, iris_py.sync, iris_py.testing, iris_security, spark_connector], ids=lambda module: module.__name__
)
def test_every_public_name_is_documented(module: types.ModuleType) -> None:
    undocumented = []
    for name in module.__all__:
        value = getattr(module, name)
        if not inspect.isclass(value) and not inspect.isfunction(value):
            continue  # a constant, or an alias
        if not inspect.getdoc(value):
            undocumented.append(name)
        if not inspect.isclass(value) or issubclass(value, BaseException):
            continue
        for attribute, member in vars(value).items():
            is_described = inspect.isfunction(member) or isinstance(member, property | classmethod | staticmethod)
            if attribute.startswith("_") or not is_described:
                continue
            if not inspect.getdoc(getattr(value, attribute)):
                undocumented.append(f"{name}.{attribute}")
    # What implements an interface of asyncio or of this library is described there.
    inherited = {"VirtualLoop", "MemoryHost"}
    described = "Attributes:"
    assert [
        name
        for name in undocumented
        if name.split(".")[0] not in inherited and described not in (inspect.getdoc(getattr(module, name.split(".")[0])) or "")
    ] == []


def test_every_error_says_what_to_do() -> None:
    """One of each; its text has the facts, and ends with advice."""
    errors = [
        iris_py.HandshakeError("192.0.2.1:1", "a reason"),
        iris_py.NoMembers("accounts", 2),
        iris_py.NoMembers("accounts", 5, "eu/a", 3),
        iris_py.RequestTimeout("accounts", 1.5, "ab" * 16),
        iris_py.Overloaded("accounts", 3),
        iris_py.MemberLost("accounts", "ab" * 16),
        iris_py.MessageTooLarge(20, 10),
        iris_py.SlowSubscriber("clicks", "disconnect", 10, 1000),
        iris_py.NoMembers("accounts", 2, without_tunnels=3),
        iris_py.MessageTooLarge(20, 10, is_received=True),
        iris_py.TunnelClosed("accounts", "ab" * 16),
        iris_py.TunnelClosed("accounts", "ab" * 16, is_ours=True),
        iris_py.TunnelBroken("accounts", "ab" * 16, "the link ended"),
        iris_py.TunnelBroken("accounts", "ab" * 16, "the link ended", "LookupError", "no such file"),
        iris_py.NotConnected("accounts", {"192.0.2.1:1": "is silent"}, ("192.0.2.7",)),
        iris_py.RotationIncomplete(2, ("ab" * 16,), is_begun=False),
        iris_py.RotationIncomplete(2, ("ab" * 16,), is_begun=True),
        iris_py.RotationIncomplete(2, (), is_begun=False),
        iris_py.RotationIncomplete(2, (), is_begun=True),
        iris_py.NodeClosed(),
    ]
    for error in errors:
        assert isinstance(error, iris_py.IrisError)
        text = str(error)
        assert text.endswith(".")
        assert text.count(". ") >= 1 or "; " in text, text
        for value in vars(error).values():
            if value and not isinstance(value, float | bool):
                parts = value if isinstance(value, dict | tuple) else [value]
                assert all(str(part)[:8] in text for part in parts)
    assert issubclass(iris_py.RequestTimeout, TimeoutError)
    kinds = [getattr(iris_py, name) for name in PUBLIC if inspect.isclass(getattr(iris_py, name))]
    raised = [kind for kind in kinds if issubclass(kind, BaseException)]
    assert all(issubclass(kind, iris_py.IrisError) for kind in raised)
    assert len(raised) == 15
