"""Starts processes of Python that have Iris in them already, for a fraction of what starting an interpreter costs.

:class:`Process` is `subprocess.Popen`. Where the command is a module or a file of Python, a server forks for it that has
imported Iris; there is one for each set of options of the interpreter. What runs is a process as any other: its standard
streams, environment, directory, signals, sockets and end are its own. It differs in what the system says of how it began:
``/proc`` has the command line and the environment of the server. So who is given a secret in the environment, or other settings
for Python than the tests have, gets an interpreter of its own; so does who asks for it, to see how a process begins.
"""

from __future__ import annotations

import atexit
import functools
import gc
import importlib
import importlib.util
import json
import os
import pkgutil
import select
import signal
import socket
import subprocess
import sys
import threading
import types
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

#: What commands, and programs of tests, import anyway, some of it as soon as they have a node.
MODULES: Final = ("asyncio.runners", "uvloop", "pydantic.main", "iris_py", "iris_py.sync", "typer.rich_utils")
#: Packages whose modules they import.
PACKAGES: Final = ("iris_py.cli", "iris_py.cli.commands")
#: More than the command and the environment of a process have.
_JOB_BYTES: Final = 200_000
_NUMBER_BYTES: Final = 4
#: Options of the interpreter that have a value.
_OPTIONS: Final = ("-X", "-W")
_SECRET: Final = "IRIS_SECRET"

_controls: list[socket.socket] = []


def heed_signals() -> None:
    """Let a process end by signals as from a terminal, also where those who run the tests ignore some (``nohup``, ``&``)."""
    for number in (signal.SIGHUP, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)


def run(command: Sequence[str | os.PathLike[str]], *, timeout: float, **options: Any) -> subprocess.CompletedProcess[Any]:
    """Run a command to its end, as `subprocess.run` does with ``capture_output``, with Iris in it already if it can be."""
    pipe = subprocess.PIPE
    with Process(command, **{"stdin": subprocess.DEVNULL, "stdout": pipe, "stderr": pipe} | options) as process:
        try:
            out, errors = process.communicate(timeout=timeout)
        finally:
            process.kill()
    return subprocess.CompletedProcess(process.args, process.returncode, out, errors)


# -- who asks for processes


def sockets() -> set[str]:
    """Return the sockets to servers, which stay open, as ``/proc`` names them."""
    return {os.readlink(f"/proc/self/fd/{control.fileno()}") for control in _controls}


