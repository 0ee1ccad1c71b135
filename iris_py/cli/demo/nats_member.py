"""A native member process of `iris demo --nats`: it writes texts in capitals, as the services with a client of NATS do."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from iris_py.cli.demo.member import serve
from iris_py.cli.demo.nats_load import CLUSTER, NATIVE, capitals
from iris_py.cli.outcome import execute

if TYPE_CHECKING:
    from collections.abc import Callable

    import iris_py


def _make_service(_node: iris_py.Node) -> Callable[[iris_py.Request], bytes]:
    """Return the handler: a request is a text, a reply begins with the kind of the service."""
    return lambda request: capitals(NATIVE, request.payload)


if __name__ == "__main__":
    sys.exit(execute(lambda: serve(sys.argv[1], _make_service, cluster=CLUSTER)))
