"""A member process of `iris demo --web`: it answers with the price of a symbol, and takes more or less time for it."""

from __future__ import annotations

import os
import sys
import time
from typing import TYPE_CHECKING, Final

import msgspec

from iris_py.cli.demo.member import serve
from iris_py.cli.demo.web_market import CLUSTER, Quote, load_of, price_of
from iris_py.cli.outcome import execute

if TYPE_CHECKING:
    from collections.abc import Callable

    import iris_py

#: Time that a member takes for an answer (seconds), lowest and highest. Too large: three members are too few for the requests.
WORK_S: Final = (0.002, 0.02)


def _make_quoter(node: iris_py.Node) -> Callable[[iris_py.Request], bytes]:
    """Return the handler: a request is a symbol, a reply is a :class:`Quote`."""
    process = os.getpid()

    def quote(request: iris_py.Request) -> bytes:
        least, most = WORK_S
        time.sleep(least + (most - least) * load_of(time.monotonic() + process))  # each member at its own times
        symbol = request.payload.decode()
        return msgspec.json.encode(Quote(symbol, price_of(symbol, time.time()).price, node.id, process))

    return quote


if __name__ == "__main__":
    sys.exit(execute(lambda: serve(sys.argv[1], _make_quoter, cluster=CLUSTER)))
