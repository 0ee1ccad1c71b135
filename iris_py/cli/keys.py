"""`iris keys`: make secrets, and find the per-user one. No node is started."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

from iris_py.config import load_config
from iris_py.files.secrets import write_secret_file
from iris_security.keyring import Secret

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["new", "path"]


async def new(output: Path | None, *, as_json: bool) -> int:
    """Print a new secret, or write it to a private file and print nothing but where."""
    secret = Secret.generate(os.urandom)
    if output is not None:
        write_secret_file(output, secret)
        print(json.dumps({"path": str(output)}) if as_json else output)
    else:
        print(json.dumps({"secret": secret.text}) if as_json else secret.text)
    return 0


async def path(*, as_json: bool) -> int:
    """Print where the per-user secret is."""
    location = load_config().config_directory / "secret"
    print(json.dumps({"path": str(location), "exists": location.exists()}) if as_json else location)
    return 0
