"""A member process of `iris demo --federation`, started with ``ADDRESS NETWORK CLUSTER``.

It is the same as a member of `iris demo`, in the far cloud. Its replies also name the gateway of that cloud that passed the
request on.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from iris_py.cli.demo.lexer import count
from iris_py.cli.demo.member import serve
from iris_py.cli.outcome import execute

if TYPE_CHECKING:
    from collections.abc import Callable

    import iris_py


def _make_counter(node: iris_py.Node) -> Callable[[iris_py.Request], bytes]:
    """Return the handler: a request is the content of a file, a reply has the ids of member and gateway, and the totals."""
    own = bytes.fromhex(node.id)
    return lambda request: own + bytes.fromhex(request.source) + count(request.payload).encode()


if __name__ == "__main__":
    sys.exit(execute(lambda: serve(sys.argv[1], _make_counter, *sys.argv[2:4])))
