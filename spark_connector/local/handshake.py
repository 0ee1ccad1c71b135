"""The beginning of a connection to the agent of an executor: it is found, and both sides say who they are."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import msgspec

from spark_connector.errors import AgentUnavailable, PathNotPrivate
from spark_connector.local import frames, sockets
from spark_connector.local.frames import Failed, FrameReader, MalformedFrame, Welcome, reply_decoder
from spark_connector.local.private_directory import PrivateDirectory

if TYPE_CHECKING:
    import socket
    from pathlib import Path

__all__ = ["READ_BYTES", "connect"]

#: How often somebody who waits for an agent looks for it (seconds).
POLL_S = 0.05
#: What is read at once: as much as a Unix socket holds.
READ_BYTES = 256 * 1024

#: What an agent may be that is not there yet, or no more.
_NOT_THERE = (FileNotFoundError, ConnectionRefusedError, ConnectionResetError, BrokenPipeError)


def connect(path: Path, reader: FrameReader, timeout_s: float) -> tuple[socket.socket, Welcome]:
    """Connect, and exchange hellos; waits for an agent that is not there yet.

    Args:
        path: The socket. Its directory and the one above that are to be this user's alone.
        reader: Takes what comes after the hellos.
        timeout_s: How long to wait.

    Raises:
        AgentUnavailable: There is no agent, it is none for this program, or its place is not this user's alone.
    """
    deadline = time.monotonic() + timeout_s
    while True:
        connection = None
        try:
            with PrivateDirectory.open_both(path.parent) as directory:
                connection = sockets.connect(directory, path.name, max(POLL_S, deadline - time.monotonic()))
            return connection, _shake_hands(connection, path, reader)
        except _NOT_THERE as exc:
            _close(connection)
            if time.monotonic() + POLL_S > deadline:
                what = "there is no socket" if isinstance(exc, FileNotFoundError) else "nobody answers at its socket"
                raise AgentUnavailable(str(path), f"{what} after {timeout_s:g} s") from None
            time.sleep(POLL_S)
        except TimeoutError:
            _close(connection)
            raise AgentUnavailable(str(path), f"it does not answer within {timeout_s:g} s") from None
        except OSError as exc:
            _close(connection)
            raise AgentUnavailable(str(path), f"its socket cannot be used: {exc.strerror or exc}") from None
        except (PathNotPrivate, sockets.ForeignPeer) as exc:
            raise AgentUnavailable(str(path), str(exc).rstrip(".")) from exc
        except BaseException:
            _close(connection)
            raise


def _shake_hands(connection: socket.socket, path: Path, reader: FrameReader) -> Welcome:
    connection.sendall(frames.HELLO.pack(frames.MAGIC, frames.VERSION))
    hello = b""
    while len(hello) < frames.HELLO.size:
        hello += _receive(connection)
    magic, version = frames.HELLO.unpack_from(hello)
    if magic != frames.MAGIC:
        raise AgentUnavailable(str(path), "what answers at its socket is no agent")
    if version != frames.VERSION:
        raise AgentUnavailable(
            str(path),
            f"it speaks version {version} of the local protocol, and this task version {frames.VERSION}; "
            "install the same release of Iris on the driver and on all executors",
        )
    data = hello[frames.HELLO.size :]
    try:
        while not (received := reader.feed(data)):
            data = _receive(connection)
        reply = reply_decoder.decode(received[0][1])
    except (MalformedFrame, msgspec.MsgspecError) as exc:
        raise AgentUnavailable(str(path), f"it does not say what it is: {exc}") from None
    if type(reply) is Failed:
        raise AgentUnavailable(str(path), reply.text.rstrip("."))
    if type(reply) is not Welcome:
        raise AgentUnavailable(str(path), "it does not say what it is")
    return reply


def _close(connection: socket.socket | None) -> None:
    if connection is not None:
        connection.close()


def _receive(connection: socket.socket) -> bytes:
    data = connection.recv(READ_BYTES)
    if not data:
        raise ConnectionResetError
    return data
