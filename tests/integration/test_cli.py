"""`iris` as people and scripts run it: real processes, each test with directories, and so a network, of its own."""

from __future__ import annotations

import json
import os
import re
import select
import signal
import subprocess
import sys
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final

import pytest

from iris_py.cli.outcome import ExitCode
from tests import warm
from tests.leaks import find_secrets
from tests.standstills import STANDSTILL, without_standstills

if TYPE_CHECKING:
    from collections.abc import Iterator

WAIT_S = 60.0  # for anything to happen on a busy machine; nothing here takes more than 2 s


class Shell:
    """Runs `iris` for one user, and ends what still runs when the test is over."""

    def __init__(self, home: Path) -> None:
        self.environment = {name: value for name, value in os.environ.items() if not name.startswith(("IRIS_", "XDG_"))}
        self.environment |= {"XDG_CONFIG_HOME": str(home / "config"), "XDG_STATE_HOME": str(home / "state"), "HOME": str(home)}
        self._started: list[subprocess.Popen[bytes]] = []

    def start(self, *arguments: str, stdin: bytes | int | None = None, is_new: bool = False) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "iris_py.cli", *arguments]
        pipe = subprocess.PIPE
        given = stdin if isinstance(stdin, int) else pipe
        process = warm.Process(command, stdin=given, stdout=pipe, stderr=pipe, env=self.environment, is_new=is_new)
        self._started.append(process)
        if isinstance(stdin, bytes):
            assert process.stdin is not None
            process.stdin.write(stdin)
            process.stdin.close()
            process.stdin = None
        return process

    def run(self, *arguments: str, stdin: bytes | None = None, is_new: bool = False) -> tuple[int, bytes, str]:
        """Run a command to its end; return its exit code and what it printed on both streams."""
        return finish(self.start(*arguments, stdin=stdin, is_new=is_new))

    def serve(self, *arguments: str, stdin: int | None = None, is_new: bool = False) -> tuple[subprocess.Popen[bytes], str]:
        """Start a command that stays; return when it serves, with the line that says so."""
        process = self.start(*arguments, stdin=stdin, is_new=is_new)
        line = read_line(process.stderr)
        assert "Ctrl-C ends it" in line, line
        return process, line

    def end(self) -> None:
        for process in self._started:
            if process.poll() is None:
                process.kill()
            process.communicate()


def finish(process: subprocess.Popen[bytes]) -> tuple[int, bytes, str]:
    """Wait for the end of a process; return its code and its output. A busy machine may stop an event loop for a second."""
    out, error = process.communicate(timeout=WAIT_S)
    assert b"Traceback" not in error, error.decode()
    return process.returncode, out, without_standstills(error.decode())


def read_line(stream: IO[bytes] | None) -> str:
    """Return the next line that does not speak of a busy machine; empty at the end."""
    assert stream is not None
    line = bytearray()
    while not line.endswith(b"\n"):
        ready, _, _ = select.select([stream], [], [], WAIT_S)
        assert ready, f"nothing came after {bytes(line)!r}"
        letter = os.read(stream.fileno(), 1)  # past the buffer, which would hide what select waits for
        if not letter:
            break
        line += letter
    return read_line(stream) if STANDSTILL.encode() in line else line.decode()


def stop(process: subprocess.Popen[bytes], number: signal.Signals = signal.SIGTERM) -> tuple[int, bytes, str]:
    process.send_signal(number)
    return finish(process)


def wait_until_gone(process_id: int) -> None:
    try:
        descriptor = os.pidfd_open(process_id)
    except ProcessLookupError:
        return
    try:
        ready, _, _ = select.select([descriptor], [], [], WAIT_S)
        assert ready, f"process {process_id} is still there"
    finally:
        os.close(descriptor)


def address_of(line: str) -> str:
    return line.split(" at ")[1].split(";")[0]


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    shell = Shell(tmp_path / "home")
    yield shell
    shell.end()


@pytest.fixture
def other_user(tmp_path: Path) -> Iterator[Shell]:
    shell = Shell(tmp_path / "other")
    yield shell
    shell.end()


def test_two_terminals(shell: Shell) -> None:
    service, line = shell.serve("join", "upper", "--exec", "tr a-z A-Z", is_new=True)
    assert "serves 'upper'" in line
    assert shell.run("request", "upper", "hello", is_new=True) == (0, b"HELLO", "")
    assert stop(service) == (0, b"", "")


def test_bytes_pass_unchanged(shell: Shell) -> None:
    shell.serve("join", "echo", "--exec", "cat")
    content = bytes(range(256)) * 5000
    assert shell.run("request", "echo", "-", stdin=content) == (0, content, "")
    assert shell.run("request", "echo", "") == (0, b"", "")
    code, out, _ = shell.run("request", "echo", "-", "--json", stdin=b"\xff")
    assert code == 0
    assert json.loads(out)["payload_base64"] == "/w=="


