"""Arguments and options shared by several commands, and groups of commands."""

from pathlib import Path
from typing import Annotated

import typer

from iris_py.cli.outcome import EXIT_CODES_HELP, ExitCode

__all__ = [
    "AskTimeout",
    "Cluster",
    "Count",
    "Every",
    "Header",
    "Http",
    "Interval",
    "Json",
    "Limit",
    "LinesOption",
    "OutputFile",
    "Sample",
    "SealFile",
    "SealName",
    "Text",
    "TextOrLines",
    "complete_cluster",
    "make_group",
    "show_help_without_command",
]


def complete_cluster(context: typer.Context, incomplete: str) -> list[str]:
    """Return the locally known clusters that begin with a text."""
    from iris_py.cli.completion import complete_cluster as find

    return find(context.params, incomplete)


Cluster = Annotated[
    str,
    typer.Argument(metavar="NAME", help="Name of the cluster.", show_default=False, autocompletion=complete_cluster),
]
Text = Annotated[str, typer.Argument(metavar="TEXT", help="The payload; - reads standard input.", show_default=False)]
TextOrLines = Annotated[
    str | None,
    typer.Argument(metavar="TEXT", help="The payload; - reads standard input. Not with --lines.", show_default=False),
]
LinesOption = Annotated[
    bool, typer.Option("--lines", metavar="", help="Send each line of standard input as a message, in order.")
]
Count = Annotated[
    int | None, typer.Option(min=1, metavar="N", help="Send TEXT N times; with --lines, the first N lines.", show_default=False)
]
OutputFile = Annotated[
    Path | None,
    typer.Option("--output", metavar="FILE", help="Write to a file instead of standard output.", show_default=False),
]
Json = Annotated[bool, typer.Option("--json", metavar="", help="Print JSON.")]
Header = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME=VALUE", help="A header of the message; repeatable.", show_default=False),
]
Http = Annotated[
    str | None,
    typer.Option(
        metavar="HOST:PORT",
        help="Serve /metrics, /healthz and /readyz at this address; a port alone binds to loopback.",
        show_default=False,
    ),
]
Every = Annotated[
    bool,
    typer.Option("--all", metavar="", help="Query every node, not only a sample. 100,000 nodes take a minute: --timeout 120."),
]
Sample = Annotated[int, typer.Option(min=1, max=4096, metavar="N", help="Number of nodes in a sample.")]
Limit = Annotated[int, typer.Option(min=1, metavar="N", help="Maximum number of lines; the summary counts all.")]
Interval = Annotated[
    float, typer.Option(min=0.0, metavar="SECONDS", help="Time between the two queries; 0 queries once, without rates.")
]
AskTimeout = Annotated[float, typer.Option("--timeout", min=0.001, metavar="SECONDS", help="Timeout of each query.")]
SealFile = Annotated[
    Path | None,
    typer.Option(metavar="PATH", help="File with the secret for sealing payloads end to end.", show_default=False),
]
SealName = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="With --seal-file: the name for sealing, the same on both sides; by default NAME.",
        show_default=False,
    ),
]


def make_group(name: str, help_text: str) -> typer.Typer:
    """Return a group of commands, such as `iris keys`; without a command the group shows its help."""
    group = typer.Typer(name=name, help=help_text, epilog=EXIT_CODES_HELP)
    group.callback(invoke_without_command=True)(show_help_without_command)
    return group


def show_help_without_command(context: typer.Context) -> None:
    """Print the help of a group called without a command, and exit with the code of wrong usage."""
    if context.invoked_subcommand is None:
        print(context.get_help(), end="")
        raise typer.Exit(ExitCode.USAGE)
