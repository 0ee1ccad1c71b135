"""Executors that lack a package, and what they say: a Python that finds what Spark brings along, and no package from here."""

from __future__ import annotations

import os
import pickle
import re
import subprocess
import sys
import textwrap
import threading
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyspark
import pytest
from pyspark import cloudpickle

import iris_py
from iris_py import ConfigurationError
from spark_connector import Network
from spark_connector.dataframes.dispatch import dispatch
from spark_connector.dataframes.plan import Plan, RequestLimits
from spark_connector.dataframes.tasks import dispatch_rows
from spark_connector.executors.application import ensure_task
from spark_connector.executors.orders import Order
from spark_connector.shipment import Shipment, check_pickles
from spark_connector.topics.options import read_options
from spark_connector.topics.reader import TopicReader

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).parents[3]
#: PySpark and py4j as Spark brings them to executors.
SPARK = sorted(str(path) for path in (Path(pyspark.__file__).parent / "python" / "lib").glob("*.zip"))
#: Iris as --py-files bring it: without the packages that it needs.
IRIS = [str(ROOT), str(ROOT / "overlay"), str(ROOT / "security")]
PACKAGES = os.path.dirname(os.path.dirname(pa.__file__))
BRING = "Or ship an environment that has it with Spark: spark.archives=environment.tar.gz#environment and"

OPEN = """
import sys
from pyspark import cloudpickle
for name in sys.argv[1:]:
    sys.modules[name] = None  # as if it were not installed
try:
    opened = cloudpickle.loads(sys.stdin.buffer.read())
    print("opened", list(opened(["here"])) if callable(opened) else type(opened).__name__)
except Exception as exc:
    print(type(exc).__name__, exc)
"""


def plan(**changes: Any) -> Plan:
    given: dict[str, Any] = {
        "cluster": "echo",
        "network": Network(),
        "reply_schema": pa.schema([("reply", pa.string())]),
        "request": "payload",
        "reply": None,
        "key": None,
        "internal": (),
        "limits": RequestLimits(window=2, timeout=30.0, retries=0, wait_for_members=5.0),
        "batch_rows": 2,
        "on_error": "raise",
        "name": "7",
        "token": "",
    }
    return Plan(**{**given, **changes})


def shipped(function: Callable[..., object], *arguments: object) -> bytes:
    blob: bytes = cloudpickle.dumps(Shipment(function, *arguments))  # type: ignore[no-untyped-call]
    return blob


