"""Run `iris` by ``python -m iris_py.cli``."""

from __future__ import annotations

from iris_py.cli import main

main()
