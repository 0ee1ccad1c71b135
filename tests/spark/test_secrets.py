"""A secret that a job is given shows nowhere: not in what Spark tells of the job, nor in what its processes show or leave.

The Spark has an executor, an event log, a user interface and all of its logs. Jobs with a secret succeed and fail there, before
everything is searched. What has to hold a secret is in docs/security.md.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import re
import shutil
import sys
import urllib.request
from typing import TYPE_CHECKING, Any, Final

import pytest

import iris_py.sync as iris
from iris_security import Secret
from spark_connector import Network
from tests.leaks import find_secrets
from tests.process_leaks import variables_of
from tests.spark.driving import Driver, State, start_session, until, work_directory
from tests.spark.java import JAVA_OPTIONS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [pytest.mark.xdist_group("spark-processes"), pytest.mark.timeout(300)]

SECRET = Secret.generate(os.urandom)
ROWS: Final = 40
#: Everything that Spark's Java says goes into a file.
LOGGING = """
rootLogger.level = info
rootLogger.appenderRef.file.ref = file
appender.file.type = File
appender.file.name = file
appender.file.fileName = {path}
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %p %c %m%n%ex
"""
#: The pages of the user interface that begin at its root; those of jobs and plans are found from these.
PAGES: Final = (
    "jobs/",
    "stages/",
    "storage/",
    "environment/",
    "executors/",
    "SQL/",
    "metrics/json/",
    "metrics/executors/prometheus/",
)


def find(texts: dict[str, str]) -> list[str]:
    """Return the places whose text holds the secret, as text, hexadecimal, base64 of any offset, or bytes."""
    value, text = SECRET.value, SECRET.text.encode()
    forms = [SECRET.text, SECRET.text[6:30], value.hex(), value.hex().upper(), repr(value)[2:-1], repr(list(value))[1:-1]]
    for form in (value, text):
        forms += [base64.b64encode(bytes(offset) + form).decode()[4 * ((offset + 2) // 3) : -4] for offset in range(3)]
    assert all(len(form) > 20 for form in forms)
    return [place for place, shown in texts.items() if any(form in shown for form in forms) or find_secrets([shown])]


# -- what the driver does


def begin(state: State, home: Path) -> str:
    import logging

    from tests.spark import warm_daemon

    logging.basicConfig(filename=home / "python.log", level=logging.DEBUG)
    logging.getLogger("py4j").setLevel(logging.INFO)  # at DEBUG it writes what it sends (docs/security.md)
    (home / "events").mkdir()
    (home / "log4j2.properties").write_text(LOGGING.format(path=home / "java.log"))
    state.spark = start_session(
        home,
        "local-cluster[1,2,1024]",
        **{
            "spark.task.maxFailures": "1",  # the job that fails would do so four times, with new processes each time
            "spark.python.daemon.module": warm_daemon.MODULE,
            **{f"spark.executorEnv.{name}": value for name, value in warm_daemon.ENVIRONMENT.items()},
            "spark.ui.enabled": "true",
            "spark.ui.port": "0",
            "spark.ui.prometheus.enabled": "true",
            "spark.eventLog.enabled": "true",
            "spark.eventLog.compress": "false",
            "spark.eventLog.dir": (home / "events").as_uri(),
            "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={home}/log4j2.properties {JAVA_OPTIONS}",
        },
    )
    state.spark.sparkContext.setLogLevel("INFO")
    return str(state.spark.sparkContext.applicationId)


def work(state: State, network: Network, options: dict[str, str]) -> dict[str, str]:
    """Run jobs with the secret, one of which fails; return what there is to be seen of them in the driver."""
    from pyspark.errors import PythonException
    from pyspark.sql import functions as F

    from spark_connector import DispatchMetrics, dispatch

    numbers = state.spark.range(0, ROWS, 1, 2).withColumn("payload", F.col("id").cast("string"))
    metrics = DispatchMetrics(state.spark)
    df = dispatch(numbers, "reverse", request="payload", network=network, metrics=metrics)
    df.createOrReplaceTempView("asked")
    assert state.spark.sql("select count(reply) from asked").collect()[0][0] == ROWS
    failing = dispatch(numbers, "broken", request="payload", network=network, on_error="raise")
    try:
        failing.collect()
    except PythonException as exc:
        error = str(exc)
    else:
        raise AssertionError("it did not fail")
    numbers.select(F.col("payload").alias("value")).write.format("iris").options(**options, topic="news").mode("append").save()

    plan = df._jdf.queryExecution()
    explained = state.spark._jvm.PythonSQLUtils.explainString(plan, "extended")  # type: ignore[union-attr]
    return {
        "plan": plan.toString(),
        "explain extended": explained,
        "explain formatted": state.spark._jvm.PythonSQLUtils.explainString(plan, "formatted"),  # type: ignore[union-attr]
        "logical plan": plan.logical().toJSON(),
        "physical plan": plan.executedPlan().treeString(),
        "schema": df.schema.json(),
        "DataFrame": repr(df),
        "metrics": f"{metrics!r} {metrics.counts!r} {metrics.counts}",
        "error": error,
        "settings": repr(state.spark.sparkContext.getConf().getAll()),
        "network": repr(network),
    }


def settle(state: State) -> None:
    """Wait until the user interface knows what has happened: Spark tells it of that in another thread."""
    state.spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty(60_000)


def pages(state: State) -> dict[str, str]:
    """Return the pages of the user interface, and what its REST interface tells, by their addresses."""
    root = state.spark.sparkContext.uiWebUrl
    api = f"{root}/api/v1/applications/{state.spark.sparkContext.applicationId}"
    waiting = [f"{root}/{page}" for page in PAGES]
    waiting += [f"{api}/{name}" for name in ("jobs", "stages?details=true", "executors", "environment", "storage/rdd")]
    waiting += [f"{api}/sql?details=true&planDescription=true&length=1000"]
    found: dict[str, str] = {}
    while waiting:
        address = waiting.pop()
        if address in found:
            continue
        with urllib.request.urlopen(address, timeout=60) as answer:
            found[address] = answer.read().decode()
        links = re.findall(r'href="(?:http://[^/"]*)?(/(?:jobs/job|stages/stage|SQL/execution)/\?[^"#]*)"', found[address])
        waiting += [root + link.replace("&amp;", "&") for link in links if "page" not in link]
    return found


# -- everything that there is to be seen


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, dict[str, str]]]:
    """Everything that shows of jobs with a secret: texts by the kind of the place, and then by the place."""
    home = tmp_path_factory.mktemp("secrets") / "home"
    path = home.parent / "network.secret"
    path.write_text(SECRET.text)
    path.chmod(0o600)
    driver, application = Driver(home, sys.modules[__name__]), ""
    with iris.connect(secret=SECRET, network="tests", listen="127.0.0.1:0", discovery=False) as node:
        node.join("reverse", lambda request: request.payload[::-1])
        node.join("broken", break_down)
        seeds = [node.address]
        network = Network(name="tests", secret=SECRET.text, seeds=seeds, discovery=False)
        options = {"network": "tests", "secretFile": str(path), "seeds": seeds[0], "discovery": "false"}
        try:
            application = driver(lambda state: begin(state, home))
            told = driver(lambda state: work(state, network, options))
            driver(settle)
            found = {"driver": told, **shown_by_processes(driver), "pages": driver(pages)}
            directories = {"home": home, "work": work_directory(application), "temporary": driver.temporary}
            driver(lambda state: state.spark.stop())
            until(lambda: not any((home / "events").rglob("*.inprogress")))
            # An executor removes its directories as it ends, and what is removed while it is looked for cannot be searched.
            until(lambda: not any("CoarseGrainedExecutorBackend" in command for command in driver.processes().values()))
            yield {**found, "files": {str(each): text for name in directories.values() for each, text in files_below(name)}}
        finally:
            driver.close()
            if application:
                shutil.rmtree(work_directory(application))


def break_down(_request: iris.Request) -> bytes:
    raise LookupError("no entry")


def shown_by_processes(driver: Driver) -> dict[str, dict[str, str]]:
    processes = driver.processes()
    variables: dict[str, str] = {}
    for process, command in processes.items():
        with contextlib.suppress(OSError):  # a Python worker may end just now
            variables[f"{process} {command[:40]}"] = "\n".join(f"{name}={value}" for name, value in variables_of(process))
    return {"command lines": {str(process): command for process, command in processes.items()}, "environments": variables}


def files_below(directory: Path) -> Iterator[tuple[Path, str]]:
    for path in sorted(directory.rglob("*")):
        if path.is_file() and not path.is_symlink() and path.suffix != ".jar":
            yield path, path.read_bytes().decode("latin-1")


#: What has to be among what is searched, lest nothing is looked at: of which kind, and what stands there.
PRESENT: Final = {
    "plan": ("driver", "iris_dispatch"),
    "error": ("driver", "no entry"),
    "job": ("command lines", "warm_daemon"),
    "executor": ("command lines", "CoarseGrainedExecutorBackend"),
    "variable": ("environments", "PYTHONPATH="),
    "failed stage": ("pages", "no entry"),
    "plan in the user interface": ("pages", "iris_dispatch"),
    "metrics": ("pages", "metrics_executor"),
    "event log": ("files", "SparkListenerJobEnd"),
    "log of Java": ("files", "org.apache.spark.SparkContext"),
    "log of an executor": ("files", "CoarseGrainedExecutorBackend"),
}


@pytest.mark.long  # two Javas of its own; a test of executors looks at what is easily shown: plan, event log, logs, processes
@pytest.mark.parametrize("what", PRESENT)
def test_what_a_job_leaves_is_searched(seen: dict[str, dict[str, str]], what: str) -> None:
    kind, text = PRESENT[what]
    assert any(text in each for each in seen[kind].values())


@pytest.mark.long
@pytest.mark.parametrize("kind", ["driver", "command lines", "environments", "pages", "files"])
def test_the_secret_of_a_job_is_not_there(seen: dict[str, dict[str, str]], kind: str) -> None:
    assert find(seen[kind]) == []


@pytest.mark.parametrize(
    "shown",
    [
        SECRET.text,
        SECRET.value.hex(),
        repr(SECRET.value),
        json.dumps(list(SECRET.value)),
        base64.b64encode(b"x" + SECRET.text.encode()).decode(),
        base64.b64encode(b"xy" + SECRET.value + b"z").decode(),
    ],
    ids=["text", "hex", "bytes", "numbers", "text in base64", "bytes in base64"],
)
def test_the_search_finds_a_secret(shown: Any) -> None:
    assert find({"here": f"before {shown} behind", "elsewhere": "nothing"}) == ["here"]
