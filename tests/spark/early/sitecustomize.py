"""Connects a Python process of Spark to Java before it imports anything: Python runs this module when it starts.

A process that plans or reads a stream connects to Java after its imports, which take a second of processor time. Java waits
10 s for it, and 10 s for its secret, and then fails the query with "Python worker failed to connect back"; no setting changes
that. On a busy machine the imports take longer. Here the process connects and says its secret first. When it gets to that
itself, it finds the connection, and what it says is left out.

Spark's daemons of processes that plan import what these need before they fork them: see ``warm_daemon.py``.
"""

from __future__ import annotations

import os
import socket
import sys


def _connect_early(port: int, secret: bytes) -> None:
    address = ("127.0.0.1", port)
    early, connect, write = socket.create_connection(address), socket.socket.connect, socket.SocketIO.write
    early.sendall(len(secret).to_bytes(4, "big") + secret)

    def take_early(sock: socket.socket, target: tuple[str, int]) -> None:
        if target == address:
            os.dup2(early.fileno(), sock.fileno(), inheritable=False)
            early.close()
            socket.socket.connect = connect  # type: ignore[method-assign]
            socket.SocketIO.write = leave_out  # type: ignore[assignment,method-assign]
        else:
            connect(sock, target)

    def leave_out(_stream: socket.SocketIO, data: bytes) -> int:
        socket.SocketIO.write = write  # type: ignore[method-assign]
        return len(data)

    socket.socket.connect = take_early  # type: ignore[assignment,method-assign]


# The daemon, which forks the processes of tasks, has no such variable: Java reads the daemon's output instead of waiting.
if "PYTHON_WORKER_FACTORY_PORT" in os.environ:
    _connect_early(int(os.environ["PYTHON_WORKER_FACTORY_PORT"]), os.environ["PYTHON_WORKER_FACTORY_SECRET"].encode())
elif "pyspark.daemon" in sys.orig_argv:
    from tests.spark.warm_daemon import import_for_plans

    import_for_plans()
