"""``python -m tests.fuzz.worker MODULE TARGET RUNS CORPUS CRASHES SEED``: run one target, in a process of its own.

With atheris, whose libFuzzer keeps what reaches new code; without it blindly. Both say how far they are in the same words, and
write the input of a finding into a file. An exit status that is not 0 is a finding.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from tests.fuzz.target import Target

#: Whose coverage counts.
PACKAGES: Final = ["iris_overlay", "iris_py", "iris_security", "spark_connector"]
#: Of one execution, in all: what takes longer is one, or stands still.
TIMEOUT_S: Final = 60
#: Of the whole process. Too small: what it remembers of a large corpus is a finding; too large: the machine swaps before.
MEMORY_MIB: Final = 2048
FOUND: Final = 77  # as libFuzzer exits
_TOLD_EVERY: Final = 1000


def main() -> int:
    """Run what the command line says."""
    module, name, runs, corpus, crashes, seed = sys.argv[1:]
    try:
        import atheris
    except ImportError:
        return run_blindly(find(module, name), int(runs), Path(crashes), int(seed))
    with atheris.instrument_imports(include=PACKAGES):
        target = find(module, name)
    options = {
        "runs": runs,
        "seed": seed,
        "max_len": target.bytes_max,
        "timeout": TIMEOUT_S,
        "rss_limit_mb": MEMORY_MIB,
        "artifact_prefix": f"{crashes}/{name}-",
        "print_final_stats": 1,
    }
    atheris.Setup([sys.argv[0], *(f"-{option}={value}" for option, value in options.items()), corpus], target.run)
    atheris.Fuzz()
    return 0


def find(module: str, name: str) -> Target:
    """Return a target of a module."""
    (target,) = (target for target in importlib.import_module(module).TARGETS if target.name == name)
    return target  # type: ignore[no-any-return]


def run_blindly(target: Target, runs: int, crashes: Path, seed: int) -> int:
    """Run a target with inputs that know nothing of it."""
    from tests.fuzz.blind import inputs

    for number, data in enumerate(inputs(target, runs, seed), 1):
        try:
            target.run(data)
        except Exception:
            traceback.print_exc()
            path = crashes / f"{target.name}-crash-{hashlib.sha1(data).hexdigest()}"
            path.write_bytes(data)
            print(f"#{number}\tFOUND", file=sys.stderr)
            return FOUND
        if number % _TOLD_EVERY == 0:
            print(f"#{number}\tpulse", file=sys.stderr)
    print(f"#{runs}\tDONE", file=sys.stderr)
    return 0


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        sys.exit(main())
