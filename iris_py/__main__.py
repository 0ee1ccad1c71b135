"""``python -m iris_py`` is `iris`."""

from __future__ import annotations

from iris_py.cli import main

main()
