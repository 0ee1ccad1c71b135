"""The executors' side of `iris demo --spark`: reading files in the tasks, and statistics in the agents."""

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
HOLD_S: Final = 30.0  # for the kill to come; then the task goes on as if nothing had been
LOOK_INTERVAL_S: Final = 0.02


class Reader:
    """Makes a request of rows that name files: the files.

    The task that comes to one of them for the first time waits to be killed, and says in a file which executor it is on: only
    in this way is it certain that the executor dies at work.

    Args:
        directory: Where to say so.
        hold_at: The number of that file; None to hold nowhere.
    """

    def __init__(self, directory: str, hold_at: int | None) -> None:
        self._path = Path(directory, HOLD_NAME)
        self._hold_at = hold_at

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the numbers and the contents."""
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
            os.link(draft, self._path)  # whole, and only if it is not there
        except FileExistsError:
            return  # this is the second attempt
        finally:
            draft.unlink()
        deadline = time.monotonic() + HOLD_S
        while time.monotonic() < deadline:
            time.sleep(LOOK_INTERVAL_S)


class Usage:
    """The resources that a process and its descendants use.

    Attributes:
        cpu_s: Processor time in seconds.
        memory_bytes: Resident memory, where what they share counts for each.
        processes: How many there are, besides the first.
    """

    def __init__(self, cpu_s: float, memory_bytes: int, processes: int) -> None:
        self.cpu_s = cpu_s
        self.memory_bytes = memory_bytes
        self.processes = processes


def usage(process_id: int) -> Usage:
    """Return what a process and those that come of it use now.

    Raises:
        ProcessLookupError: It has ended.
    """
    tick, page = os.sysconf("SC_CLK_TCK"), os.sysconf("SC_PAGE_SIZE")
    found: dict[int, tuple[int, int, int]] = {}
    for path in Path("/proc").iterdir():
        if path.name.isdecimal():
            try:  # the fields behind the name, which may have blanks and parentheses itself; see proc(5)
                stat = (path / "stat").read_bytes().decode(errors="replace").rpartition(")")[2].split()
            except OSError:
                continue  # it has just ended
            if stat[0] not in ("Z", "X"):  # else it has ended, and nobody has taken note
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
    """Say how the executor is. It runs in its agent, so it answers while tasks have every slot."""
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