def test_nobody_serves_that_name(shell: Shell) -> None:
    """The answer does not wait for the timeout, whether other nodes are there or not."""
    for _ in range(2):
        process = shell.start("request", "nobody", "hello", "--timeout", "600")
        code, out, error = finish(process)
        assert (code, out) == (3, b"")
        assert error.startswith("iris: nobody serves 'nobody'")
        assert error.count("\n") == 1
        shell.serve("node")
    code, _, error = shell.run("broadcast", "nobody", "hello")
    assert (code, error.count("\n")) == (3, 1)
    code, out, error = shell.run("members", "nobody")
    assert (code, out, error.count("\n")) == (3, b"", 1)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["request", "a", "b", "--listen", "nonsense"], "host:port"),
        (["request", "a", "b", "--seed", "nonsense"], "host:port"),
        (["request", "a", "b", "--secret-file", "/nowhere"], "--secret-file: /nowhere"),
        (["request", "a", "b", "--config", "/nowhere"], "does not exist"),
        (["request", "", "b"], "name"),
        (["node", "--listen", "0.0.0.0:0"], "iris keys new"),
        (["join", "a", "--exec", "no-such-command-anywhere"], "no command"),
        (["demo", "--input", "/nowhere"], "not a directory"),
    ],
)
def test_wrong_configuration(shell: Shell, arguments: list[str], words: str) -> None:
    code, out, error = shell.run(*arguments)
    assert (code, out, error.count("\n")) == (2, b"", 1)
    assert words in error


def test_a_second_user_sees_nobody(shell: Shell, other_user: Shell) -> None:
    shell.serve("join", "upper", "--exec", "tr a-z A-Z")
    assert other_user.run("members")[:2] == (3, b"")
    assert other_user.run("request", "upper", "hello")[:2] == (3, b"")
    assert shell.run("request", "upper", "hello")[:2] == (0, b"HELLO")


def test_another_secret_cannot_connect_and_disturbs_nobody(shell: Shell, other_user: Shell, tmp_path: Path) -> None:
    service, line = shell.serve("join", "upper", "--exec", "tr a-z A-Z")
    secret = tmp_path / "secret"
    assert other_user.run("keys", "new", "--output", str(secret))[0] == 0
    for arguments in (["request", "upper", "hello"], ["members"], ["node"]):
        code, out, error = other_user.run(*arguments, "--secret-file", str(secret), "--seed", address_of(line))
        assert (code, out) == (6, b"")
        assert f": {address_of(line)} is not a node of this network" in error.splitlines()[-1]
        assert error.count("\n") == 1 or arguments == ["node"]  # which also warns, as it warns about one seed of many
    assert shell.run("request", "upper", "hello")[:2] == (0, b"HELLO")
    code, _, error = stop(service)
    assert code == 0
    assert "error" not in error.lower()


def test_secret_and_seed_make_a_network_without_discovery(shell: Shell, other_user: Shell) -> None:
    secret = shell.run("keys", "new")[1].decode().strip()
    for each in (shell, other_user):
        each.environment["IRIS_SECRET"] = secret
    _, line = shell.serve("join", "upper", "--exec", "tr a-z A-Z", "--no-discovery", "--zone", "eu/a", "--name", "web-1/upper")
    seed = ["--seed", address_of(line), "--no-discovery"]
    assert other_user.run("request", "upper", "hello", *seed)[:2] == (0, b"HELLO")
    code, out, _ = other_user.run("members", *seed)
    assert code == 0
    assert out.decode().split()[1:] == ["web-1/upper", address_of(line), "eu/a"]


@pytest.mark.parametrize("arguments", [["node"], ["join", "upper", "--exec", "cat"]])
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 0)])
def test_signals_end_what_stays(shell: Shell, arguments: list[str], number: signal.Signals, code: int) -> None:
    process, _ = shell.serve(*arguments)
    assert stop(process, number) == (code, b"", "")


def test_a_terminal_that_goes_ends_what_stays(shell: Shell) -> None:
    terminal, other_end = os.openpty()
    process, _ = shell.serve("node", stdin=other_end)
    assert stop(process, signal.SIGHUP) == (0, b"", "")
    for descriptor in (terminal, other_end):
        os.close(descriptor)


def test_a_secret_file_is_rotated_while_requests_are_served(shell: Shell) -> None:
    """Each step is brought to the service by SIGHUP; a caller that has only read the file since is always answered."""
    home = Path(shell.environment["HOME"])
    home.mkdir(exist_ok=True)
    path = str(home / "network.secret")
    shell.environment["IRIS_SECRET_FILE"] = path
    assert shell.run("keys", "new", "-o", path)[0] == 0
    first = json.loads(shell.run("keys", "list", "--json")[1])["generations"]
    service, _ = shell.serve("join", "upper", "--exec", "tr a-z A-Z")
    assert service.stderr is not None
    for step, count in (("add", 2), ("rotate", 2), ("retire", 1)):
        assert shell.run("request", "upper", "before")[:2] == (0, b"BEFORE")
        code, out, error = shell.run("keys", step, path, "--json")
        assert (code, error) == (0, "")
        assert len(json.loads(out)["generations"]) == count
        service.send_signal(signal.SIGHUP)
        assert read_line(service.stderr).endswith("Z INFO secrets_read: read the secrets again\n")
        assert shell.run("request", "upper", step)[:2] == (0, step.upper().encode())
    last = json.loads(shell.run("keys", "list", "--json")[1])["generations"]
    assert len(last) == 1
    assert last != first
    Path(path).write_text("no secret\n")
    service.send_signal(signal.SIGHUP)
    assert "Z ERROR secrets_kept: the secrets were not changed: " in read_line(service.stderr)
    assert stop(service, signal.SIGTERM) == (0, b"", "")


