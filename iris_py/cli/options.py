"""Arguments and options shared by several commands, and groups of commands."""

import re
from pathlib import Path
from typing import Annotated, Final

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
    "read_duration",
    "show_help_without_command",
    "user_name",
]

_DURATION: Final = re.compile(r"(\d+(?:\.\d+)?) ?(s|m|min|h|d)")
_UNITS_S: Final = {"s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86_400.0}


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


def read_duration(given: str, option: str) -> float:
    """Parse a duration such as ``90s``; return seconds.

    Raises:
        ConfigurationError: The text is not a duration.
    """
    match = _DURATION.fullmatch(given.strip())
    if match is None:
        from iris_py.errors import ConfigurationError

        raise ConfigurationError(f"{option} {given!r} is not a duration. Write 90s, 10m, 2h or 1d.")
    return float(match[1]) * _UNITS_S[match[2]]


def user_name() -> str:
    """Return the name of this user; empty for a user without a name, as in a container with a numeric user."""
    import getpass

    try:
        return getpass.getuser()
    except (KeyError, OSError, ImportError):
        return ""


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
