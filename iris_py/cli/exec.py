"""A handler that runs a command for every request or tunnel, for `iris join --exec`."""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import shutil
import signal
import sys
from typing import TYPE_CHECKING, Final, TypeVar

from iris_py import Handler, TunnelClosed
from iris_py.cli.outcome import complain, readable
from iris_py.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence

    from iris_py import Message, Request, Tunnel
    from iris_py.wire.headers import HeaderValue

_Output = TypeVar("_Output")

__all__ = ["CommandFailed", "CommandHandler", "parse_command"]

ERROR_TAIL_BYTES: Final = 1000  # bytes of the end of standard error, which names the cause and is sent to the caller
READ_BYTES: Final = 1 << 16
OVERTIME_S: Final = 1.0  # after the caller's timeout: the caller cancels then, and the command must not fail before
BROADCAST_TIMEOUT_S: Final = 60.0  # broadcasts have no deadline, and a hung command would block all later ones


class CommandFailed(Exception):
    """The command did not exit with 0. The caller of the request receives the text of this error in a `RemoteError`."""


def parse_command(text: str, *, use_shell: bool) -> tuple[str, ...]:
    """Split a command as a shell would, and check that the program exists now instead of at every request.

    Raises:
        ConfigurationError: The command does not exist.
    """
    if use_shell:
        if not text.strip():
            raise ConfigurationError("--exec is empty. Name a command, for example --exec 'tr a-z A-Z'.")
        return ("/bin/sh", "-c", text)
    try:
        words = tuple(shlex.split(text))
    except ValueError as exc:
        raise ConfigurationError(f"--exec {text!r} cannot be split into words: {exc}. Correct its quotes.") from None
    if not words:
        raise ConfigurationError("--exec is empty. Name a command, for example --exec 'tr a-z A-Z'.")
    if shutil.which(words[0]) is None:
        raise ConfigurationError(
            f"--exec: there is no command {words[0]!r}. Correct it, or add --shell if it is for the shell."
        )
    return words


class CommandHandler(Handler):
    """Handler of `iris join --exec`: runs a command for each message, with the payload as its standard input.

    A command runs in a separate process group, so that all processes end together, and Ctrl-C at the terminal does not reach
    the command: a graceful leave lets it finish. The headers of a message are in ``IRIS_HEADERS`` as JSON.
    """

    def __init__(self, command: Sequence[str], output_bytes_max: int) -> None:
        """Prepare the handler.

        Args:
            command: The program and its arguments.
            output_bytes_max: Maximum bytes of output: the largest message, because more could not be sent.
        """
        self._command = command
        self._output_bytes_max = output_bytes_max

    async def on_request(self, request: Request) -> bytes:
        """Run the command, and reply with its output. A cancelled or timed-out request kills the command."""
        async with asyncio.timeout(max(0.0, request.time_left_s) + OVERTIME_S):
            return await run_command(self._command, request.payload, self._output_bytes_max, request.headers)

    async def on_tunnel(self, tunnel: Tunnel) -> None:
        """Run the command with the tunnel's data as input, and send the output back, both as they arrive."""
        await _run(
            self._command,
            lambda stdin: _feed_from(stdin, tunnel),
            lambda stdout: tunnel.send_chunks(_read_each(stdout)),
            tunnel.headers,
        )

    async def on_broadcast(self, message: Message) -> None:
        """Run the command, and print its output here. A failure is reported on standard error."""
        try:
            async with asyncio.timeout(BROADCAST_TIMEOUT_S):
                output = await run_command(self._command, message.payload, self._output_bytes_max, message.headers)
        except (CommandFailed, OSError, TimeoutError) as exc:
            complain(f"a broadcast was not handled: {str(exc) or f'it took longer than {BROADCAST_TIMEOUT_S:g} s'}")
            return
        sys.stdout.buffer.write(output)
        sys.stdout.buffer.flush()


async def run_command(
    command: Sequence[str], payload: bytes, output_bytes_max: int, headers: Mapping[str, HeaderValue] | None = None
) -> bytes:
    """Run a command once, and return its output. Cancelling the call kills the command.

    Raises:
        CommandFailed: The exit status is not 0, or the output has more than `output_bytes_max` bytes.
        OSError: The command could not be started.
    """
    return await _run(command, lambda stdin: _feed(stdin, payload), lambda stdout: _read_all(stdout, output_bytes_max), headers)


async def _run(
    command: Sequence[str],
    feed: Callable[[asyncio.StreamWriter], Awaitable[None]],
    read: Callable[[asyncio.StreamReader], Awaitable[_Output]],
    headers: Mapping[str, HeaderValue] | None,
) -> _Output:
    environment = {name: value for name, value in os.environ.items() if name != "IRIS_HEADERS"}
    if headers:
        environment["IRIS_HEADERS"] = json.dumps(readable(headers))
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,
        env=environment,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(_wait(feed(process.stdin)))
            output = tasks.create_task(_wait(read(process.stdout)))
            error = tasks.create_task(_read_tail(process.stderr))
        status = await process.wait()
    except BaseException as exc:
        _kill_group(process.pid)
        await process.wait()
        # The first failure has cancelled the other tasks, so it is the only one.
        raise (exc.exceptions[0] if isinstance(exc, ExceptionGroup) else exc) from None
    if status != 0:
        ending = f"exit status {status}" if status > 0 else f"killed by {signal.Signals(-status).name}"
        tail = error.result().decode(errors="replace").strip()
        raise CommandFailed(f"{ending}: {tail}" if tail else ending)
    return output.result()


async def _wait(awaitable: Awaitable[_Output]) -> _Output:
    return await awaitable


async def _feed_from(stream: asyncio.StreamWriter, tunnel: Tunnel) -> None:
    """Pass the data of a tunnel to the command as they arrive. If the command stops reading, the tunnel stops receiving."""
    try:
        async for chunk in tunnel.receive_chunks():
            if stream.is_closing():
                return
            stream.write(chunk)
            await stream.drain()
    except (TunnelClosed, BrokenPipeError, ConnectionResetError):
        pass
    finally:
        stream.close()


async def _read_each(stream: asyncio.StreamReader) -> AsyncIterator[bytes]:
    while part := await stream.read(READ_BYTES):
        yield part


async def _feed(stream: asyncio.StreamWriter, payload: bytes) -> None:
    if stream.is_closing():
        return  # the command has ended, and uvloop refuses writes then
    try:
        stream.write(payload)
        await stream.drain()
        stream.close()
        await stream.wait_closed()
    except (BrokenPipeError, ConnectionResetError):
        pass  # the command does not read its input


async def _read_all(stream: asyncio.StreamReader, bytes_max: int) -> bytes:
    parts = bytearray()
    while part := await stream.read(READ_BYTES):
        parts += part
        if len(parts) > bytes_max:
            raise CommandFailed(f"it printed more than {bytes_max} bytes, the largest message")
    return bytes(parts)


async def _read_tail(stream: asyncio.StreamReader) -> bytes:
    tail = b""
    while part := await stream.read(READ_BYTES):
        tail = (tail + part)[-ERROR_TAIL_BYTES:]
    return tail


def _kill_group(pid: int) -> None:
    """Kill the command and its descendants by their process group, while the command runs or a pipe is open."""
    try:
        os.killpg(pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        pass
