"""The `iris` command.

Nothing heavy is imported before it is known which command runs: help and a request from a shell are to be quick.
"""

from __future__ import annotations

import sys

__all__ = ["main"]


def main() -> None:
    """Run the command line and exit with its exit code (`iris_py.cli.outcome.ExitCode`)."""
    try:
        from iris_py.cli.app import run

        code = run(sys.argv[1:])
    except KeyboardInterrupt:  # while modules were being imported
        code = 130
    sys.exit(code)