class Process(subprocess.Popen[Any]):
    """A process as `subprocess.Popen` starts it, with Iris in it already if it can be. It heeds signals in either case."""

    def __init__(self, command: Sequence[str | os.PathLike[str]], *, is_new: bool = False, **options: Any) -> None:
        """Start it.

        Args:
            command: What to run, and its arguments.
            is_new: Whether it gets an interpreter of its own in any case.
            options: Those of `subprocess.Popen`.
        """
        self._is_new = is_new
        self._says: int | None = None  # the pipe on which the server says how it ended, if a server has started it
        self._taking = threading.Lock()
        super().__init__(command, preexec_fn=heed_signals, **options)

    # The arguments of the method that this one replaces are the same from Python 3.11 on. The class has no public way for it.
    def _execute_child(self, args: Any, executable: Any, preexec: Any, close: Any, descriptors: Any, cwd: Any, env: Any,
                       startup: Any, flags: Any, shell: Any, *rest: Any) -> None:  # fmt: skip
        command = [os.fspath(word) for word in args]
        variables = dict(os.environ if env is None else env)
        options = None if self._is_new else _options_of(command, variables)
        if options is None:
            given = args, executable, preexec, close, descriptors, cwd, env, startup, flags, shell, *rest
            super()._execute_child(*given)  # type: ignore[misc]
            return
        sys.audit("subprocess.Popen", command[0], command, cwd, env)  # as the other one does: see process_leaks.py
        *pipes, _restore, _gid, _gids, _uid, _umask, is_session, _group = rest
        streams = [own if given == -1 else given for own, given in zip((0, 1, 2), (pipes[0], pipes[3], pipes[5]), strict=True)]
        job = {
            "command": command[1 + len(options) :],
            "environment": variables,
            "directory": os.path.abspath(cwd or os.getcwd()),
            "is_session": is_session,
        }
        self._says, says = os.pipe()
        try:
            socket.send_fds(_start_server(options), [json.dumps(job).encode()], [*streams, says])
        finally:
            os.close(says)
        self.pid = _read_number(self._says)
        self._child_created = True
        self._close_pipe_fds(*pipes)  # type: ignore[attr-defined]

    def poll(self) -> int | None:
        """Return how it has ended; None if it has not."""
        if self._says is None:
            return super().poll()
        self._take(0.0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Return how it ends.

        Raises:
            subprocess.TimeoutExpired: It has not ended.
        """
        if self._says is None:
            return super().wait(timeout)
        self._take(timeout)
        if self.returncode is None:
            assert timeout is not None
            raise subprocess.TimeoutExpired(self.args, timeout)
        return self.returncode

    def _take(self, timeout_s: float | None) -> None:
        with self._taking:
            if self.returncode is not None:
                return
            assert self._says is not None
            poller = select.poll()
            poller.register(self._says, select.POLLIN)
            if poller.poll(None if timeout_s is None else 1000 * max(timeout_s, 0.0)):
                self.returncode = _read_number(self._says)
                os.close(self._says)


def _options_of(command: Sequence[str], variables: Mapping[str, str]) -> tuple[str, ...] | None:
    """Return the options of the interpreter that a command starts; None if it needs an interpreter of its own."""
    if (
        command[0] != sys.executable
        or _SECRET in variables
        or _settings_of_python(variables) != _settings_of_python(os.environ)
    ):
        return None
    number = 1
    while command[number] in _OPTIONS:
        number += 2
    is_file_or_module = command[number] == "-m" or not command[number].startswith("-")
    return tuple(command[1:number]) if is_file_or_module else None


def _settings_of_python(variables: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in variables.items() if name.startswith("PYTHON")}


def _read_number(descriptor: int) -> int:
    data = os.read(descriptor, _NUMBER_BYTES)
    assert len(data) == _NUMBER_BYTES, "the server that starts processes has ended"
    return int.from_bytes(data, signed=True)


@functools.cache
def _start_server(options: tuple[str, ...]) -> socket.socket:
    """Return the socket on which a server takes jobs. It ends when the socket is closed: at the latest, with this process."""
    control, its_control = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    _controls.append(control)
    with its_control:
        number = its_control.fileno()
        variables = {name: value for name, value in os.environ.items() if not name.startswith(("IRIS_", "XDG_"))}
        command = [sys.executable, *options, __file__, str(number)]
        server = Process(command, is_new=True, stdin=subprocess.DEVNULL, pass_fds=[number], env=variables)

    def end() -> None:
        control.close()
        server.wait()

    atexit.register(end)
    return control


# -- the server


def _import_everything() -> None:
    for name in MODULES:
        importlib.import_module(name)
    for name in PACKAGES:
        for module in pkgutil.iter_modules(importlib.import_module(name).__path__, f"{name}."):
            if not (module.ispkg or module.name.endswith("__main__")):
                importlib.import_module(module.name)
    gc.collect()
    gc.freeze()  # a collection in a process that forks copies nothing of it


def _serve(control: socket.socket) -> dict[str, Any] | None:
    """Fork for each job, and say how it ended. Returns the job in the process that is to do it, and None at the end.

    The system forgets a process that has ended when the test knows of it, as it does with children of the test.
    """
    running: dict[int, tuple[int, int]] = {}
    ended: dict[int, int] = {}
    poller = select.poll()
    poller.register(control, select.POLLIN)
    while True:
        for descriptor, _event in poller.poll():
            if descriptor in running:
                process, says = running.pop(descriptor)
                found = os.waitid(os.P_PID, process, os.WEXITED | os.WNOWAIT)
                assert found is not None
                _say(says, found.si_status if found.si_code == os.CLD_EXITED else -found.si_status)
                ended[says] = process
                poller.register(says, 0)  # tells when the other end is closed
            elif descriptor in ended:
                os.waitpid(ended.pop(descriptor), 0)
            if descriptor != control.fileno():
                poller.unregister(descriptor)
                os.close(descriptor)
                continue
            message, given, _flags, _address = socket.recv_fds(control, _JOB_BYTES, 4)
            if not message:
                return None
            *streams, says = given
            process = os.fork()
            if not process:
                _take_streams(streams)
                _close(*given, *running, *ended, *(says for _process, says in running.values()))
                control.close()
                job: dict[str, Any] = json.loads(message)
                return job
            _say(says, process)
            _close(*streams)
            process_descriptor = os.pidfd_open(process)
            running[process_descriptor] = process, says
            poller.register(process_descriptor, select.POLLIN)


def _say(descriptor: int, number: int) -> None:
    try:
        os.write(descriptor, number.to_bytes(_NUMBER_BYTES, signed=True))
    except BrokenPipeError:
        pass  # the test did not wait for it


def _close(*descriptors: int) -> None:
    for descriptor in descriptors:
        os.close(descriptor)


def _take_streams(streams: Sequence[int]) -> None:
    for own, given in enumerate(streams):
        os.dup2(given, own)
    sys.stdin = open(0, closefd=False)  # noqa: SIM115 - for as long as the process lives
    sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", 1, errors="backslashreplace", closefd=False)  # noqa: SIM115


def _prepare(job: Mapping[str, Any]) -> types.CodeType:
    """Let this process be what a new interpreter would be for this job; return the program."""
    if job["is_session"]:
        os.setsid()
    os.chdir(job["directory"])
    os.environ.clear()
    os.environ.update(job["environment"])
    program = types.ModuleType("__main__")
    sys.modules["__main__"] = program
    first, *arguments = job["command"]
    if first != "-m":
        sys.argv, sys.path[0] = [first, *arguments], os.path.dirname(os.path.abspath(first))
        program.__file__ = first
        return compile(Path(first).read_bytes(), first, "exec")
    sys.path[0] = job["directory"]
    name = arguments[0]
    spec = importlib.util.find_spec(name)
    if spec is not None and spec.submodule_search_locations is not None:
        spec = importlib.util.find_spec(f"{name}.__main__")
    assert spec is not None, f"there is no module {name}"
    assert spec.origin is not None
    program.__spec__, program.__file__, program.__package__ = spec, spec.origin, spec.parent
    sys.argv = [spec.origin, *arguments[1:]]
    code = spec.loader.get_code(spec.name)  # type: ignore[union-attr]
    assert isinstance(code, types.CodeType)
    return code


def _run(job: Mapping[str, Any]) -> None:
    """Run the program of a job, and end as it says."""
    try:
        exec(_prepare(job), sys.modules["__main__"].__dict__)
        code = 0
    except SystemExit as exc:
        if not isinstance(exc.code, int | None):
            raise
        code = exc.code or 0
    if not sys.flags.dev_mode:
        _end_at_once(code)
    sys.exit(code)


def _end_at_once(code: int) -> None:
    """End as an interpreter does, without its last step: to free all that was imported.

    That step costs more processor time than most programs, for a process that was forked has to copy each page it frees from.
    In development mode it is taken, since it warns of what a program has left open. It is also taken, by returning, if the
    standard streams cannot be written any more, since an interpreter has a message and an exit code for that.
    """
    threading._shutdown()  # type: ignore[attr-defined]  # waits for the other threads, as the interpreter does
    atexit._run_exitfuncs()
    gc.collect()  # of the program alone: what it has forgotten says so
    try:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
    except (AttributeError, OSError, ValueError):  # there is none, nobody reads it, or it is closed
        return
    os._exit(code)


if __name__ == "__main__":
    _import_everything()
    if (_job := _serve(socket.socket(fileno=int(sys.argv[1])))) is not None:
        _run(_job)
