"""``python -m benchmarks``."""

import typer

from benchmarks.cli import main

if __name__ == "__main__":
    typer.run(main)
