"""The place of the tests of nats-py."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parent.parent.parent
WORK: Final = ROOT / "build" / "nats"
#: The directory ``nats`` of a checkout of nats-py.
SUITE: Final = Path(os.environ.get("NATS_PY") or WORK / "nats.py") / "nats"
