"""``python -m benchmarks.peers``."""

import typer

from benchmarks.peers.cli import main

if __name__ == "__main__":
    typer.run(main)
