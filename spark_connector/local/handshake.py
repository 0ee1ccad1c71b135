"""The beginning of a connection to the agent of an executor: it is found, and both sides say who they are."""

from __future__ import annotations

import os
import socket
import struct
import time
from typing import TYPE_CHECKING

import msgspec

from spark_connector.errors import AgentUnavailable
from spark_connector.local import frames
from spark_connector.local.frames import Failed, FrameReader, MalformedFrame, Welcome, reply_decoder

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["READ_BYTES", "connect"]

#: How often somebody who waits for an agent looks for it (seconds).
POLL_S = 0.05
#: What is read at once: as much as a Unix socket holds.
READ_BYTES = 256 * 1024

_PEER_CREDENTIALS = struct.Struct("3i")  # pid, uid, gid: see unix(7)
#: What an agent may be that is not there yet, or no more.
_NOT_THERE = (FileNotFoundError, ConnectionRefusedError, ConnectionResetError, BrokenPipeError)


def connect(path: Path, reader: FrameReader, timeout_s: float) -> tuple[socket.socket, Welcome]:
    """Connect, and exchange hellos; waits for an agent that is not there yet.

    Args:
        path: The socket.
        reader: Takes what comes after the hellos.
        timeout_s: How long to wait.

    Raises:
        AgentUnavailable: There is no agent, or it is none for this program.
    """
    deadline = time.monotonic() + timeout_s
    while True:
        connection = socket.socket(socket.AF_UNIX)
        try:
            connection.settimeout(max(POLL_S, deadline - time.monotonic()))
            connection.connect(str(path))
            return connection, _shake_hands(connection, path, reader)
        except _NOT_THERE as exc:
            connection.close()
            if time.monotonic() + POLL_S > deadline:
                what = "there is no socket" if isinstance(exc, FileNotFoundError) else "nobody answers at its socket"
                raise AgentUnavailable(str(path), f"{what} after {timeout_s:g} s") from None
            time.sleep(POLL_S)
        except TimeoutError:
            connection.close()
            raise AgentUnavailable(str(path), f"it does not answer within {timeout_s:g} s") from None
        except OSError as exc:
            connection.close()
            raise AgentUnavailable(str(path), f"its socket cannot be used: {exc.strerror or exc}") from None
        except BaseException:
            connection.close()
            raise


def _shake_hands(connection: socket.socket, path: Path, reader: FrameReader) -> Welcome:
    if hasattr(socket, "SO_PEERCRED"):
        _pid, user, _group = _PEER_CREDENTIALS.unpack(
            connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER_CREDENTIALS.size)
        )
        if user != os.getuid():
            raise AgentUnavailable(str(path), f"its socket belongs to user {user}, and this process to {os.getuid()}")
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


def _receive(connection: socket.socket) -> bytes:
    data = connection.recv(READ_BYTES)
    if not data:
        raise ConnectionResetError
    return data
