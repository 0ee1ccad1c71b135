"""The `iris` command.

Nothing heavy is imported before it is known which command runs: help and a request from a shell are to be quick.
"""

from __future__ import annotations

import gc
import os
import sys

__all__ = ["main"]


def main() -> None:
    """Run the command line and exit with its exit code (`iris_py.cli.outcome.ExitCode`)."""
    if os.getpid() == 1:
        from iris_py.cli.first_process import run_in_child

        run_in_child()
    _replace_closed_streams()
    try:
        from iris_py.cli.lines import keep_writing_json, wants_json

        if wants_json(sys.argv[1:]):
            keep_writing_json()
        from iris_py.cli.app import run

        code = run(sys.argv[1:])
    except KeyboardInterrupt:  # while modules were being imported
        code = 130
    gc.freeze()  # else Python looks through all modules for garbage at its end: a tenth of the time of a short command
    sys.exit(code)


def _replace_closed_streams() -> None:
    """Let the command write to nowhere where its output is closed. A closed input stays so: who reads it is told."""
    if sys.stdout is None:
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115 - for as long as the process lives
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115
