"""The commands of `iris`: `iris NAME` is the module NAME, so running a command imports only its own module.

To add a command, write `iris_py/cli/commands/NAME.py` and enter NAME below. The module has

* `app`: a `typer.Typer()` with the single command NAME, or for `iris NAME ...` a group (`iris_py.cli.options.make_group`);
* only the options and the help text. The work is in a module of `iris_py.cli`, imported when the command runs and not for its
  help.

    app = typer.Typer()


    @app.command(epilog=end_of_help("iris request upper hello"))
    @with_settings
    def request(settings: Settings, cluster: Cluster, json: Json = False) -> int:
        from iris_py.cli import request

        return execute(lambda: request.request(...), verbosity=settings.verbose, options=settings.options, is_short=True)

Output follows the rules of `iris_py.cli.output`. A function with another name than its command, such as `version_`, names the
command in `@app.command("version")`. These modules omit `from __future__ import annotations`, because typer reads the
annotations.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["COMMANDS"]

#: The commands in the order of `iris --help`, under their headings there.
COMMANDS: Final[Mapping[str, tuple[str, ...]]] = {
    "Messages": ("request", "broadcast", "survey", "tunnel", "publish", "subscribe"),
    "Services": ("node", "join", "serve", "gateway", "door"),
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
    "Settings": ("keys", "token", "config", "completion", "version"),
    "Trying": ("bench", "demo", "simulate"),
}
