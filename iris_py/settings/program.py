"""The default label of a node: the host and the program."""

from __future__ import annotations

import os
import re
import sys
from typing import Final

from iris_py.wire.facts import NAME_LENGTH_MAX

__all__ = ["default_name"]

#: Characters of the host, so that the program fits after it.
HOST_LENGTH_MAX: Final = 32

_UNUSUAL: Final = re.compile(r"[^!-~]+")


def default_name() -> str:
    """Return the host, up to its first dot, a slash, and the program: ``web-1/orders.py``.

    The program is the started file, or with ``-m`` the module, without directory and arguments: arguments can hold secrets.
    Characters other than printable ASCII become underscores.
    """
    host = _plain(os.uname().nodename.partition(".")[0])[:HOST_LENGTH_MAX] or "host"
    return f"{host}/{_plain(_program())}"[:NAME_LENGTH_MAX]


def _program() -> str:
    specification = getattr(sys.modules.get("__main__"), "__spec__", None)
    if specification is not None:  # started by -m
        return str(specification.name).removesuffix(".__main__") or "python"
    name = os.path.basename(sys.argv[0]) if sys.argv else ""
    return "python" if name in ("", "-c", "-") else name


def _plain(text: str) -> str:
    return _UNUSUAL.sub("_", text)
