"""A gateway process of `iris demo --federation`, started with ``DIRECTORY CLOUD NETWORK SEED...``.

It runs `iris gateway CLOUD.toml` with the secret of the cloud CLOUD; both files are in DIRECTORY. When its standard input ends,
the process ends and removes DIRECTORY, so a killed driver leaves neither a gateway nor secrets behind.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import threading
from pathlib import Path
from typing import Final

from iris_py.cli import gateway
from iris_py.cli.outcome import execute
from iris_py.cli.settings import Settings

END_TIMEOUT_S: Final = 5  # to leave cleanly; an alarm ends a hung process


def _end_with_input(directory: str) -> None:
    while os.read(sys.stdin.fileno(), 4096):
        pass
    shutil.rmtree(directory, ignore_errors=True)
    signal.alarm(END_TIMEOUT_S)
    os.kill(os.getpid(), signal.SIGTERM)


def _main(directory: str, cloud: str, network: str, *seeds: str) -> int:
    threading.Thread(target=_end_with_input, args=(directory,), daemon=True).start()
    secret = Path(directory, f"{cloud}.secret")
    settings = Settings({"network": network, "secret_file": secret, "seeds": list(seeds), "discovery": False})
    return execute(lambda: gateway.serve(settings, Path(directory, f"{cloud}.toml"), as_json=True))


if __name__ == "__main__":
    sys.exit(_main(*sys.argv[1:]))
