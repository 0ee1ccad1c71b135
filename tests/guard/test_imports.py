"""The modules that a node loads: parsers of files that most nodes do not have stay out of memory."""

from __future__ import annotations

import subprocess
import sys

#: Each takes some hundred KiB of every process.
UNUSED = ("tomllib", "json", "iris_py.federation.toml")
PROGRAM = """
import asyncio, os, sys
import iris_py
from iris_security import Secret

async def main():
    async with iris_py.connect(secret=Secret.generate(os.urandom).text, discovery=False, listen="127.0.0.1:0") as node:
        async with node.join("users", lambda request: b"found"):
            assert await node.request("users", b"7") == b"found"

asyncio.run(main())
print([name for name in sys.argv[1:] if name in sys.modules])
"""


def test_a_node_without_a_file_loads_no_parser_of_files() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM, *UNUSED], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "[]\n"
