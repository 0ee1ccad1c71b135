"""``python -m benchmarks.web``."""

import typer

from benchmarks.web.cli import main

if __name__ == "__main__":
    typer.run(main)
