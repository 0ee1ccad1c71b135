"""`iris version`: its options."""

import typer

from iris_py.cli.options import Json
from iris_py.cli.outcome import end_of_help

app = typer.Typer()


@app.command("version", epilog=end_of_help("iris version --json"))
def version_(json: Json = False) -> None:
    """Print the versions of Iris, Python and the required packages, for a bug report."""
    if json:
        from iris_py.cli.version import print_version_line  # with the encoder of JSON, a fifth of the time of this command

        print_version_line()
        return
    from iris_py.build import build, python_version
    from iris_py.extras import REQUIRED, version_of

    print(f"iris {build()}", python_version(), *(f"{name} {version_of(name)}" for name in REQUIRED), sep="\n")
