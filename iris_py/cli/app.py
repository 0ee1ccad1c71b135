"""The command `iris` itself: passes the command line to a module of `iris_py.cli.commands`, and explains mistakes."""

import inspect
import os
import sys
from collections.abc import Collection, Sequence
from contextlib import suppress
from importlib import import_module
from types import ModuleType
from typing import Annotated, Final, cast

import typer
from typer.main import get_command, get_command_name

from iris_py.cli.commands import COMMANDS
from iris_py.cli.conversion import convert_plainly
from iris_py.cli.options import show_help_without_command
from iris_py.cli.outcome import EXIT_CODES_HELP, ExitCode, complain
from iris_py.cli.standard_error import wants_json, writing_json

__all__ = ["make_app", "run"]

#: The variable by which the scripts of `iris completion` ask for completions, without arguments.
_COMPLETION: Final = "_IRIS_COMPLETE"
#: Modules of rich that the help of typer imports, for texts in Markdown and for exceptions, each with the class that it names.
#: The help of `iris` has neither; these modules, with their parsers and colours of source code, would take a third of its time.
_NOT_SHOWN: Final = {"rich.markdown": "Markdown", "rich.traceback": "Traceback"}

# Click's class for all mistakes on a command line. The module of the class varies: recent versions of typer contain a copy
# of click.
_UsageError: Final = cast("type[Exception]", typer.BadParameter.__bases__[0])


def run(arguments: Sequence[str]) -> int:
    """Run the `iris` command with these arguments.

    Args:
        arguments: The arguments without the program's name.

    Returns:
        The exit code.
    """
    with writing_json(wants_json(arguments)):
        return _run(arguments)


def _run(arguments: Sequence[str]) -> int:
    is_known = any(arguments[:1] == [name] for names in COMMANDS.values() for name in names)
    is_help = list(arguments) in ([], ["--help"], ["-h"]) and _COMPLETION not in os.environ
    if is_help or not {"--help", "-h"}.isdisjoint(arguments):
        _load_help()
    try:
        command = get_command(make_app(arguments[:1] if is_known else None, is_overview=is_help))
        convert_plainly(command)
        outcome = command(list(arguments), standalone_mode=False, prog_name="iris")
        return outcome if isinstance(outcome, int) else ExitCode.OK
    except typer.Abort:
        return ExitCode.INTERRUPTED
    except _UsageError as exc:
        return _explain_usage(exc)


def _load_help() -> None:
    """Import the help of typer with empty classes in place of those that no help of `iris` shows."""
    if "typer.rich_utils" in sys.modules:
        return
    stand_ins = {name: ModuleType(name) for name in _NOT_SHOWN if name not in sys.modules}
    for name, module in stand_ins.items():
        setattr(module, _NOT_SHOWN[name], type(_NOT_SHOWN[name], (), {}))
    sys.modules.update(stand_ins)
    with suppress(ImportError):  # another version of typer, which imports other names of them
        import_module("typer.rich_utils")
    for name in stand_ins:
        del sys.modules[name]


def make_app(wanted: Collection[str] | None = None, *, is_overview: bool = False) -> typer.Typer:
    """Make the command line of `iris` with some or all of its commands.

    Args:
        wanted: The names of the commands to declare; None for all. `run` passes only the command it runs, because declaring all
            of them would delay the start by the time of a request.
        is_overview: Whether only the help of `iris` itself will be shown. Then the commands have no options.
    """
    app = typer.Typer(
        name="iris",
        help="Send requests and broadcasts to clusters by name: no broker, no addresses, always encrypted.",
        epilog=EXIT_CODES_HELP,
        rich_markup_mode="rich",
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["--help", "-h"]},
    )
    app.callback(invoke_without_command=True)(_root)
    for heading, names in COMMANDS.items():
        for name in names:
            if wanted is None or name in wanted:
                part: typer.Typer = import_module(f"iris_py.cli.commands.{name}").app
                if is_overview:
                    _add_without_options(app, part, heading)
                else:
                    _add(app, part, heading)
    return app


def _add_without_options(app: typer.Typer, part: typer.Typer, heading: str) -> None:
    if part.info.name:
        app.command(part.info.name, help=part.info.help, rich_help_panel=heading)(_do_nothing)
        return
    for command in part.registered_commands:
        assert command.callback is not None
        name = command.name or get_command_name(command.callback.__name__)
        text = command.help or inspect.getdoc(command.callback)
        app.command(name, help=text, short_help=command.short_help, hidden=command.hidden, rich_help_panel=heading)(_do_nothing)


def _do_nothing() -> None: ...


def _add(app: typer.Typer, part: typer.Typer, heading: str) -> None:
    if part.info.name:
        app.add_typer(part, rich_help_panel=heading)
        return
    for command in part.registered_commands:
        command.rich_help_panel = heading
    app.add_typer(part)


def _explain_usage(error: BaseException) -> int:
    """Print one line with the mistake in the command line and the `--help` to read; return the exit code."""
    context = getattr(error, "ctx", None)
    path = context.command_path if context is not None else "iris"
    text = error.format_message() if hasattr(error, "format_message") else str(error)
    complain(f"{text if text.endswith(('.', '?')) else f'{text}.'} See `{path} --help`.")
    return ExitCode.USAGE


def _print_version(is_wanted: bool) -> None:
    if is_wanted:
        from iris_py.build import build

        print(f"iris {build()}")
        raise typer.Exit


def _root(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", "-V", callback=_print_version, is_eager=True, metavar="", help="Print the version.")
    ] = False,
) -> None:
    show_help_without_command(context)
