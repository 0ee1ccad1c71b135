"""`--log-json`: every line of standard error is an object of JSON, whatever writes it."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from tests.integration.test_cli import WAIT_S, Shell, read_line
from tests.standstills import without_standstills

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

#: A program that writes on standard error in all ways that Python has. The cause of each line is in the line.
NOISY = """
import asyncio
import logging
import subprocess
import sys
import threading
import warnings

warnings.warn("warned at import", DeprecationWarning, stacklevel=1)
warnings.warn("warned of what shows", UserWarning, stacklevel=1)
logging.getLogger("shop").warning("warned by a logger: %s", "two\\nlines")
print("printed\\nas two lines", file=sys.stderr)
sys.stderr.buffer.write(b"written as bytes\\n")
print("{not json", file=sys.stderr)
print('{"own": "object"}', file=sys.stderr)
print("", file=sys.stderr)

class Late:
    def __del__(self):
        raise ValueError("raised in a finalizer")

def fail(*_):
    raise ValueError("raised\\nin a thread")

thread = threading.Thread(target=fail, name="worker-thread")
thread.start()
thread.join()
del thread

async def noise(request):
    if request.payload == b"leave":
        loop = asyncio.get_running_loop()
        loop.call_soon(fail)
        Late()
        try:
            fail()
        except ValueError:
            logging.exception("logged with a traceback")
        logging.warning("%d", "no number")
        print("a line without an end", end="", file=sys.stderr)
    return b"done"
"""


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    shell = Shell(tmp_path / "home")
    yield shell
    shell.end()


def objects(text: str) -> list[dict[str, Any]]:
    """Return the objects of standard error; every line has to be one, and what Iris makes has the fields of a line."""
    found = [json.loads(line) for line in text.splitlines()]
    for each in found:
        if "own" not in each:
            assert each["kind"] == "log"
            assert {"time", "level", "logger", "event", "message"} <= each.keys()
    return found


def said(found: list[dict[str, Any]], event: str) -> list[str]:
    return [each["message"] for each in found if each.get("event") == event]


def start(shell: Shell, *arguments: str) -> subprocess.Popen[bytes]:
    return shell.start(*arguments, "--log-json", is_new=True)


def read_until(process: subprocess.Popen[bytes], words: str) -> str:
    text = ""
    while words not in text:
        line = read_line(process.stderr)
        assert line, text
        text += line
    return text


def end(process: subprocess.Popen[bytes], number: signal.Signals = signal.SIGTERM) -> str:
    process.send_signal(number)
    return process.communicate(timeout=WAIT_S)[1].decode()


def test_whatever_a_program_writes_is_an_object(shell: Shell, tmp_path: Path) -> None:
    (tmp_path / "noisy.py").write_text(NOISY)
    service = start(shell, "serve", "noisy:noise", "--directory", str(tmp_path))
    text = read_until(service, "Ctrl-C ends it")
    assert shell.run("request", "noise", "leave") == (0, b"done", "")
    text += end(service)
    found = objects(text)
    assert said(found, "warning") == ["warned of what shows"]
    assert {"category": "UserWarning", "level": "warning"}.items() <= next(
        each for each in found if each.get("event") == "warning"
    ).items()
    assert said(found, "output") == ["printed", "as two lines", "written as bytes", "{not json", "a line without an end"]
    assert {"own": "object"} in found
    by_logging = {each["message"]: each for each in found if each.get("logger") in ("shop", "root", "asyncio")}
    assert by_logging["warned by a logger: two\nlines"]["level"] == "warning"
    assert "raised\nin a thread" in by_logging["logged with a traceback"]["traceback"]
    assert "raised\nin a thread" in next(each["traceback"] for text, each in by_logging.items() if "callback" in text)
    assert any("no number" in text for text in by_logging), "a record that cannot be formatted is there, too"
    (uncaught,) = [each for each in found if each.get("event") == "uncaught"]
    assert (uncaught["message"], uncaught["thread"]) == ("ValueError: raised\nin a thread", "worker-thread")
    assert "Traceback (most recent call last)" in uncaught["traceback"]
    assert said(found, "unraisable") == ["ValueError: raised in a finalizer"]
    assert "Ctrl-C ends it" in said(found, "running")[0]


def test_logging_that_a_program_has_set_up_keeps_its_levels(shell: Shell, tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(
        "import logging\n"
        "logging.basicConfig(level=logging.INFO, format='%(levelname)s %(message)s')\n"
        "own = logging.StreamHandler()\n"
        "class Own(logging.Formatter):\n    def format(self, record):\n        return 'own: ' + record.getMessage()\n"
        "own.setFormatter(Own())\n"
        "logging.getLogger('own').addHandler(own)\n"
        "logging.getLogger('own').propagate = False\n"
        "def quote(request):\n"
        "    logging.info('an order of %s', 'Ann')\n"
        "    logging.debug('not shown')\n"
        "    logging.getLogger('own').warning('formatted')\n"
        "    return b'7'\n"
    )
    service = start(shell, "serve", "shop:quote", "--directory", str(tmp_path))
    text = read_until(service, "Ctrl-C ends it")
    assert shell.run("request", "quote", "") == (0, b"7", "")
    found = objects(text + end(service))
    (order,) = [each for each in found if each["logger"] == "root"]
    assert (order["level"], order["message"]) == ("info", "an order of Ann")
    assert said(found, "output") == ["own: formatted"]


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (["request"], 2, "Missing argument"),
        (["request", "db", "x", "--tiemout", "3"], 2, "No such option"),
        (["nonsense"], 2, "No such command"),
        (["request", "db", "x", "--timeout", "soon"], 2, "timeout"),
        (["config", "show", "--context", "nowhere"], 2, "There is no context yet"),
        (["serve", "nowhere:nothing"], 2, "there is no module"),
        (["node", "--listen", "here"], 2, "not host:port"),
    ],
)
def test_mistakes_on_a_command_line_are_objects(shell: Shell, words: list[str], code: int, says: str) -> None:
    process = start(shell, *words)
    error = process.communicate(timeout=WAIT_S)[1].decode()
    assert process.returncode == code, error
    (found,) = objects(error)
    assert says in found["message"]
    assert (found["level"], found["event"]) == ("error", "complaint")


def test_an_option_of_another_program_is_not_ours(shell: Shell) -> None:
    process = shell.start("request", "nobody", "--", "--log-json", is_new=True)
    assert without_standstills(process.communicate(timeout=WAIT_S)[1].decode()).startswith("iris: nobody serves")


def test_an_error_that_nothing_catches_is_one_object() -> None:
    program = "import sys\nfrom iris_py.cli import main\nimport iris_py.cli.app as app\n"
    program += "def fail(_arguments):\n    raise BaseException('out of every net')\napp.run = fail\n"
    program += "sys.argv = ['iris', 'node', '--log-json']\nmain()\n"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=WAIT_S)
    (found,) = objects(done.stderr)
    assert done.returncode == 1
    assert (found["event"], found["level"], found["error"]) == ("uncaught", "critical", "BaseException")
    assert found["message"] == "BaseException: out of every net"
    assert found["traceback"].startswith("Traceback (most recent call last)")


WORKER = """
import os
import subprocess
import sys
import {module}

