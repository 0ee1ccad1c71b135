"""The options of commands that send payloads: text, lines of standard input, headers, and end-to-end encryption."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Final

from iris_py import Seal, Sealed
from iris_py.cli.standard_input import read_lines
from iris_py.errors import ConfigurationError
from iris_py.files.secrets import read_secret_file
from iris_py.wire.packets import MESSAGE_BYTES_LIMIT

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence
    from pathlib import Path

    from iris_py import Handler
    from iris_security import Secret

__all__ = ["check_source", "payloads_of", "read_headers", "read_payload", "read_seal", "read_sealed"]

#: Number of repetitions of a message in one group of payloads.
TOGETHER: Final = 256

_SEAL_FILE: Final = "--seal-file"


def read_payload(text: str, bytes_max: int, advice: str) -> bytes:
    """Return the bytes of an argument exactly as the shell passed them, or the bytes of standard input.

    Args:
        text: The argument; ``-`` for standard input.
        bytes_max: The largest payload of this node. Reading stops one byte after it.
        advice: Advice for larger payloads, besides raising the limit.

    Raises:
        ConfigurationError: Standard input is closed, or larger.
    """
    if text != "-":
        return os.fsencode(text)
    if sys.stdin is None:
        raise ConfigurationError("standard input is closed. Give it something to read, or the text in place of -.")
    payload = sys.stdin.buffer.read(bytes_max + 1)
    if len(payload) > bytes_max:
        raise ConfigurationError(
            f"standard input has more than {bytes_max} bytes, the limit of a message of this node. {advice}, or raise "
            f"max_message_bytes with IRIS_MAX_MESSAGE_BYTES (at most {MESSAGE_BYTES_LIMIT})."
        )
    return payload


def check_source(text: str | None, *, has_lines: bool) -> None:
    """Check that exactly one source is given: the text of the command line, or standard input with `--lines`.

    Raises:
        ConfigurationError: Both are given, or neither.
    """
    if has_lines and text is not None:
        raise ConfigurationError("TEXT and --lines are both given. Leave TEXT out: with --lines each line is a message.")
    if not has_lines and text is None:
        raise ConfigurationError("there is nothing to send: give TEXT, - for standard input as one message, or --lines.")


async def payloads_of(text: str | None, bytes_max: int, count: int | None) -> AsyncIterator[list[bytes]]:
    """Yield payloads in groups: copies of an argument, or the lines of standard input as they arrive.

    Args:
        text: The argument, sent repeatedly; None for the lines of standard input.
        bytes_max: The largest payload.
        count: Maximum number of messages; None for a single text, or for all lines.

    Raises:
        ConfigurationError: A payload is too large, or standard input cannot be read.
    """
    left = count if count is not None else 1 if text is not None else None
    if text is not None:
        payload = read_payload(text, bytes_max, "Split it")
        while left:
            some = min(left, TOGETHER)
            yield [payload] * some
            left -= some
        return
    async for lines in read_lines(bytes_max):
        yield lines[:left]
        if left is not None:
            left -= len(lines)
            if left <= 0:
                return


def read_headers(given: Sequence[str] | None) -> dict[str, str]:
    """Parse headers given as `NAME=VALUE`. Of a repeated name, the last value counts.

    Raises:
        ConfigurationError: A header has no `=`.
    """
    headers = {}
    for each in given or ():
        name, separator, value = each.partition("=")
        if not separator:
            raise ConfigurationError(f"--header {each!r} has no value. Write it as NAME=VALUE.")
        headers[name] = value
    return headers


def read_seal(path: Path | None, name: str | None) -> Seal | None:
    """Return the seal for the payloads of requests, from the options; None without `--seal-file`.

    Args:
        path: The file with the secret; the first of several generations encrypts.
        name: The name for sealing; None for the name of the cluster.

    Raises:
        ConfigurationError: The file cannot be used, or a name is given without a file.
    """
    return None if _is_absent(path, name) else Seal(_read(path), name=name)


def read_sealed(handler: Handler, path: Path | None, name: str | None) -> Handler | Sealed:
    """Wrap a handler for sealed payloads only; return the handler itself without `--seal-file`."""
    return handler if _is_absent(path, name) else Sealed(handler, _read(path), name=name)


def _is_absent(path: Path | None, name: str | None) -> bool:
    if path is None and name is not None:
        raise ConfigurationError(f"--seal-name needs the file with the secret: {_SEAL_FILE}.")
    return path is None


def _read(path: Path | None) -> tuple[Secret, ...]:
    assert path is not None
    return read_secret_file(path, _SEAL_FILE)