def opened(blob: bytes, path: list[str], *missing: str) -> str:
    """Open a pickle as an executor does that has what is on the path; return what that says."""
    done = subprocess.run(
        [sys.executable, "-S", "-c", textwrap.dedent(OPEN), *missing],
        input=blob,
        capture_output=True,
        env={"PYTHONPATH": os.pathsep.join([*SPARK, *path])},
        cwd="/",
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode().strip()


SHIPMENTS: dict[str, Callable[[], bytes]] = {
    "dispatch": lambda: shipped(dispatch_rows, plan()),
    "topic": lambda: cloudpickle.dumps(TopicReader(read_options({"topic": "t"}))),  # type: ignore[no-untyped-call]
}


@pytest.mark.parametrize("shipment", SHIPMENTS)
def test_an_executor_without_iris_says_what_installs_it(shipment: str) -> None:
    said = opened(SHIPMENTS[shipment](), [])
    assert said.startswith(f"ImportError the Python of this executor, {sys.executable} on ")
    assert "has no Iris (no module named 'spark_connector'). Install the version of the driver there: pip install" in said
    assert f"iris_messaging-{iris_py.__version__}-py3-none-any.whl[spark]" in said
    assert BRING in said
    assert said.endswith("If this is the wrong Python, set PYSPARK_PYTHON.")


@pytest.mark.parametrize("shipment", SHIPMENTS)
def test_an_executor_that_lacks_a_package_names_all_that_are_missing(shipment: str) -> None:
    said = opened(SHIPMENTS[shipment](), IRIS)
    assert said.startswith("ImportError the Python of this executor, ")
    lacks, _, rest = said.partition(" lacks ")[2].partition(", which Iris needs. Run there: pip install ")
    assert {"cryptography", "msgspec", "pyarrow", "pandas"} <= set(lacks.split(", "))
    assert "pyspark" not in lacks
    assert "'pyarrow>=18'" in rest
    assert BRING in rest


def test_a_single_package_is_named_alone() -> None:
    said = opened(SHIPMENTS["dispatch"](), [*IRIS, PACKAGES], "pyarrow")
    assert " lacks pyarrow, which Iris needs. Run there: pip install 'pyarrow>=18'. Or ship" in said


def test_an_executor_that_has_everything_opens_it() -> None:
    assert opened(SHIPMENTS["topic"](), [*IRIS, PACKAGES]) == "opened TopicReader"


def test_an_agent_that_cannot_start_says_what_is_missing() -> None:
    order = pickle.dumps((b"a token", Order("c", "1", Network(), 1, b"a handler", {})))
    blob: bytes = cloudpickle.dumps(ensure_task(order))  # type: ignore[no-untyped-call]
    said = opened(blob, [])
    assert said.startswith("opened [{'wanted': 'here', 'executor': '', 'error': ")
    assert "has no Iris (no module named 'spark_connector'). Install the version" in said
    said = opened(blob, IRIS)
    assert re.search(r"'error': .*And the Python of this executor, .* lacks .*cryptography.* Run there: pip install ", said), (
        said
    )


def test_a_module_of_the_user_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("mymodels")
    exec("def score(row): return b''", module.__dict__)
    monkeypatch.setitem(sys.modules, "mymodels", module)
    said = opened(shipped(dispatch_rows, plan(request=vars(module)["score"])), [*IRIS, PACKAGES])
    assert said.startswith("ModuleNotFoundError a function of yours needs the module 'mymodels', which this executor does not")
    assert "pyspark.cloudpickle.register_pickle_by_value(mymodels)" in said


def test_another_version_is_named_when_it_does_not_understand_the_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise AttributeError("it has no such field")

    class Other:
        def __reduce__(self) -> tuple[Callable[[], None], tuple[()]]:
            return fail, ()

    cloudpickle.register_pickle_by_value(sys.modules[__name__])  # type: ignore[no-untyped-call]
    try:
        same = opened(shipped(dispatch_rows, Other()), [*IRIS, PACKAGES])
        monkeypatch.setattr(iris_py, "__version__", "99.0")
        other = opened(shipped(dispatch_rows, Other()), [*IRIS, PACKAGES])
    finally:
        cloudpickle.unregister_pickle_by_value(sys.modules[__name__])  # type: ignore[no-untyped-call]
    assert same == "AttributeError it has no such field"
    assert other.startswith("ImportError the driver has Iris 99.0 and this executor has Iris ")


def test_what_cannot_travel_is_refused_with_the_name_of_its_argument() -> None:
    lock = threading.Lock()
    check_pickles(request="a column", reply=bytes, key=None)
    with pytest.raises(ConfigurationError, match=r"the function reply= cannot be sent to executors: .*lock.*at its first call"):
        check_pickles(request=len, reply=lambda _reply: lock.locked())


IMPORT = """
import sys
for name in sys.argv[2:]:
    sys.modules[name] = None
try:
    exec(f"from spark_connector import {sys.argv[1]}")
    print("imported")
except Exception as exc:
    print(type(exc).__name__, exc)
"""


@pytest.mark.parametrize(
    ("name", "missing", "extra"),
    [
        ("ArrowHandler", "pyarrow", "arrow"),
        ("encode_batch", "pyarrow", "arrow"),
        ("dispatch", "pyarrow", "spark"),
        ("dispatch", "pyspark", "spark"),
        ("notify", "pyspark", "spark"),
        ("register", "pyspark", "spark"),
        ("configure", "pyspark", "spark"),
        ("ExecutorCluster", "pyspark", "spark"),
    ],
)
def test_a_name_that_needs_an_extra_says_which(name: str, missing: str, extra: str) -> None:
    done = subprocess.run(
        [sys.executable, "-S", "-c", IMPORT, name, missing],
        capture_output=True,
        cwd="/",
        env={"PYTHONPATH": os.pathsep.join([*IRIS, PACKAGES])},
        timeout=100,
        check=True,
    )
    said = done.stdout.decode()
    assert said.startswith(
        f"ModuleNotFoundError spark_connector.{name} needs {missing}, which the extra {extra!r} of Iris installs"
    )


def test_a_shipment_is_not_called_on_the_driver() -> None:
    with pytest.raises(AssertionError, match="is for executors"):
        Shipment(dispatch, 1)()
