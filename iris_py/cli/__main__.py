"""``python -m iris_py.cli`` is `iris`."""

from __future__ import annotations

from iris_py.cli import main

main()
