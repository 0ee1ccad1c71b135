"""``python -m benchmarks.counting``: instructions of a message, here and in another state of the repository."""

from __future__ import annotations

import compileall
import io
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Sequence  # noqa: TC003 - typer looks at it
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Annotated, Final

import typer

from benchmarks.counting.workload import WORKLOADS

_ROOT: Final = Path(__file__).resolve().parent.parent.parent
_WORKLOAD: Final = Path(__file__).with_name("workload.py")
#: A run takes half a minute, and some minutes on a machine that does something else besides.
TIMEOUT_S: Final = 1800.0


def main(
    before: Annotated[str, typer.Option(help="The commit to compare with.")] = "HEAD",
    after: Annotated[str, typer.Option(help="Another commit; without it, the files as they are.")] = "",
    workloads: Annotated[str, typer.Option(help="Only these, with commas between.")] = ",".join(WORKLOADS),
    jobs: Annotated[int, typer.Option(help="Runs at once.")] = 2,
) -> None:
    """Count the instructions of a message as it is now, and as it was."""
    if shutil.which("valgrind") is None:
        raise SystemExit("valgrind counts the instructions: install it (apt-get install valgrind)")
    names = workloads.split(",")
    with tempfile.TemporaryDirectory() as directory, ThreadPoolExecutor(jobs) as threads:
        trees = (_check_out(before, Path(directory, "before")), _check_out(after, Path(directory, "after")) if after else _ROOT)
        for tree in trees:  # compiling takes ten times as much as all messages, and not always the same
            compileall.compile_dir(tree, quiet=2, rx=re.compile(r"[/\\](\.venv|build)[/\\]"))
        found = {(name, tree): threads.submit(_each, tree, name) for name in names for tree in trees}
        print(f"{'workload':<14}{'before':>12}{'now':>12}{'more':>10}")
        for name in names:
            earlier, now = (found[name, tree].result() for tree in trees)
            print(f"{name:<14}{earlier:>12,.0f}{now:>12,.0f}{now / earlier - 1:>+10.2%}", flush=True)


def _check_out(commit: str, directory: Path) -> Path:
    archive = subprocess.run(["git", "archive", commit], cwd=_ROOT, check=True, capture_output=True).stdout
    with tarfile.open(fileobj=io.BytesIO(archive)) as files:
        files.extractall(directory, filter="data")
    return directory


def _each(tree: Path, name: str) -> float:
    """Return the instructions of one message."""
    count = WORKLOADS[name][1]
    shorter, longer = (_instructions(tree, name, times * count) for times in (1, 2))
    return (longer - shorter) / count


def _instructions(tree: Path, name: str, count: int) -> int:
    path = os.pathsep.join(map(str, (tree, tree / "overlay", tree / "security")))
    command: Sequence[str] = (
        *("valgrind", "--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null"),
        *(sys.executable, str(_WORKLOAD), name, str(count)),
    )
    done = subprocess.run(
        command,
        env=os.environ | {"PYTHONPATH": path, "PYTHONHASHSEED": "0"},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    counted = re.search(r"I +refs: +([\d,]+)", done.stderr)
    if done.returncode or counted is None:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stderr[-2000:]}")
    return int(counted[1].replace(",", ""))


if __name__ == "__main__":
    typer.run(main)
