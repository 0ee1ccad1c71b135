"""Iris without await: a service and its caller as plain functions, and many requests at once.

Run it in two terminals: each one serves, and the requests go to both.
"""

import hashlib
import os

import iris_py.sync as iris


def digest(request: iris.Request) -> bytes:
    """Runs in a thread: it may take its time, and call other services."""
    return f"{hashlib.sha256(request.payload).hexdigest()[:8]} by process {os.getpid()}".encode()


def main() -> None:
    with iris.connect() as node, node.join("digests", digest):
        print("one:", node.request("digests", b"ada", timeout=2.0).decode())

        futures = [node.request_future("digests", name) for name in (b"grace", b"barbara", b"frances")]
        for future in futures:  # all three were under way before the first is waited for
            print("many:", future.result().decode())

        try:
            node.request("nobody", b"")
        except iris.NoMembers as error:
            print("none:", error.cluster)


if __name__ == "__main__":
    main()
