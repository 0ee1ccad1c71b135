"""``python -m benchmarks.federation``."""

import typer

from benchmarks.federation.cli import main

if __name__ == "__main__":
    typer.run(main)