def test_payloads_are_sealed_with_a_secret_that_the_network_lacks(shell: Shell) -> None:
    home = Path(shell.environment["HOME"])
    home.mkdir(exist_ok=True)
    path, other = str(home / "vault.secret"), str(home / "other.secret")
    for each in (path, other):
        assert shell.run("keys", "new", "-o", each)[0] == 0
    service, _ = shell.serve("join", "upper", "--exec", "tr a-z A-Z", "--seal-file", path)
    assert shell.run("request", "upper", "hello", "--seal-file", path)[:2] == (0, b"HELLO")
    assert shell.run("survey", "upper", "hello", "--seal-file", path)[1].endswith(b"  HELLO\n")
    for options in (["--seal-file", other], ["--seal-file", path, "--seal-name", "lower"], []):
        code, out, error = shell.run("request", "upper", "hello", *options)
        assert (code, out) == (6, b"")
        assert "--seal-file" in error
    code, _, error = shell.run("request", "upper", "hello", "--seal-name", "upper")
    assert (code, error.count("\n")) == (2, 1)
    assert "--seal-file" in error
    assert shell.run("request", "upper", "hello", "--seal-file", str(home / "none"))[0] == 2
    assert shell.run("tunnel", "upper", stdin=b"hello")[0] == 3
    assert b"hello" not in stop(service)[1]


#: Prints all that a command is given, besides its input: arguments, variables, open files and what can be read from them.
SEES: Final = """
import os, pathlib, stat
for process in ("self", os.getppid()):
    for name in ("cmdline", "environ"):
        print(name, pathlib.Path(f"/proc/{process}/{name}").read_bytes())
for number in os.listdir("/proc/self/fd"):
    try:
        print("file", number, os.readlink(f"/proc/self/fd/{number}"))
        if stat.S_ISREG(os.fstat(int(number)).st_mode):
            print("content", os.pread(int(number), 10000, 0))
    except OSError:
        pass
"""


@pytest.mark.parametrize("source", ["option", "variable", "configuration file", "file that it names", "per-user secret"])
def test_a_command_is_told_no_secret_that_stands_in_a_file(shell: Shell, tmp_path: Path, source: str) -> None:
    """Neither a command that serves nor its parent has the secret where another program could look for it."""
    home = Path(shell.environment["HOME"])
    path, toml, program = home / "network.secret", home / "iris.toml", tmp_path / "sees.py"
    home.mkdir(exist_ok=True)
    program.write_text(SEES)
    assert shell.run("keys", "new", "-o", str(path))[0] == 0
    secret = path.read_text().strip()
    options = []
    if source == "option":
        options = ["--secret-file", str(path)]
    elif source == "variable":
        shell.environment["IRIS_SECRET_FILE"] = str(path)
    elif source == "per-user secret":
        (home / "config" / "iris").mkdir(parents=True)
        path.rename(home / "config" / "iris" / "secret")
        (home / "config" / "iris").chmod(0o700)
    else:
        toml.write_text(f'secret = "{secret}"\n' if source == "configuration file" else f'secret_file = "{path.name}"\n')
        toml.chmod(0o600)
        options = ["--config", str(toml)]
    shell.serve("join", "sees", "--exec", f"{sys.executable} {program}", *options, is_new=True)
    code, out, error = shell.run("request", "sees", "x", "--timeout", "50", *options)
    assert (code, error) == (0, "")
    assert out.count(b"cmdline") == out.count(b"environ") == 2
    assert find_secrets([out.decode()]) == []
    assert secret not in out.decode()


@pytest.mark.parametrize(("step", "says"), [("rotate", "Begin with: iris keys add"), ("retire", "there is nothing to retire")])
def test_a_rotation_goes_step_by_step(shell: Shell, step: str, says: str) -> None:
    home = Path(shell.environment["HOME"])
    home.mkdir(exist_ok=True)
    path = str(home / "network.secret")
    assert shell.run("keys", "new", "-o", path)[0] == 0
    before = Path(path).read_text()
    code, out, error = shell.run("keys", step, path)
    assert (code, out) == (2, b"")
    assert says in error
    assert Path(path).read_text() == before


def test_a_generation_that_does_not_seal_yet_is_only_discarded_on_demand(shell: Shell) -> None:
    home = Path(shell.environment["HOME"])
    home.mkdir(exist_ok=True)
    path = home / "network.secret"

    def generations() -> list[str]:
        return list(json.loads(shell.run("keys", "list", str(path), "--json")[1])["generations"])

    assert shell.run("keys", "new", "-o", str(path))[0] == 0
    path.write_text("# of the test network\n" + path.read_text())
    (old,) = generations()
    assert shell.run("keys", "add", str(path))[0] == 0
    both, content = generations(), path.read_text()
    assert both[0] == old
    code, out, error = shell.run("keys", "retire", str(path))
    assert (code, out) == (2, b"")
    assert "To retire now would discard it" in error
    assert f"iris keys rotate {path}" in error
    assert f"iris keys retire --abandon {path}" in error
    assert path.read_text() == content, "nothing was changed"

    # The other way round the new one stays, and then there is nothing to abandon.
    assert shell.run("keys", "rotate", str(path))[0] == 0
    assert generations() == both[::-1]
    code, _, error = shell.run("keys", "retire", "--abandon", str(path))
    assert code == 2
    assert "there is nothing to abandon" in error
    assert shell.run("keys", "retire", str(path))[0] == 0
    assert generations() == [both[1]]

    # A second rotation is given up, and the file is as it was before.
    before = path.read_text()
    assert before.startswith("# of the test network\niris1.")
    assert shell.run("keys", "add", str(path))[0] == 0
    assert shell.run("keys", "retire", "--abandon", str(path))[0] == 0
    assert path.read_text() == before


def test_lines_that_somebody_has_moved_count_as_they_stand(shell: Shell) -> None:
    """A generation that was made the first line by hand seals, whatever a comment says."""
    home = Path(shell.environment["HOME"])
    home.mkdir(exist_ok=True)
    path = home / "network.secret"
    assert shell.run("keys", "new", "-o", str(path))[0] == 0
    assert shell.run("keys", "add", str(path))[0] == 0
    comment, old, new = path.read_text().splitlines()
    assert comment.startswith("# added by `iris keys add`")
    path.write_text(f"{comment}\n{new}\n{old}\n")
    assert shell.run("keys", "retire", str(path))[0] == 0
    assert path.read_text() == f"{new}\n"


