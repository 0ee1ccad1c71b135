"""The `iris` command.

Heavy modules are imported once the command is known, so that help and requests from a shell are quick.
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
    gc.disable()  # until the command works (`iris_py.cli.outcome`): imports make much memory and no garbage
    try:
        from iris_py.cli.standard_error import keep_writing_json, wants_json

        if wants_json(sys.argv[1:]):
            keep_writing_json()
        from iris_py.cli.app import run

        code = run(sys.argv[1:])
    except KeyboardInterrupt:  # during the import of modules
        code = 130
    gc.freeze()  # otherwise the garbage collector visits all modules at exit: a tenth of the time of a short command
    sys.exit(code)


def _replace_closed_streams() -> None:
    """Replace closed output streams by the null device. A closed standard input stays closed: reading it is an error."""
    if sys.stdout is None:
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115 - until the process ends
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115
