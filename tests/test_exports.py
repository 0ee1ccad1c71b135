"""The public names: these and no others, each documented."""

from __future__ import annotations

import dataclasses
import inspect
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

import iris_py
import iris_py.gateway
import iris_py.metrics
import iris_py.service
import iris_py.sync
import iris_py.testing
import iris_py.web
import iris_security
import pyspark_iris
import spark_connector

if TYPE_CHECKING:
    import types

PUBLIC = {
    "AdministrationKey",
    "Answers",
    "AppendReceipt",
    "AppendUncertain",
    "Cloud",
    "CloudUnavailable",
    "Codec",
    "CodecFormat",
    "Config",
    "ConfigurationError",
    "DecodeError",
    "EncodeError",
    "EventRecord",
    "Handler",
    "HandshakeError",
    "Health",
    "HedgeAfter",
    "IrisError",
    "Keyring",
    "Member",
    "MemberLost",
    "Members",
    "Membership",
    "Message",
    "MessageTooLarge",
    "NoMembers",
    "NoStream",
    "Node",
    "NodeClosed",
    "NodeName",
    "NodeReport",
    "NodeReports",
    "NotConnected",
    "NotExported",
    "OnFull",
    "OverflowPolicy",
    "Overloaded",
    "PartitionInfo",
    "RemoteError",
    "Request",
    "RequestTimeout",
    "Retry",
    "RetryReason",
    "RotationIncomplete",
    "RotationStatus",
    "Route",
    "Seal",
    "SealError",
    "Sealed",
    "Secret",
    "SlowSubscriber",
    "Statistics",
    "Stream",
    "StreamDamaged",
    "StreamFull",
    "StreamInfo",
    "StreamRecord",
    "StreamRecords",
    "StreamTruncated",
    "StreamUnavailable",
    "StreamWriter",
    "Streams",
    "Subscription",
    "Survey",
    "SurveyFailure",
    "SurveyReply",
    "TooManyMembersLost",
    "Trace",
    "Tunnel",
    "TunnelBroken",
    "TunnelClosed",
    "connect",
    "open_streams",
    "run",
    "until_stopped",
}

GATEWAY = {"CloudKey", "Gateway", "open_gateway", "reload_gateway"}

METRICS = {"NodeCollector", "StatusServer", "observe_node", "serve_status"}

SERVICE = {"Service"}

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
    "ShadowDisk",
    "Tap",
    "VirtualFederation",
    "VirtualLoop",
    "VirtualNetwork",
    "run",
}

WEB = {"MountedDoor", "Policy", "door"}

SPARK = {
    "AgentLost",
    "AgentUnavailable",
    "ApplicationEnded",
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
    [
        (iris_py, PUBLIC),
        (iris_py.gateway, GATEWAY),
        (iris_py.metrics, METRICS),
        (iris_py.service, SERVICE),
        (iris_py.testing, TESTING),
        (iris_py.web, WEB),
        (spark_connector, SPARK),
    ],
    ids=["iris_py", "gateway", "metrics", "service", "testing", "web", "spark_connector"],
)
def test_the_public_names_are_pinned(module: types.ModuleType, names: set[str]) -> None:
    assert set(module.__all__) == names
    assert list(module.__all__) == sorted(module.__all__, key=lambda name: (not name[0].isupper(), name))
    for name in names:
        assert getattr(module, name) is not None


def test_spark_finds_the_data_source_by_the_name_of_its_module() -> None:
    """It imports each module named pyspark_*, and takes what is called DefaultSource."""
    assert pyspark_iris.__all__ == ["DefaultSource"]
    source: Any = pyspark_iris.DefaultSource
    assert source.name() == "iris"


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


def _imported_by(program: str) -> set[str]:
    """Return the modules that a program has imported in the end."""
    done = subprocess.run(
        [sys.executable, "-c", f"{program}; import sys; print(*sys.modules)"], capture_output=True, check=True
    )
    return set(done.stdout.decode().split())


def test_importing_the_package_imports_nothing_else_of_it() -> None:
    assert {name for name in _imported_by("import iris_py") - _imported_by("pass") if name.startswith("iris_")} == {
        "iris_py",
        "iris_py.lazy",
    }


def test_a_program_that_connects_imports_what_it_needs_alone() -> None:
    """Its start is imports and little else: no extra, and of the standard library nothing that only some programs need."""
    imported = _imported_by("import iris_py; iris_py.connect") - _imported_by("pass")
    packages = {name.partition(".")[0] for name in imported} - sys.stdlib_module_names
    of_others = {"_cffi_backend", "_openssl", "asyncio_dgram", "cryptography", "msgspec", "typing_extensions"}
    assert packages - of_others == {"iris_overlay", "iris_py", "iris_security"}
    parts = {".".join(name.split(".")[:2]) for name in imported if name.startswith("iris_py.")}
    assert not parts & {f"iris_py.{name}" for name in ("cli", "connector", "gateway", "metrics", "sync", "testing")}
    heavy = {
        "email",
        "fractions",
        "http",
        "importlib.metadata",
        "multiprocessing",
        "statistics",
        "tempfile",
        "unittest",
    }
    assert not imported & heavy


#: Classes whose fields are taken by position, too: what names a node, which stays as it is, and what only a node makes, for
#: every message.
BY_POSITION = {"Message", "NodeName", "Request", "StreamRecord"}


def test_fields_are_taken_by_their_names() -> None:
    """So a release puts a new field where it belongs, and breaks no program."""
    by_position = set()
    modules = (
        iris_py,
        iris_py.gateway,
        iris_py.metrics,
        iris_py.service,
        iris_py.sync,
        iris_py.testing,
        iris_py.web,
        spark_connector,
    )
    for module in modules:
        for name in module.__all__:
            value = make = getattr(module, name)
            if dataclasses.is_dataclass(value) or (inspect.isclass(value) and issubclass(value, msgspec.Struct)):
                kinds = {each.kind for each in inspect.signature(make).parameters.values()}
                by_position |= {name} if kinds - {inspect.Parameter.KEYWORD_ONLY} else set()
    assert by_position == BY_POSITION


@pytest.mark.parametrize(
    "module",
    [
        iris_py,
        iris_py.gateway,
        iris_py.metrics,
        iris_py.service,
        iris_py.sync,
        iris_py.testing,
        iris_py.web,
        iris_security,
        spark_connector,
    ],
    ids=lambda module: module.__name__,
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
        iris_py.TooManyMembersLost("accounts", ["ab" * 16, "cd" * 16]),
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
        iris_py.NoMembers("accounts@eu", 0),
        iris_py.CloudUnavailable("accounts@eu"),
        iris_py.NotExported("accounts@eu"),
        iris_py.Overloaded("accounts@eu", retry_after_s=0.5),
        iris_py.MemberLost("accounts@eu", "", gateway="ab" * 16),
        iris_py.RequestTimeout("accounts@eu", 1.5, None, gateway="ab" * 16),
        iris_py.MessageTooLarge(20, 10, cluster="accounts@eu"),
        iris_py.EncodeError("a reason", cluster="accounts"),
        iris_py.EncodeError("a reason", topic="clicks"),
        iris_py.DecodeError("a reason", cluster="accounts", member="ab" * 16),
        iris_py.DecodeError("a reason", topic="clicks", member="ab" * 16),
        iris_py.DecodeError("a reason", cluster="accounts", is_refused=True),
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
    assert len(raised) == 27