def test_a_file_that_would_be_too_large_is_left_as_it_is(shell: Shell) -> None:
    home = Path(shell.environment["HOME"])
    home.mkdir(exist_ok=True)
    path = home / "network.secret"
    assert shell.run("keys", "new", "-o", str(path))[0] == 0
    path.write_text(f"# {'x' * 900}\n{path.read_text()}")
    before = path.read_text()
    code, _, error = shell.run("keys", "add", str(path))
    assert code == 2
    assert "Shorten its comments" in error
    assert path.read_text() == before


def test_seeds_where_nobody_answers_are_named(shell: Shell) -> None:
    code, out, error = shell.run("members", "--seed", "127.0.0.1:1")
    assert (code, out) == (3, b"")
    assert "no node of this network answers at the seed 127.0.0.1:1: it refuses connections" in error
    code, out, error = shell.run("request", "nobody", "x", "--seed", "127.0.0.1:1")
    assert (code, out) == (3, b"")
    assert "No node of this network answers at the seeds: 127.0.0.1:1 refuses connections" in error


def test_leaving_finishes_what_runs(shell: Shell) -> None:
    """The command reports that it began, and goes on only after the service was told to end."""
    service, _ = shell.serve("join", "slow", "--shell", "--exec", "echo began >> $HOME/log; cat $HOME/gate; echo done")
    os.mkfifo(Path(shell.environment["HOME"], "log"))
    os.mkfifo(Path(shell.environment["HOME"], "gate"))
    caller = shell.start("request", "slow", "x", "--timeout", "50")
    with Path(shell.environment["HOME"], "log").open() as log:
        assert log.readline() == "began\n"
    service.send_signal(signal.SIGTERM)
    # A member that leaves is no member: that is how to see that it is on its way.
    while shell.run("members", "slow")[0] == 0:
        pass
    Path(shell.environment["HOME"], "gate").write_text("at last ")
    assert finish(caller) == (0, b"at last done\n", "")
    waits = "leaving 'slow' waits for 1 request that runs; all that still run in 29 s are cancelled\n"
    code, out, error = finish(service)
    assert (code, out) == (0, b"")
    assert not error or error.endswith(waits)  # which it says after a second


def serve_what_never_ends(shell: Shell) -> Path:
    """Serve a command that never ends; return the pipe into which it writes its process id."""
    fifo = Path(shell.environment["HOME"], "pid")
    shell.serve("join", "stuck", "--shell", "--exec", f"echo $$ > {fifo}; sleep 1000; true")
    os.mkfifo(fifo)
    return fifo


def test_timeout_ends_the_command(shell: Shell) -> None:
    """The time has to suffice for the command to begin, so a machine on which it did not is given more."""
    descriptor = os.open(serve_what_never_ends(shell), os.O_RDWR)  # so that neither side waits for the other
    try:
        for timeout in ("1", "5", "25"):
            code, out, error = shell.run("request", "stuck", "x", "--timeout", timeout)
            assert (code, out, error.count("\n")) == (4, b"", 1)
            assert "--timeout" in error
            if select.select([descriptor], [], [], 0.0)[0]:
                break
        else:
            pytest.fail("the command does not begin")
        for process_id in os.read(descriptor, 1000).split():
            wait_until_gone(int(process_id))
    finally:
        os.close(descriptor)


def test_interrupted_request_ends_the_command(shell: Shell) -> None:
    fifo = serve_what_never_ends(shell)
    caller = shell.start("request", "stuck", "x", "--timeout", "1000")
    process_id = int(fifo.read_text())
    assert stop(caller, signal.SIGINT) == (130, b"", "")
    wait_until_gone(process_id)


def test_a_monitor_shows_who_is_killed_and_ends_when_it_is_told_to(shell: Shell) -> None:
    shell.serve("join", "upper", "--exec", "tr a-z A-Z")
    killed, line = shell.serve("join", "upper", "--exec", "tr a-z A-Z", "--name", "web-1/upper", "--zone", "eu")
    watching = shell.start("monitor", "--interval", "0.1", "--json")
    begun = json.loads(read_line(watching.stdout))
    assert (begun["kind"], begun["watched"], begun["is_whole"]) == ("watching", 2, True)
    killed.kill()
    found: list[dict[str, Any]] = []
    while not any(each["kind"] == "death" for each in found):
        found.append(json.loads(read_line(watching.stdout)))
    death = found[-1]
    assert f"node {death['node'][:8]} (web-1/upper) " in line
    assert (death["node_name"], death["node_zone"], death["said_by"]) == ("web-1/upper", "eu", 1)
    assert death["node_address"] == address_of(line)
    code, out, _error = stop(watching, signal.SIGINT)
    lines = [*found, *map(json.loads, out.splitlines())]
    assert [each["event"] for each in lines if each["kind"] == "event" and each["node"] == death["node"]] == []
    assert (code, lines[-1]["kind"], lines[-1]["missed"]) == (130, "summary", 0)
    _code, out, _error = shell.run("monitor", "--raw", "--kind", "died,link_l", "--since", "1h", "--count", "2", "--json")
    raw = [json.loads(each) for each in out.splitlines()]
    assert sorted(each["event"] for each in raw if each["kind"] == "event") == ["died", "link_lost"]


