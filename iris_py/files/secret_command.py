"""Secrets printed by a command, such as a password manager: ``pass show iris``, ``vault kv get -field=secret iris``.

The command runs without a shell, as this user, with the environment of this process. Standard input is empty, so the command
cannot read the input of this process; a terminal stays available for a passphrase. The output has the format of a secret file,
and is never shown, even if it is no secret.
"""

from __future__ import annotations

import os
import selectors
import shlex
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from iris_py.errors import ConfigurationError
from iris_py.files.secrets import SECRET_FILE_BYTES_MAX, check_path, expand_home, parse_content

if TYPE_CHECKING:
    from iris_security.secret import Secret

__all__ = ["SECRET_COMMAND_TIMEOUT_S", "check_command", "run_secret_command", "split_command"]

#: Seconds until a command is killed. Too small: a person has no time for a passphrase; too large: a service whose command waits
#: for input reports the error late.
SECRET_COMMAND_TIMEOUT_S: Final = 30.0
#: Bytes kept of the end of standard error, for its last line. Too small: the line is cut off; too large: memory for nothing.
_ERROR_BYTES_MAX: Final = 4096
#: Characters of the last line of standard error that an error shows. Too small: the reason is cut off; too large: the line
#: hides the advice of Iris.
_LINE_CHARACTERS_MAX: Final = 200
#: The length in bytes from which on a word that standard error shares with the output counts as a part of the secret.
_WORD_BYTES_MIN: Final = 8
_READ_BYTES: Final = 4096
_EXAMPLE: Final = '["pass", "show", "iris"]'


class _TooMuch(Exception):
    """Raised if the output of a command is longer than a secret file may be."""


def split_command(text: str, origin: str) -> tuple[str, ...]:
    """Split the text of a command into words like a shell, without any other interpretation.

    Args:
        text: The command, for example ``pass show iris``.
        origin: The source of the command, for errors.

    Raises:
        ConfigurationError: The quotes in the command do not match, or as for :func:`check_command`.
    """
    try:
        words = shlex.split(text)
    except ValueError as exc:
        raise ConfigurationError(f"{origin} cannot be split into words: {exc}. Correct its quotes.") from None
    return check_command(words, origin)


def check_command(value: object, origin: str, directory: Path | None = None) -> tuple[str, ...]:
    """Check a command, and return its program and arguments, ready to run.

    Args:
        value: The program and its arguments. A program with a ``/`` is a path, in which ``~`` is the home directory; others are
            looked up in ``PATH``.
        origin: The source of the command, for errors.
        directory: The base of a relative program path; None for the working directory.

    Raises:
        ConfigurationError: The value is no list of strings, is empty, or contains a secret.
    """
    if isinstance(value, str | bytes) or not isinstance(value, Sequence) or not all(isinstance(each, str) for each in value):
        raise ConfigurationError(f"{origin} must be a list of strings, such as {_EXAMPLE}. Correct it.")
    words = tuple(value)
    if not words or not words[0].strip() or any("\0" in word for word in words):
        raise ConfigurationError(f"{origin} names no command. Write it as {_EXAMPLE}.")
    for word in words:
        check_path(word, origin)
    program = str(expand_home(Path(words[0]), origin)) if words[0].startswith("~") else words[0]
    if "/" in program and directory is not None:
        program = str(directory / program)
    return program, *words[1:]


def run_secret_command(command: Sequence[str], origin: str, timeout_s: float = SECRET_COMMAND_TIMEOUT_S) -> tuple[Secret, ...]:
    """Run a command and return the printed secret: a generation per line, the primary first.

    This blocks: call it outside of an event loop.

    Args:
        command: The program and its arguments.
        origin: The source of the command, for errors. Errors name the program, but not its arguments, which may be other
            secrets.
        timeout_s: Seconds until the command is killed. Processes that the command leaves behind are not killed.

    Raises:
        ConfigurationError: The command cannot run, fails, takes too long, or prints no secret or more than a secret file may
            have.
    """
    name = f"{origin}: {command[0]}"
    ends_at = time.monotonic() + timeout_s
    try:
        process = subprocess.Popen(  # noqa: S603 - the command that the settings of this user name
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0
        )
    except OSError as exc:
        raise ConfigurationError(f"{name} cannot be run: {exc.strerror}. Correct the command.") from None
    with process:
        try:
            output, error = _read(process, ends_at)
        except (TimeoutError, subprocess.TimeoutExpired):
            raise ConfigurationError(
                f"{name} was killed, because it had not ended after {timeout_s:g} s. Run it in a terminal: it may wait "
                "for input."
            ) from None
        except _TooMuch:
            raise ConfigurationError(
                f"{name} printed more than {SECRET_FILE_BYTES_MAX} bytes. Let it print the secret alone."
            ) from None
        finally:
            process.kill()  # without effect if it has ended
    if (status := process.returncode) != 0:
        ending = f"ended with exit status {status}" if status > 0 else f"was killed by {signal.Signals(-status).name}"
        line = _last_line(error, output)
        raise ConfigurationError(f"{name} {ending}{line and f': {line}'}. Run it in a terminal to see what is wrong.")
    return parse_content(output, f"{origin}: the output of {command[0]}", "Let it print the content of a secret file")


def _read(process: subprocess.Popen[bytes], ends_at: float) -> tuple[bytes, bytes]:
    """Wait for a process; return its output, and the last bytes of its standard error.

    Standard error may stay open: a helper left behind, such as a passphrase agent, may have it.

    Raises:
        TimeoutError: The output takes too long.
        subprocess.TimeoutExpired: The process has closed its output, but does not end in time.
        _TooMuch: The output is longer than a secret file may be.
    """
    assert process.stdout is not None
    assert process.stderr is not None
    output, error = bytearray(), b""
    with selectors.DefaultSelector() as selector:
        for stream in (process.stdout, process.stderr):
            os.set_blocking(stream.fileno(), False)
            selector.register(stream, selectors.EVENT_READ)
        while process.stdout in selector.get_map():
            ready = selector.select(max(0.0, ends_at - time.monotonic()))
            if not ready and time.monotonic() >= ends_at:
                raise TimeoutError
            for key, _events in ready:
                part = os.read(key.fd, _READ_BYTES)
                if not part:
                    selector.unregister(key.fileobj)
                elif key.fileobj is process.stdout:
                    output += part
                    if len(output) > SECRET_FILE_BYTES_MAX:
                        raise _TooMuch
                else:
                    error = (error + part)[-_ERROR_BYTES_MAX:]
        process.wait(max(0.0, ends_at - time.monotonic()))
        try:
            while part := os.read(process.stderr.fileno(), _READ_BYTES):
                error = (error + part)[-_ERROR_BYTES_MAX:]
        except BlockingIOError:
            pass  # another process still has it
    return bytes(output), error


def _last_line(error: bytes, output: bytes) -> str:
    """Return the last line of a command's standard error, or a remark if the line repeats a secret or the output."""
    lines = [line.strip() for line in error.splitlines() if line.strip()]
    if not lines:
        return ""
    words = [word for word in output.split() if len(word) >= _WORD_BYTES_MIN]
    text = lines[-1].decode(errors="replace")
    try:
        check_path(text, "")
    except ConfigurationError:
        return "its last line on standard error is not shown, because it contains a secret"
    if any(word in lines[-1] for word in words):
        return "its last line on standard error is not shown, because it contains a part of its output"
    shown = "".join(letter if letter.isprintable() else "?" for letter in text)
    return shown[:_LINE_CHARACTERS_MAX].rstrip(".")
