"""The options of commands that send payloads: text, lines of standard input, headers, and end-to-end encryption."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from iris_py.cli.standard_input import read_lines
from iris_py.errors import ConfigurationError
from iris_py.files.secrets import read_secret_file
from iris_py.wire.packets import MESSAGE_BYTES_LIMIT

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence
    from pathlib import Path

    from iris_py import Seal

__all__ = ["PayloadSource", "read_headers", "read_payload", "read_seal"]

#: Number of repetitions of a message in one group of payloads.
TOGETHER: Final = 256


@dataclass(frozen=True, slots=True)
class PayloadSource:
    """The messages that a command sends: TEXT once or several times, or the lines of standard input.

    Raises:
        ConfigurationError: Both sources are given, or neither.
    """

    text: str | None
    """TEXT on the command line; ``-`` for standard input as one message."""
    has_lines: bool = False
    """Whether each line of standard input is a message (`--lines`)."""
    count: int | None = None
    """Maximum number of messages (`--count`); None for a single text, or for all lines."""

    def __post_init__(self) -> None:
        if self.has_lines and self.text is not None:
            raise ConfigurationError("TEXT and --lines are both given. Leave TEXT out: with --lines each line is a message.")
        if not self.has_lines and self.text is None:
            raise ConfigurationError("there is nothing to send: give TEXT, - for standard input as one message, or --lines.")

    def read_lone(self, bytes_max: int, advice: str = "Split it") -> bytes | None:
        """Return the payload of a single message; None with `--lines` or `--count`.

        Args:
            bytes_max: The largest payload of this node.
            advice: As for :func:`read_payload`.

        Raises:
            ConfigurationError: Standard input is closed, or larger.
        """
        return None if self.text is None or self.count is not None else read_payload(self.text, bytes_max, advice)

    async def batches(self, bytes_max: int) -> AsyncIterator[list[bytes]]:
        """Yield payloads in groups: copies of the text, or the lines of standard input as they arrive.

        Args:
            bytes_max: The largest payload of this node.

        Raises:
            ConfigurationError: A payload is too large, or standard input cannot be read.
        """
        left = self.count if self.count is not None else 1 if self.text is not None else None
        if self.text is not None:
            payload = read_payload(self.text, bytes_max, "Split it")
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
    """Return the seal for payloads, from the options `--seal-file` and `--seal-name`; None without them.

    Args:
        path: The file with the secret; the first of several generations encrypts.
        name: The name for sealing; None for the name of the cluster.

    Raises:
        ConfigurationError: The file cannot be used, or a name is given without a file.
    """
    if path is None:
        if name is not None:
            raise ConfigurationError("--seal-name needs the file with the secret: --seal-file.")
        return None
    from iris_py import Seal

    return Seal(read_secret_file(path, "--seal-file"), name=name)