os.write(2, b"past Python\\n")
subprocess.run([sys.executable, "-c", "import sys; sys.exit('of a child')"])

def quote(request):
    if request.payload == b"die":
        os.write(2, "last words \\u00e4".encode()[:-1])
        os.abort()
    return b"7"
"""


def test_workers_and_reloads_write_objects(shell: Shell, tmp_path: Path) -> None:
    module = tmp_path / "shop.py"
    module.write_text(WORKER.format(module="json"))
    service = start(shell, "serve", "shop:quote", "--workers", "1", "--reload", "--directory", str(tmp_path))
    text = read_until(service, "Ctrl-C ends it")
    assert said(objects(text), "output") == ["past Python", "of a child"]
    pids = {each["pid"] for each in objects(text) if each["event"] == "output"}
    assert len(pids) == 1, "what is not the worker's own object says which worker"

    module.write_text("def quote(request:\n")
    text = read_until(service, "keeps running its old code")
    (failed,) = [each for each in objects(text) if each["event"] == "import_failed"]
    assert (failed["error"], failed["level"]) == ("SyntaxError", "error")
    assert "shop.py" in failed["traceback"]

    module.write_text(WORKER.format(module="nowhere_to_be_found"))
    text = read_until(service, "keeps running its old code")
    assert any("nowhere_to_be_found" in message for message in said(objects(text), "complaint"))

    shell.run("request", "quote", "die", "--timeout", "60")
    text = read_until(service, "was ended by SIGABRT")
    found = objects(text)
    assert said(found, "output")[0].startswith("last words ")
    end(service)


def test_a_supervisor_that_is_killed_leaves_no_worker_behind(shell: Shell, tmp_path: Path) -> None:
    """Its end closes the pipe of their standard error, too."""
    (tmp_path / "shop.py").write_text("import os\ndef quote(request):\n    return str(os.getpid()).encode()\n")
    service = start(shell, "serve", "shop:quote", "--workers", "1", "--directory", str(tmp_path))
    read_until(service, "Ctrl-C ends it")
    pid = int(shell.run("request", "quote", "")[1])
    descriptor = os.pidfd_open(pid)
    try:
        service.kill()
        assert select.select([descriptor], [], [], WAIT_S)[0]
    finally:
        os.close(descriptor)
