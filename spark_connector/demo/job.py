"""The executors' side of `iris demo --spark`: tasks read files, and agents report statistics."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from spark_connector.executors.spawn import find_executor

if TYPE_CHECKING:
    import pyarrow as pa

    from iris_py import Request

__all__ = ["HOLD_NAME", "Reader", "Usage", "statistics", "usage"]

HOLD_NAME: Final = "hold"
HOLD_S: Final = 30.0  # time for the kill to happen; then the task continues normally
LOOK_INTERVAL_S: Final = 0.02


class Reader:
    """The function of the demo's requests: takes rows of file paths, and returns the contents of the files.

    The first task that reaches a chosen file writes its executor's id to another file, and waits to be killed. So the demo
    kills an executor that is surely at work.

    Args:
        directory: The directory for the file with the executor's id.
        hold_at: The number of the chosen file; None for none.
    """

    def __init__(self, directory: str, hold_at: int | None) -> None:
        self._path = Path(directory, HOLD_NAME)
        self._hold_at = hold_at

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the numbers and the contents of the files."""
        import pyarrow as pa

        numbers = batch.column("number").to_pylist()
        if self._hold_at in numbers:
            self._maybe_hold()
        contents = [Path(os.fsdecode(path or b"")).read_bytes() for path in batch.column("path").to_pylist()]
        return pa.RecordBatch.from_pydict({"number": numbers, "content": contents})

    def _maybe_hold(self) -> None:
        draft = self._path.with_name(f"{HOLD_NAME}.{os.getpid()}")
        draft.write_text(find_executor().id)
        try:
            os.link(draft, self._path)  # atomic, and only if it does not exist
        except FileExistsError:
            return  # this is the second attempt
        finally:
            draft.unlink()
        deadline = time.monotonic() + HOLD_S
        while time.monotonic() < deadline:
            time.sleep(LOOK_INTERVAL_S)


class Usage:
    """The resources used by a process and its descendants.

    Attributes:
        cpu_s: Processor time in seconds.
        memory_bytes: Resident memory; shared memory counts for each process.
        processes: Number of descendants.
    """

    def __init__(self, cpu_s: float, memory_bytes: int, processes: int) -> None:
        self.cpu_s = cpu_s
        self.memory_bytes = memory_bytes
        self.processes = processes


def usage(process_id: int) -> Usage:
    """Return the present resource usage of a process and its descendants.

    Raises:
        ProcessLookupError: The process has ended.
    """
    tick, page = os.sysconf("SC_CLK_TCK"), os.sysconf("SC_PAGE_SIZE")
    found: dict[int, tuple[int, int, int]] = {}
    for path in Path("/proc").iterdir():
        if path.name.isdecimal():
            try:  # the fields after the name, which may itself have blanks and parentheses; see proc(5)
                stat = (path / "stat").read_bytes().decode(errors="replace").rpartition(")")[2].split()
            except OSError:
                continue  # the process has just ended
            if stat[0] not in ("Z", "X"):  # a zombie has ended, too
                found[int(path.name)] = (int(stat[1]), int(stat[11]) + int(stat[12]), int(stat[21]))
    if process_id not in found:
        raise ProcessLookupError(process_id)
    family = {process_id}
    while more := {child for child, (parent, _, _) in found.items() if parent in family} - family:
        family |= more
    ticks = sum(found[each][1] for each in family)
    pages = sum(found[each][2] for each in family)
    return Usage(ticks / tick, pages * page, len(family) - 1)


def statistics(_request: Request) -> bytes:
    """Return the executor's resource usage: a handler in its agent, which answers even while tasks occupy every slot."""
    process_id = int(os.environ["SPARK_EXECUTOR_PID"])
    used = usage(process_id)
    document = {
        "process": process_id,
        "agent": os.getpid(),
        "cpu_s": round(used.cpu_s, 2),
        "memory_bytes": used.memory_bytes,
        "processes": used.processes,
    }
    return json.dumps(document).encode()
