"""The module that a Python process of Spark runs first: it connects at once, however long the imports take."""

from __future__ import annotations

import os
import socket
import subprocess
import sys

from tests.spark.conftest import python_path

#: For anything to happen on a busy machine.
PATIENCE_S = 60.0
SECRET = "s" * 32
PROGRAM = f"""
import sys
sys.stdin.readline()  # what the imports of a process would take
from pyspark.util import local_connect_and_auth
stream, _sock = local_connect_and_auth(int(sys.argv[1]), {SECRET!r})
stream.write(b"connected")
stream.flush()
"""


def test_a_process_is_connected_before_it_has_imported_anything() -> None:
    with socket.create_server(("127.0.0.1", 0)) as java:
        java.settimeout(PATIENCE_S)
        port = str(java.getsockname()[1])
        environ = {
            **os.environ,
            "PYTHONPATH": python_path(),
            "PYTHON_WORKER_FACTORY_PORT": port,
            "PYTHON_WORKER_FACTORY_SECRET": SECRET,
        }
        with subprocess.Popen([sys.executable, "-c", PROGRAM, port], stdin=subprocess.PIPE, env=environ) as process:
            connection, _address = java.accept()
            connection.settimeout(PATIENCE_S)
            with connection, connection.makefile("rwb") as stream:
                assert stream.read(4 + len(SECRET)) == len(SECRET).to_bytes(4, "big") + SECRET.encode()
                assert process.stdin is not None
                process.stdin.write(b"\n")  # it has waited for that until now
                process.stdin.close()
                stream.write(b"\0\0\0\2ok")
                stream.flush()
                assert stream.read() == b"connected"
            assert process.wait(PATIENCE_S) == 0
        java.settimeout(0.0)
        try:
            java.accept()
        except BlockingIOError:
            return
        raise AssertionError("the process has connected twice")
