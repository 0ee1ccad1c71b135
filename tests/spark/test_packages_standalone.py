"""Executors that get Iris with the job, on a standalone Spark with two workers: a packed environment, and ``--py-files``.

The packed environment is a virtual environment in an archive, as venv-pack makes it. It has copies of the packages that these
tests run with, so no index is asked. Nothing of this checkout is on the path of the workers and executors.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import venv
import zipfile
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyspark
import pytest
from packaging.requirements import Requirement

from benchmarks.spark_standalone import HOSTS, start_standalone
from spark_connector import ArrowHandler, ensure_java
from tests.spark.java import JAVA_OPTIONS
from tests.spark.packaged_job import ROWS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.spark.services import Service

pytestmark = [pytest.mark.long, pytest.mark.xdist_group("spark-processes"), pytest.mark.timeout(400)]

ROOT = Path(__file__).parents[2]
JOB = Path(__file__).with_name("packaged_job.py")
NAME = "iris-messaging"


class Stage(NamedTuple):
    """A cluster that jobs are submitted to, and the packages for them."""

    url: str
    home: Path
    environment: Path  # a virtual environment with everything that Iris needs, and without Iris
    wheel: Path


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """A standalone Spark whose processes find no Iris."""
    home = tmp_path_factory.mktemp("packaged")
    with ExitStack() as stack:
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        for name in list(os.environ):
            if name.startswith(("IRIS_", "XDG_", "SPARK_", "PYTHON", "PYSPARK_")):
                patch.delenv(name)
        patch.setenv("HOME", str(home))
        ensure_java()
        url, _workers = start_standalone(stack, home, "--cores", "1", "--memory", "1200m")
        yield Stage(url, home, make_environment(home / "without-iris"), build_wheel(home))


def needed(requirements: list[str]) -> set[str]:
    """Return the names of the distributions that are needed, with those that these need."""
    found: set[str] = set()
    waiting = [Requirement(text) for text in requirements]
    while waiting:
        requirement = waiting.pop()
        extras = requirement.extras or {""}
        if requirement.marker is not None and not any(requirement.marker.evaluate({"extra": extra}) for extra in extras):
            continue
        if requirement.name.lower() in found:
            continue
        found.add(requirement.name.lower())
        waiting += [
            other
            for other in map(Requirement, importlib.metadata.requires(requirement.name) or ())
            if other.marker is None or any(other.marker.evaluate({"extra": extra}) for extra in extras)
        ]
    return found


def make_environment(directory: Path) -> Path:
    """Make a virtual environment of the packages of this one that Iris needs, with those for Arrow."""
    venv.create(directory, symlinks=True)
    (target,) = directory.glob("lib/python*/site-packages")
    wanted = [text for text in importlib.metadata.requires(NAME) or () if "extra ==" not in text]
    for name in needed([*wanted, "pyarrow"]):
        for file in importlib.metadata.files(name) or ():
            if {"..", "tests", "include"}.intersection(file.parts) or file.suffix == ".pyc":
                continue  # a command, what takes time to pack and nobody imports, or what is compiled anew
            place = target / file
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(str(file.locate()), place)
    return directory


def build_wheel(home: Path) -> Path:
    """Build the wheel of Iris; return its path."""
    subprocess.run([sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(home)], cwd=ROOT, check=True)
    (wheel,) = home.glob("*.whl")
    return wheel


def double(batch: pa.RecordBatch) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pc.add(batch["id"], batch["id"])], ["twice"])


def submit(
    stage: Stage, service: Service, secret: str, what: str, python: str, *options: str
) -> subprocess.CompletedProcess[str]:
    """Submit the job, and wait for its end; all that its program prints is in the output."""
    settings = {
        "spark.driver.host": HOSTS[0],
        "spark.driver.bindAddress": HOSTS[0],
        "spark.driver.extraJavaOptions": JAVA_OPTIONS,
        "spark.executor.extraJavaOptions": JAVA_OPTIONS,
        "spark.executor.memory": "1g",
        "spark.cores.max": "2",
        "spark.local.dir": str(stage.home),
        "spark.task.maxFailures": "1",
        "spark.ui.enabled": "false",
        "spark.pyspark.python": python,
        "spark.pyspark.driver.python": sys.executable,
    }
    command = [str(Path(pyspark.__file__).parent / "bin" / "spark-submit"), "--master", stage.url, *options]
    for name, value in settings.items():
        command += ["--conf", f"{name}={value}"]
    return subprocess.run(
        [*command, str(JOB), "tests", service.node.address, what],
        cwd=stage.home,
        env={**os.environ, "IRIS_SECRET": secret, "SPARK_LOCAL_IP": HOSTS[0]},
        capture_output=True,
        text=True,
    )


def check(done: subprocess.CompletedProcess[str], python: str, place: str) -> dict[str, object]:
    """See that all rows have their replies, and where the executors have their Python and Iris from; return what was said."""
    assert done.returncode == 0, done.stdout[-3000:]
    found = json.loads(next(line for line in done.stdout.splitlines() if line.startswith("{")))
    assert isinstance(found, dict)
    assert sorted(found["replies"]) == [[number, 2 * number] for number in range(ROWS)]
    for executable, iris in (*found["tasks"], *found.get("agents", ())):
        assert re.search(python, executable), executable
        assert re.search(place, iris), iris
    assert len(found["tasks"]) == 4
    return found


def test_executors_run_in_a_packed_environment(stage: Stage, service: Service, secret: str) -> None:
    service.node.join("double", ArrowHandler(double))
    packed = stage.home / "packed"
    shutil.copytree(stage.environment, packed, symlinks=True)
    (target,) = packed.glob("lib/python*/site-packages")
    with zipfile.ZipFile(stage.wheel) as wheel:
        wheel.extractall(target)
    archive = stage.home / "environment.tar.gz"
    with tarfile.open(archive, "w:gz", compresslevel=1) as file:
        file.add(packed, ".")
    shutil.rmtree(packed)

    options = ("--archives", f"{archive}#environment")
    done = submit(stage, service, secret, "everything", "./environment/bin/python", *options)

    found = check(done, r"/work-\d/.*/environment/bin/python", r"/work-\d/.*/environment/lib/.*/site-packages/iris_py/")
    assert found["sent"] == ROWS
    assert isinstance(found["agents"], list)
    assert len(found["agents"]) == 2


def test_executors_get_iris_alone_as_a_file_of_python(stage: Stage, service: Service, secret: str) -> None:
    service.node.join("double", ArrowHandler(double))
    python = str(stage.environment / "bin" / "python")
    archive = stage.home / "iris.zip"
    shutil.copyfile(stage.wheel, archive)

    done = submit(stage, service, secret, "everything", python, "--py-files", str(archive))

    found = check(done, re.escape(python), r"/iris\.zip/iris_py/")
    assert found["sent"] == ROWS
    assert isinstance(found["agents"], list)
    assert len(found["agents"]) == 2


def test_without_a_package_the_error_names_what_is_missing(stage: Stage, service: Service, secret: str) -> None:
    python = str(stage.environment / "bin" / "python")
    done = submit(stage, service, secret, "dispatch", python)
    assert done.returncode != 0
    assert re.search(rf"the Python of this executor, {re.escape(python)} on \S+, has no Iris", done.stdout)
