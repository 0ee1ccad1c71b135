"""The commands of `iris`: `iris NAME` is the module NAME, so that only that one is imported to run it.

To add a command, write `iris_py/cli/commands/NAME.py` and enter NAME below. The module has

* `app`: a `typer.Typer()` with the one command NAME, or for `iris NAME ...` a group (`iris_py.cli.options.make_group`);
* the declaration of its options and the text of its help, and nothing else. The command's work is in a module of
  `iris_py.cli`, which the command imports when it runs: help is shown without it.

    app = typer.Typer()


    @app.command(epilog=end_of_help("iris request upper hello"))
    @with_settings
    def request(settings: Settings, cluster: Cluster, json: Json = False) -> int:
        from iris_py.cli import calling

        return execute(lambda: calling.request(...), verbosity=settings.verbose, options=settings.options, is_short=True)

Output follows the rule of `iris_py.cli.output`. A function that has the name of something else, as `version_`, names its
command in `@app.command("version")`. These modules do without `from __future__ import annotations`: typer reads the
annotations.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["COMMANDS"]

#: The commands in the order of `iris --help`, below the headings that they have there.
COMMANDS: Final[Mapping[str, tuple[str, ...]]] = {
    "Messages": ("request", "broadcast", "survey", "tunnel", "publish", "subscribe"),
    "Services": ("node", "join", "serve", "gateway"),
    "Looking": (
        "top",
        "topology",
        "nodes",
        "clusters",
        "topics",
        "ping",
        "trace",
        "monitor",
        "members",
        "doctor",
        "federation",
    ),
    "Settings": ("keys", "config", "completion", "version"),
    "Trying": ("bench", "demo", "simulate"),
}