def test_keys_zones_and_weights(shell: Shell) -> None:
    count = "echo x >> $HOME/runs; wc -l < $HOME/runs"
    shell.serve("join", "count", "--shell", "--exec", count, "--zone", "eu/a", "--weight", "2.5")
    once = ("request", "count", "", "--idempotent", "--key", "job 7")
    assert [shell.run(*once)[1] for _ in range(2)] == [b"1\n", b"1\n"]  # two processes, and one execution
    assert shell.run("request", "count", "", "--prefer", "us", "--require", "eu")[1] == b"2\n"
    code, _out, error = shell.run("request", "count", "", "--require", "us")
    assert code == shell.run("request", "nobody", "")[0]
    assert "nobody in the zone 'us' serves 'count' (1 member in other zones)" in error
    assert "idempotent=True" in shell.run("request", "count", "", "--key", "x")[2]


def test_a_request_waits_for_a_member_as_long_as_it_is_told(shell: Shell) -> None:
    how = ("request", "late", "", "--timeout", "600", "--wait-for-members")
    for waits in ("0", "0.5"):  # and not for the timeout, which no test would outlive
        code, out, error = shell.run(*how, waits, "--idempotent")
        assert (code, out) == (3, b"")
        assert "nobody serves 'late'" in error
    assert "must be a finite number of seconds" in shell.run(*how, "inf")[2]


def test_failing_command(shell: Shell) -> None:
    shell.serve("join", "fail", "--shell", "--exec", r"printf 'line\n\033[31mred' >&2; exit 7")
    code, out, error = shell.run("request", "fail", "x")
    assert (code, out, error.count("\n")) == (1, b"", 1)
    assert "exit status 7" in error
    assert "line" in error
    assert "\x1b" not in error
    shell.serve("join", "killed", "--shell", "--exec", "kill -9 $$")
    assert "SIGKILL" in shell.run("request", "killed", "x")[2]


def test_command_that_prints_too_much(shell: Shell) -> None:
    shell.serve("join", "zeros", "--exec", "cat /dev/zero")
    code, out, error = shell.run("request", "zeros", "x", "--timeout", "50")
    assert (code, out) == (1, b"")
    assert "largest message" in error


def test_command_that_does_not_read(shell: Shell) -> None:
    shell.serve("join", "deaf", "--exec", "echo hello")
    assert shell.run("request", "deaf", "-", stdin=b"x" * 1_000_000) == (0, b"hello\n", "")


def survey_until_no_link_is_lost(shell: Shell, *arguments: str) -> tuple[int, bytes, str]:
    """Run a survey, and repeat it if members did not answer before its end.

    A machine may stop a process for longer than the members keep a silent link (2.25 s). Then the survey ends without them. A
    survey that waits to its end takes longer than `finish` allows.
    """
    while True:
        code, out, error = shell.run("survey", *arguments, "--timeout", str(WAIT_S))
        if code != ExitCode.TIMEOUT and "did not answer" not in error:
            return code, out, error


def test_survey_asks_every_member(shell: Shell) -> None:
    shell.serve("join", "names", "--exec", "cat; echo from one", "--shell")
    shell.serve("join", "names", "--exec", "cat; echo from two", "--shell")
    code, out, error = survey_until_no_link_is_lost(shell, "names", "hello ")
    assert (code, error) == (0, "")
    assert sorted(line.split("  ")[1] for line in out.decode().splitlines()) == ["hello from one", "hello from two"]
    code, out, _ = survey_until_no_link_is_lost(shell, "names", "hello ", "--stop-after", "1", "--json")
    reply, summary = map(json.loads, out.splitlines())
    assert (code, summary["replies"], summary["members"], summary["complete"]) == (0, 1, 2, False)
    assert reply["payload"] in ("hello from one\n", "hello from two\n")


def test_survey_says_who_did_not_answer(shell: Shell) -> None:
    code, out, error = shell.run("survey", "names", "hello")
    assert (code, out) == (3, b"")
    assert error.startswith("iris: nobody serves 'names'")
    shell.serve("join", "names", "--exec", "echo no >&2; exit 7", "--shell")
    code, out, error = shell.run("survey", "names", "hello", "--timeout", "60")
    assert (code, out, error.count("\n")) == (1, b"", 1)
    assert "no" in error
    shell.serve("join", "names", "--exec", "sleep 100")
    code, out, error = shell.run("survey", "names", "hello", "--timeout", "4")
    assert (code, out) == (4, b""), error
    assert "1 of 2 members of 'names' did not answer: " in error
    code, out, _ = shell.run("survey", "names", "hello", "--timeout", "4", "--json")
    document = json.loads(out)
    assert (code, document["missing"], len(document["missing_members"]), len(document["failed"])) == (4, 1, 1, 1)
    assert shell.run("survey", "names", "hello", "--stop-after", "0")[0] == 2


def test_a_tunnel_is_a_pipe_through_the_command_of_a_member(shell: Shell) -> None:
    service, _ = shell.serve("join", "upper", "--exec", "tr a-z A-Z")
    content = b"some text, " * 2_000_000  # more than fits a message of a request
    pipe = shell.start("tunnel", "upper")
    assert pipe.communicate(content, timeout=WAIT_S) == (content.upper(), b"")
    assert pipe.returncode == 0
    code, out, errors = shell.run("tunnel", "upper", "--json", stdin=b"abc")
    assert (code, out) == (0, b"ABC")
    assert json.loads(errors).items() >= {"cluster": "upper", "sent_bytes": 3, "received_bytes": 3}.items()
    assert stop(service) == (0, b"", "")


