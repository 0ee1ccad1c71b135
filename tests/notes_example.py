"""The programs of examples/browser_notifications, as a user starts them."""

from __future__ import annotations

import json
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Self
from urllib.error import URLError

from tests.ports import free_port
from tests.standstills import without_standstills

if TYPE_CHECKING:
    from collections.abc import Mapping
    from http.client import HTTPResponse

FOLDER = Path(__file__).parents[1] / "examples" / "browser_notifications"
WAIT_S = 60.0
#: Seconds between two notes of the job.
PAUSE_S = "0.3"


class NotesExample:
    """The job and the application, and any of the subscribers; all end with the ``with`` block.

    Args:
        environment: The environment of the processes.

    Attributes:
        url: The address of the application.
    """

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = environment
        self._port = free_port()
        self.url = f"http://127.0.0.1:{self._port}"
        self._started: list[subprocess.Popen[str]] = []
        self._app: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        self.start("job.py", PAUSE_S)
        self.start_app()
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._started:
            process.kill()
        for process in self._started:
            process.communicate()

    def start(self, program: str, *arguments: str) -> subprocess.Popen[str]:
        """Start a program of the example."""
        process = subprocess.Popen(
            [sys.executable, str(FOLDER / program), *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=self._environment,
            text=True,
        )
        self._started.append(process)
        return process

    def start_app(self) -> None:
        """Start the application, and wait until it answers."""
        self._app = self.start("app.py", str(self._port))
        deadline = time.monotonic() + WAIT_S
        while True:
            try:
                self.ask("/").close()
                return
            except URLError:
                assert time.monotonic() < deadline
                assert self._app.poll() is None, self._app.communicate()[1]
                time.sleep(0.05)

    def stop_app(self) -> None:
        """Stop the application by a signal; it says nothing."""
        assert self._app is not None
        self._app.terminate()
        out, errors = self._app.communicate(timeout=WAIT_S)
        assert (out, without_standstills(errors)) == ("", "")

    def ask(self, path: str, content: object = None, **headers: str) -> HTTPResponse:
        """Send a request; with content as JSON."""
        body = None if content is None else json.dumps(content).encode()
        request = urllib.request.Request(self.url + path, body, {"Content-Type": "application/json", **headers})
        answer: HTTPResponse = urllib.request.urlopen(request, timeout=WAIT_S)
        return answer
