"""``python -m benchmarks.nats``."""

import typer

from benchmarks.nats.cli import main

if __name__ == "__main__":
    typer.run(main)