def test_a_tunnel_says_what_broke_it(shell: Shell) -> None:
    shell.serve("join", "wrong", "--exec", "cat >/dev/null; echo half; echo no such thing >&2; exit 3", "--shell")
    code, out, errors = shell.run("tunnel", "wrong", stdin=b"anything")
    assert (code, out) == (1, b"half\n")
    assert "CommandFailed: exit status 3: no such thing" in errors
    assert shell.run("tunnel", "nobody", stdin=b"")[0] == 3


def test_broadcast_runs_the_command_and_shows_its_output(shell: Shell) -> None:
    services = [shell.serve("join", "upper", "--exec", "tr a-z A-Z")[0] for _ in range(2)]
    assert shell.run("broadcast", "upper", "hello\n") == (0, b"sent to 2 members\n", "")
    for service in services:
        assert read_line(service.stdout) == "HELLO\n"
    code, out, _ = shell.run("broadcast", "upper", "again\n", "--json")
    assert (code, json.loads(out)) == (0, {"kind": "sent", "cluster": "upper", "members": 2})


def test_publish_reaches_who_subscribes_to_a_pattern(shell: Shell) -> None:
    assert shell.run("publish", "news.sport", "nobody hears it") == (0, b"sent to 0 nodes\n", "")
    plain, line = shell.serve("subscribe", "news.*")
    assert "subscribes to 'news.*'" in line
    as_json = shell.start("subscribe", "news.sport", "--json")
    assert json.loads(read_line(as_json.stdout))["pattern"] == "news.sport"
    assert shell.run("publish", "news.sport", "goal\n\x1b[2J") == (0, b"sent to 2 nodes\n", "")
    code, out, _ = shell.run("publish", "news.weather", "-", "--json", stdin=b"\xff")
    assert (code, json.loads(out)) == (0, {"kind": "published", "topic": "news.weather", "nodes": 1})
    lines = [read_line(plain.stdout), read_line(plain.stdout)]
    assert lines[0].startswith("news.sport goal")
    assert "\x1b" not in lines[0]
    assert lines[1].startswith("news.weather ")
    message = json.loads(read_line(as_json.stdout))
    assert (message["topic"], message["payload"], message["gap"]) == ("news.sport", "goal\n\x1b[2J", 0)
    assert stop(plain)[:2] == (0, b"")
    assert stop(as_json, signal.SIGINT)[:2] == (130, b"")
    assert shell.run("publish", "news.*", "x")[0] == 2
    assert shell.run("subscribe", "news..x")[0] == 2


def test_headers_reach_commands_and_subscribers(shell: Shell) -> None:
    shell.serve("join", "headers", "--exec", "printenv IRIS_HEADERS")
    given = ("--header", "tenant=a=b", "--header", "empty=")
    expected = {"tenant": "a=b", "empty": ""}
    code, out, error = shell.run("request", "headers", "", *given)
    assert (code, json.loads(out), error) == (0, expected, "")
    code, out, _ = shell.run("survey", "headers", "", "--json", *given)
    assert (code, json.loads(json.loads(out.splitlines()[0])["payload"])) == (0, expected)
    code, out, _ = shell.run("tunnel", "headers", *given, stdin=b"")
    assert (code, json.loads(out)) == (0, expected)
    assert shell.run("request", "headers", "")[0] == 1  # printenv fails: there are none
    subscriber = shell.start("subscribe", "t", "--json")
    read_line(subscriber.stdout)
    assert shell.run("publish", "t", "x", *given)[0] == 0
    assert json.loads(read_line(subscriber.stdout))["headers"] == expected
    assert shell.run("publish", "t", "x")[0] == 0
    assert "headers" not in json.loads(read_line(subscriber.stdout))
    code, out, _ = shell.run("broadcast", "headers", "", "--json", *given)
    assert (code, json.loads(out)["members"]) == (0, 1)
    for wrong, text in (("nothing", "NAME=VALUE"), ("a b=c", "not a valid name of a header")):
        code, _, error = shell.run("request", "headers", "", "--header", wrong)
        assert code == 2
        assert text in error


def test_json(shell: Shell) -> None:
    process = shell.start("join", "upper", "--exec", "tr a-z A-Z", "--json", "--zone", "eu/a")
    service = json.loads(read_line(process.stdout))
    assert (service["cluster"], service["network"], service["zone"]) == ("upper", "default", "eu/a")
    node = shell.start("node", "--json")
    lone = json.loads(read_line(node.stdout))
    assert service["name"].startswith(f"{os.uname().nodename.partition('.')[0]}/iris")
    member = {each: service[each] for each in ("id", "name", "address", "zone")} | {"kind": "member", "is_stand_in": False}
    summary = {"kind": "summary", "network": "default", "cluster": "upper", "shown": 1, "total": 1, "unreached_seeds": {}}
    assert [json.loads(line) for line in shell.run("members", "upper", "--json")[1].splitlines()] == [member, summary]
    *nodes, summary = map(json.loads, shell.run("members", "--json")[1].splitlines())
    assert sorted(each["id"] for each in nodes) == sorted([service["id"], lone["id"]])
    assert (summary["cluster"], summary["shown"]) == (None, 2)
    reply = json.loads(shell.run("request", "upper", "hello", "--json")[1])
    assert (reply["kind"], reply["cluster"], reply["payload"]) == ("reply", "upper", "HELLO")
    assert reply["seconds"] > 0
    code, out, error = shell.run("members", "nobody", "--json")
    assert (code, json.loads(out)["total"], error) == (3, 0, "")


