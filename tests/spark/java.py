"""Options for every Java of the tests, and an archive of Spark's classes, which saves each a third of its processor time.

A Java that lives briefly spends most of its time on classes: it reads thousands of them, and verifies each. It can write them
to a file as they are in memory, and other processes map that file ("application class-data sharing"). ``make test-long`` runs
this module, which writes the file once for a version of Java and of Spark. Java itself checks that the file fits its version
and the class path, and starts without it otherwise: the tests are the same, and only the time differs.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyspark
from pyspark import SparkContext
from pyspark.sql import SparkSession

from spark_connector import JavaNotFound, ensure_java

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

ROOT: Final = Path(__file__).parents[2]
ARCHIVE: Final = ROOT / "build" / "java" / f"spark-{pyspark.__version__}.jsa"
#: Quick to start, as no Java of the tests lives long: one compiler and one collector, and no collection because classes come.
QUICK: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:MetaspaceSize=256m"
#: For every Java here. Java would write a warning about an archive that does not fit to the standard output of a program.
JAVA_OPTIONS: Final = f"{QUICK} -XX:SharedArchiveFile={ARCHIVE} -Xlog:disable" if ARCHIVE.exists() else QUICK
#: Timeout for Java to write the archive when it ends: 10 s of processor time. Too small, and a busy machine has no archive.
_WRITING_TIMEOUT_S: Final = 300


def identify(java_home: Path) -> str | None:
    """Return the Java and the Spark that an archive is made for; None if this Java has no file ``release`` with its version."""
    try:
        release = (java_home / "release").read_text()
    except OSError:
        return None
    return f"{Path(pyspark.__file__).parent}\n{QUICK}\n{release}"


def is_current(archive: Path, identity: str) -> bool:
    """Tell whether there is an archive for this Java and this Spark."""
    note = archive.with_suffix(".txt")
    return archive.exists() and note.exists() and note.read_text() == identity


def write(archive: Path, identity: str) -> None:
    """Run a job in a Java that writes its classes to the archive when it ends.

    The job runs in a process of its own: its hundreds of warnings are shown only if no archive comes of it.
    """
    archive.parent.mkdir(parents=True, exist_ok=True)
    archive.with_suffix(".txt").unlink(missing_ok=True)
    with tempfile.TemporaryDirectory(dir=archive.parent) as temporary:
        made = Path(temporary) / "made.jsa"
        command = [sys.executable, "-m", "tests.spark.java", str(made)]
        job = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        if not made.exists():
            print(job.stdout)
            return
        made.replace(archive)
        archive.with_suffix(".txt").write_text(identity)


def _run(home: Path, java_options: str) -> None:
    os.environ |= {"SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable, "PYTHONPATH": str(ROOT)}
    session = (
        SparkSession.builder.master("local[2]")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.local.dir", str(home))
        .config("spark.sql.warehouse.dir", str(home / "warehouse"))
        .config("spark.driver.extraJavaOptions", f"-Dderby.system.home={home} {java_options}")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("OFF")
    _use(session, home)
    gateway = SparkContext._gateway
    assert gateway is not None
    session.stop()
    gateway.shutdown()
    gateway.proc.stdin.close()  # the JVM ends with it
    gateway.proc.wait(_WRITING_TIMEOUT_S)


def _use(session: SparkSession, home: Path) -> None:
    """Let Spark load the classes that most tests need: of tasks in Python, SQL, and a streaming query."""
    rows = session.range(0, 8, 1, 2).selectExpr("id", "cast(id as string) as text")
    changed = rows.mapInArrow(lambda batches: batches, rows.schema)
    assert len(changed.collect()) == changed.count() == 8
    changed.createOrReplaceTempView("changed")
    assert session.sql("select count(text) from changed where id > 3").collect()[0][0] == 4
    assert session.sparkContext.parallelize(range(8), 2).mapPartitions(list).count() == 8
    (home / "in").mkdir()
    (home / "in" / "rows.txt").write_text("a\nb\n")

    def look(batch: DataFrame, _number: int) -> None:
        assert batch.count() == 2

    stream = session.readStream.schema("value string").text(str(home / "in")).writeStream.trigger(availableNow=True)
    stream.option("checkpointLocation", str(home / "log")).foreachBatch(look).start().awaitTermination()


def main(made: str = "") -> None:
    """Write the archive if there is none for this Java and this Spark; given a file, run the job that writes it."""
    if made:
        _run(Path(made).parent, f"{QUICK} -XX:ArchiveClassesAtExit={made}")
        return
    try:
        identity = identify(ensure_java())
    except JavaNotFound:
        return  # each test with Spark fails, and has the reason
    if identity is None or is_current(ARCHIVE, identity):
        return
    print(f"keeping Spark's classes for the Javas of the tests in {ARCHIVE.relative_to(ROOT)}")
    shutil.rmtree(ARCHIVE.parent, ignore_errors=True)
    write(ARCHIVE, identity)


if __name__ == "__main__":
    main(*sys.argv[1:])
