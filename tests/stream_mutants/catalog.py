"""``python -m tests.stream_mutants.catalog``: put each defect into the catalog, and count schedules until a check notices."""

from __future__ import annotations

import argparse
import gc
import subprocess
import sys
from typing import Final

from tests.stream_mutants.__main__ import UNNOTICED, PatchingFinder, find_broken_promise
from tests.stream_mutants.defects import Defect, Patch

__all__ = ["DEFECTS"]

#: Schedules for one defect. Too small: a rare defect is not noticed; too large: minutes for each defect.
SCHEDULES: Final = 300


def _defect(name: str, module: str, old: str, new: str) -> Defect:
    return Defect(name, "catalog", (Patch(f"iris_py.streams.catalog.{module}", old, new),))


DEFECTS: Final = (
    _defect(
        "a removed stream comes back by a late creation",
        "machine",
        "        if change.stream in self._removed:\n            return CatalogRefusal.REMOVED\n",
        "",
    ),
    _defect(
        "an old copy of a directory is admitted",
        "machine",
        "            if entry.starts <= known.starts:\n",
        "            if False:\n",
    ),
    _defect(
        "a retired store is admitted again",
        "machine",
        "        if entry.store in self._retired:\n            return CatalogRefusal.RETIRED\n",
        "",
    ),
    _defect(
        "two replicas on one host",
        "machine",
        "return self.may_share_hosts or entry.host not in others",
        "return True",
    ),
    _defect(
        "a store with partitions is forgotten",
        "machine",
        "if not known.is_retiring or self._held[store]:",
        "if not known.is_retiring:",
    ),
    _defect(
        "a second data key under the same number",
        "machine",
        "return entry if set(wraps) <= set(entry.wraps) else CatalogRefusal.OUTDATED",
        "return _with_wraps(entry, {(wrap.key, wrap.generation): wrap for wrap in (*wraps, *entry.wraps)}.values())",
    ),
    _defect(
        "the last wrap of a data key is removed",
        "machine",
        " or wrap.key not in safe)",
        ")",
    ),
    _defect(
        "a snapshot forgets the retired stores",
        "machine",
        "            tuple(self._retired),\n",
        "            (),\n",
    ),
    _defect(
        "a refused change has an effect",
        "machine",
        "        if description.name in self._names:\n            return CatalogRefusal.NAME_TAKEN\n",
        "        if description.name in self._names:\n"
        "            self._removed[change.stream] = None\n"
        "            return CatalogRefusal.NAME_TAKEN\n",
    ),
    _defect(
        "a search by a removed name finds a stream",
        "machine",
        "        del self._names[entry.description.name]\n",
        "",
    ),
)


def try_defect(number: int, schedules: int) -> int:
    """Run schedules with a defect in this process; returns the exit status."""
    defect = DEFECTS[number - 1]
    sys.meta_path.insert(0, PatchingFinder(defect))
    from iris_py.testing.cores.catalogs import CatalogSchedule

    gc.disable()
    found = find_broken_promise(
        (f"seed {seed}", lambda seed=seed: CatalogSchedule(seed).run())  # type: ignore[misc]
        for seed in range(schedules)
    )
    print(f"{number}. {defect.name}: {found or f'nothing in {schedules}'}", flush=True)
    return 0 if found else UNNOTICED


def main() -> int:
    """Run the command line; return 1 if a defect is not noticed."""
    parser = argparse.ArgumentParser(prog="python -m tests.stream_mutants.catalog", description=__doc__)
    parser.add_argument("--schedules", type=int, default=SCHEDULES, help=f"schedules for one defect (default: {SCHEDULES})")
    parser.add_argument(
        "--defect", type=int, metavar="N", choices=range(1, len(DEFECTS) + 1), help="try one defect, by its number"
    )
    arguments = parser.parse_args()
    if arguments.defect is not None:
        return try_defect(arguments.defect, arguments.schedules)
    command = [sys.executable, "-m", "tests.stream_mutants.catalog", "--schedules", str(arguments.schedules), "--defect"]
    statuses = [subprocess.run([*command, str(number)], check=False).returncode for number in range(1, len(DEFECTS) + 1)]
    print(f"{statuses.count(0)} of {len(DEFECTS)} defects noticed")
    return int(any(statuses))


if __name__ == "__main__":
    sys.exit(main())