def test_reader_that_has_seen_enough(shell: Shell) -> None:
    shell.serve("join", "echo", "--exec", "cat")
    process = shell.start("request", "echo", "hello")
    assert process.stdout is not None
    process.stdout.close()
    process.stdout = None
    assert finish(process)[0] == 141


def test_verbose_twice_shows_tracebacks(shell: Shell) -> None:
    process = shell.start("request", "nobody", "x", "-vv")
    _, error = process.communicate(timeout=WAIT_S)
    assert process.returncode == 3
    assert b"NoMembers" in error


# -- standard streams


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"], ids=["input", "output", "error", "all"])
def test_closed_standard_streams_abort_nothing(shell: Shell, tmp_path: Path, closed: str) -> None:
    """A supervisor may start a program so. Its sockets then had the numbers 0 to 2, which libuv aborts for."""
    shell.serve("join", "upper", "--exec", "tr a-z A-Z")
    command = f'"{sys.executable}" -m iris_py.cli request upper hello {closed}'
    done = subprocess.run(["sh", "-c", command], env=shell.environment, capture_output=True, timeout=WAIT_S, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout == (b"" if closed.startswith((">", "<&- >")) else b"HELLO")
    # And so with a program of one's own: nothing that it prints gets into a socket.
    program = tmp_path / "program.py"
    program.write_text(
        "import iris_py as iris\n"
        "async def main():\n"
        "    async with iris.connect() as node:\n"
        "        print('into nowhere', flush=True)\n"
        f"        open({str(tmp_path / 'reply')!r}, 'wb').write(await node.request('upper', b'hello'))\n"
        "iris.run(main())\n"
    )
    command = f'"{sys.executable}" "{program}" {closed}'
    done = subprocess.run(["sh", "-c", command], env=shell.environment, capture_output=True, timeout=WAIT_S, check=False)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "reply").read_bytes() == b"HELLO"


def test_standard_input_is_read_up_to_the_limit(shell: Shell) -> None:
    shell.environment["IRIS_MAX_MESSAGE_BYTES"] = "4096"
    assert shell.run("request", "no one", "-", stdin=b"x" * 4096)[0] == 3  # it is sent, and nobody serves that name
    # A source without end: the command must end all the same.
    command = f'yes | "{sys.executable}" -m iris_py.cli request "no one" -'
    done = subprocess.run(["sh", "-c", command], env=shell.environment, capture_output=True, timeout=WAIT_S, check=False)
    assert done.returncode == 2
    text = done.stderr.decode()
    assert "standard input has more than 4096 bytes, the limit of a message of this node. " in text
    assert "Pipe it through `iris tunnel 'no one'`" in text
    for arguments in (["broadcast", "upper"], ["publish", "news"], ["survey", "upper"]):
        code, out, error = shell.run(*arguments, "-", stdin=b"x" * 4097)
        assert (code, out) == (2, b"")
        assert "Split it, or raise max_message_bytes with IRIS_MAX_MESSAGE_BYTES (at most 67108864)." in error


def test_closed_standard_input_cannot_be_read(shell: Shell) -> None:
    command = f'"{sys.executable}" -m iris_py.cli request upper - <&-'
    done = subprocess.run(["sh", "-c", command], env=shell.environment, capture_output=True, timeout=WAIT_S, check=False)
    assert done.returncode == 2
    assert done.stderr == b"iris: standard input is closed. Give it something to read, or the text in place of -.\n"


def test_a_variable_that_sets_nothing_is_said_beside_the_error(shell: Shell) -> None:
    shell.environment["IRIS_SEED"] = "127.0.0.1:1"
    code, _, error = shell.run("request", "upper", "x")
    assert code == 3
    assert "the environment variable IRIS_SEED has no effect. Did you mean 'IRIS_SEEDS'?" in error


# -- many messages of one command


def test_each_line_of_standard_input_is_a_request(shell: Shell) -> None:
    """Replies are in the order of the lines, whichever is there first; one that fails hides no other."""
    work = 'read x; case $x in bad) exit 7;; slow) sleep 0.3;; esac; echo "<$x>"'
    shell.serve("join", "work", "--shell", "--exec", work)
    given = b"slow\na\nb\n\nbad\nlast"
    code, out, error = shell.run("request", "work", "--lines", "--concurrency", "4", stdin=given)
    assert (code, out) == (1, b"<slow>\n<a>\n<b>\n<>\n<last>\n")
    assert error.startswith("iris: request 5: ")
    assert error.count("\n") == 1
    code, out, error = shell.run("request", "work", "--lines", "--json", stdin=given)
    *lines, summary = map(json.loads, out.splitlines())
    assert (code, error) == (1, "")
    assert [(line["kind"], line["number"]) for line in lines] == [
        ("failure" if number == 5 else "reply", number) for number in range(1, 7)
    ]
    assert (summary["requests"], summary["replies"], summary["failed"]) == (6, 5, 1)
    assert shell.run("request", "work", "x", "--count", "3")[:2] == (0, b"<x>\n" * 3)
    for wrong, words in (
        (["request", "work", "x", "--lines"], "TEXT and --lines are both given"),
        (["request", "work"], "there is nothing to send"),
        (["publish", "t"], "there is nothing to send"),
    ):
        code, _, error = shell.run(*wrong)
        assert code == 2
        assert words in error


