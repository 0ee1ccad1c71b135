"""Runs a module of the benchmarks whose processes have Iris already: ``quick_benchmarks.py MODULE ARGUMENTS``.

What their start costs in time and memory is then no figure of Iris. It is for tests that ask whether everything is measured.
"""

from __future__ import annotations

import runpy
import subprocess
import sys
from types import SimpleNamespace

from benchmarks import harness
from tests import warm

if __name__ == "__main__":
    vars(harness)["subprocess"] = SimpleNamespace(Popen=warm.Process, PIPE=subprocess.PIPE)
    del sys.argv[0]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
