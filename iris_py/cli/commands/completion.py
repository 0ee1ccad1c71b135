"""`iris completion`: its options."""

from typing import Annotated

import typer

from iris_py.cli.options import Json
from iris_py.cli.outcome import end_of_help, execute

app = typer.Typer()


@app.command(epilog=end_of_help("iris completion bash > ~/.local/share/bash-completion/completions/iris"))
def completion(
    shell: Annotated[str, typer.Argument(metavar="SHELL", help="bash, zsh or fish.", show_default=False)],
    json: Json = False,
) -> None:
    """Print a script that lets a shell complete commands, options, contexts, and the clusters of the configuration.

    Completion never queries the network. Put the script where your shell looks for completions, or add this line to its start
    file: eval "$(iris completion bash)".
    """

    async def command() -> int:
        from iris_py.cli import completion

        return completion.print_script(shell, as_json=json)

    raise typer.Exit(execute(command))