def test_each_line_of_standard_input_is_a_broadcast(shell: Shell) -> None:
    code, out, error = shell.run("broadcast", "notes", "--lines", "--json", stdin=b"a\nb\n")
    *lines, summary = map(json.loads, out.splitlines())
    assert (code, error) == (3, "")
    assert [(line["kind"], line["number"], line["type"]) for line in lines] == [
        ("failure", 1, "NoMembers"),
        ("failure", 2, "NoMembers"),
    ]
    assert summary.items() >= {"broadcasts": 2, "failed": 2, "members": 0}.items()
    member = shell.start("join", "notes", "--exec", "cat; echo", "--shell")
    assert "serves 'notes'" in read_line(member.stderr)
    assert shell.run("broadcast", "notes", "--lines", stdin=b"1\n2\n3") == (0, b"3 broadcasts sent to 1 member\n", "")
    assert shell.run("broadcast", "notes", "again", "--count", "2", "--json")[0] == 0
    assert [read_line(member.stdout) for _ in range(5)] == ["1\n", "2\n", "3\n", "again\n", "again\n"]


def test_each_line_of_standard_input_is_a_survey(shell: Shell) -> None:
    shell.serve("join", "names", "--shell", "--exec", 'read x; [ $x != bad ] || exit 7; echo "<$x>"')
    given = b"a\nbad\nlast"
    code, out, error = shell.run("survey", "names", "--lines", "--timeout", "60", stdin=given)
    assert (code, [line.split(b"  ")[::2] for line in out.splitlines()]) == (1, [[b"1", b"<a>"], [b"3", b"<last>"]])
    assert error.startswith("iris: survey 2: the handler at member ")
    options = ["--lines", "--json", "--concurrency", "2", "--timeout", "60"]
    code, out, error = shell.run("survey", "names", *options, stdin=given)
    *lines, summary = map(json.loads, out.splitlines())
    assert (code, error) == (1, "")
    assert [(line["kind"], line["number"]) for line in lines] == [
        ("reply", 1),
        ("survey", 1),
        ("survey", 2),
        ("reply", 3),
        ("survey", 3),
    ]
    assert [line["complete"] for line in lines if line["kind"] == "survey"] == [True, False, True]
    assert summary.items() >= {"surveys": 3, "members": 3, "replies": 2, "missing": 0, "complete": False}.items()
    assert len(summary["failed"]) == 1


@pytest.mark.parametrize("is_pipe", [True, False])
def test_lines_end_with_their_reader_and_with_ctrl_c(shell: Shell, is_pipe: bool) -> None:
    shell.serve("join", "names", "--exec", "cat")
    asking = shell.start("survey", "names", "--lines", "--json", "--timeout", "60")
    assert asking.stdin is not None
    asking.stdin.write(b"a\n")
    asking.stdin.flush()
    assert json.loads(read_line(asking.stdout))["payload"] == "a"
    assert json.loads(read_line(asking.stdout))["kind"] == "survey"  # or the reader would go in the midst of the first answer
    if is_pipe:
        assert asking.stdout is not None
        asking.stdout.close()
        asking.stdout = None
        asking.stdin.write(b"b\n")
        asking.stdin.flush()
        assert asking.wait(WAIT_S) == 141
    else:
        asking.send_signal(signal.SIGINT)
        assert asking.wait(WAIT_S) == 130
    assert asking.stderr is not None
    assert without_standstills(asking.stderr.read().decode()) == ""
    asking.stdin.close()
    asking.stdin = None  # or the fixture would flush it


def test_lines_are_published_and_so_many_messages_are_awaited(shell: Shell, tmp_path: Path) -> None:
    file = tmp_path / "messages"
    counting = shell.start("subscribe", "t", "--count", "5", "--json", "--output", str(file))
    plain, _ = shell.serve("subscribe", "t", "--show-time", "--count", "5")
    assert read_line(counting.stdout)  # it is subscribed, too
    code, out, error = shell.run("publish", "t", "--lines", "--json", stdin=b"1\n2\n3")
    assert (code, json.loads(out), error) == (0, {"kind": "summary", "topic": "t", "messages": 3, "nodes": 2}, "")
    assert shell.run("publish", "t", "again", "--count", "2") == (0, b"2 messages sent to 2 nodes\n", "")
    assert finish(counting)[:2] == (0, b"")
    assert [json.loads(line)["payload"] for line in file.read_text().splitlines()] == ["1", "2", "3", "again", "again"]
    code, out, _ = finish(plain)
    assert code == 0
    shown = [line.split(" ", 1) for line in out.decode().splitlines()]
    assert [text for _, text in shown] == ["t 1", "t 2", "t 3", "t again", "t again"]
    assert all(len(time) == len("12:34:56.789") and time[2] == time[5] == ":" for time, _ in shown)
    code, out, error = shell.run("subscribe", "t", "--count", "1", "--timeout", "0.2")
    assert (code, out) == (4, b"")
    assert "fewer than 1 messages came within 0.2 s" in error
    assert shell.run("subscribe", "t", "--timeout", "0.2")[:2] == (0, b"")


@pytest.mark.parametrize(
    ("words", "stops"),
    [
        (["node"], signal.SIGTERM),
        (["join", "upper", "--exec", "cat"], signal.SIGTERM),
        (["subscribe", "news.>"], signal.SIGINT),
        (["monitor"], signal.SIGINT),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_each_line_of_a_command_that_runs_for_long_has_its_time_level_and_event(
    shell: Shell, words: list[str], stops: signal.Signals
) -> None:
    command = shell.start(*words, "-v")
    assert command.stderr is not None
    lines = [command.stderr.readline().decode()]
    while "Ctrl-C ends it" not in lines[-1]:
        assert lines[-1], lines
        lines.append(command.stderr.readline().decode())
    command.send_signal(stops)
    lines += finish(command)[2].splitlines(keepends=True)
    assert not [line for line in lines if not re.match(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z [A-Z]+ [a-z_]+: \S", line)]
