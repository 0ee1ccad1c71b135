"""`iris version`: its options."""

import typer

from iris_py.cli.options import Json
from iris_py.cli.outcome import end_of_help

app = typer.Typer()


@app.command("version", epilog=end_of_help("iris version --json"))
def version_(json: Json = False) -> None:
    """Print the versions of Iris, Python and the required packages, for a bug report."""
    from iris_py.cli.version import print_versions

    print_versions(as_json=json)
