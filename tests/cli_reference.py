"""The reference of the command line, made from the code: docs/cli.md, and a JSON Schema of the output of each command.

``python -m tests.cli_reference`` writes both anew; tests/unit/iris_py/cli/test_reference.py fails where they are stale.
"""

from __future__ import annotations

import importlib
import inspect
import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Union, cast

import msgspec
from typer.main import get_command

import iris_py.cli
from iris_py.cli.app import make_app
from iris_py.cli.commands import COMMANDS
from iris_py.cli.outcome import EXIT_CODES_HELP
from iris_py.cli.settings import PANEL

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from msgspec import Struct

__all__ = ["PAGE", "SCHEMAS", "all_commands", "find_lines", "make_page", "make_schemas"]

ROOT: Final = Path(__file__).parent.parent
PAGE: Final = ROOT / "docs" / "cli.md"
SCHEMAS: Final = ROOT / "docs" / "schemas"
HEAD: Final = """\
# Command line

<!-- Made from the code by `make reference`: change the help of the command, not this page. -->

`iris COMMAND --help` shows what stands here. `python -m iris_py` is `iris`.

## Output

With `--json` every command prints JSON Lines: one object per line, each with its `kind`, flushed at once. A command that
gathers ends with a line of the kind `summary`. Bytes are `payload` where they are text in UTF-8, else `payload_base64`. The
folder `docs/schemas` has a JSON Schema for the lines of each command; fields may be added, and never change their meaning.

Without `--json`, rows are a table on a terminal, and aligned columns without a head elsewhere: for `grep` and `awk`. `NO_COLOR`
is heeded. Errors and remarks are lines on standard error that begin with `iris: `. A command that runs until it is stopped,
such as `iris join`, begins them with the time in UTC, the level and the event: `2026-11-27T17:32:11.297Z INFO running: ...`.

"""


def all_commands() -> Iterator[tuple[str, Any]]:
    """Yield each command by its name, as ``keys new``, in the order of the help."""
    root = cast("Any", get_command(make_app()))
    for name, command in root.commands.items():
        if hasattr(command, "commands"):
            yield from ((f"{name} {inner}", each) for inner, each in command.commands.items())
        else:
            yield name, command


def find_lines() -> Mapping[str, tuple[type[Struct], ...]]:
    """Return the kinds of lines of each command, from the modules that print them."""
    folder = Path(iris_py.cli.__file__).parent
    found: dict[str, tuple[type[Struct], ...]] = {}
    for path in sorted(folder.rglob("*.py")):
        if re.search(r"^LINES: Final\[Lines\]", path.read_text(), re.MULTILINE):
            module = importlib.import_module(".".join(("iris_py.cli", *path.relative_to(folder).with_suffix("").parts)))
            for command, kinds in module.LINES.items():
                found[command] = found.get(command, ()) + kinds
    return found


def make_schemas() -> Mapping[str, str]:
    """Return the text of each JSON Schema by the name of its file."""
    return {f"{command.replace(' ', '-')}.json": _schema(command, kinds) for command, kinds in sorted(find_lines().items())}


def _schema(command: str, kinds: tuple[type[Struct], ...]) -> str:
    union: Any = Union[kinds]  # noqa: UP007 - of as many as there are
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": f"A line of iris {command} --json"}
    return json.dumps(head | msgspec.json.schema(union), indent=2) + "\n"


def make_page() -> str:
    """Return the text of docs/cli.md."""
    lines, commands = find_lines(), dict(all_commands())
    parts = [HEAD, _exit_codes(), _common(next(iter(commands.values())))]
    for heading, names in COMMANDS.items():
        parts.append(f"## {heading}\n\n")
        for name, command in commands.items():
            if name.split()[0] in names:
                parts.append(_section(name, command, lines.get(name, ())))
    return "".join(parts).rstrip() + "\n"


def _exit_codes() -> str:
    codes = re.findall(r"(\d+) ([^;]+?)(?:;|\.$)", EXIT_CODES_HELP)
    rows = "".join(
        f"| {code} | {_cell(meaning)} |\n" for code, meaning in [*codes, ("141", "whoever read the output has gone")]
    )
    return f"## Exit codes\n\n| code | meaning |\n|---|---|\n{rows}\n"


def _common(command: Any) -> str:
    options = "".join(map(_row, _options(command, is_common=True)))
    text = "Every command that starts a node has these. A variable of the environment or a file can say the same."
    return f"## Options of the node\n\n{text}\n\n| option | meaning |\n|---|---|\n{options}\n"


def _section(name: str, command: Any, kinds: tuple[type[Struct], ...]) -> str:
    arguments = [each for each in command.params if each.param_type_name == "argument" and not each.hidden]
    usage = " ".join([f"iris {name}", "[OPTIONS]", *map(_argument, arguments)])
    text = inspect.cleandoc(command.help).replace("<", "&lt;")
    parts = [f"### iris {name}\n\n{text}\n\n```text\n{usage}\n\n"]
    parts += [f"{example}\n" for example in examples_of(command)]
    parts.append("```\n\n")
    rows = [f"| `{_argument(each)}` | {_cell(each.help or '')} |\n" for each in arguments]
    rows += map(_row, _options(command, is_common=False))
    if rows:
        parts.append("| argument or option | meaning |\n|---|---|\n" + "".join(rows) + "\n")
    if _options(command, is_common=True):
        parts.append("And the [options of the node](#options-of-the-node).\n\n")
    if command.epilog and not command.epilog.endswith(EXIT_CODES_HELP):
        parts.append(command.epilog.rpartition("\n\n")[2] + "\n\n")
    if kinds:
        named = "; ".join(f"`{kind.__struct_config__.tag}`: {_first_line(kind)}" for kind in kinds)
        parts.append(f"Lines of `--json` ([schema](schemas/{name.replace(' ', '-')}.json)): {named}\n\n")
    return "".join(parts)


def examples_of(command: Any) -> list[str]:
    """Return the command lines that a help shows."""
    paragraphs = (command.epilog or "").replace("\\[", "[").split("\n\n")
    return [each.removeprefix("Example: ") for each in paragraphs if each.startswith("Example: ")]


def _first_line(kind: type[Struct]) -> str:
    return _cell(inspect.cleandoc(kind.__doc__ or "").splitlines()[0].rstrip("."))


def _options(command: Any, *, is_common: bool) -> list[Any]:
    options = [each for each in command.params if each.param_type_name == "option" and not each.hidden]
    return [each for each in options if (getattr(each, "rich_help_panel", None) == PANEL) is is_common]


def _argument(argument: Any) -> str:
    name = argument.metavar or argument.name.upper()
    return name if argument.required else f"[{name}]"


def _row(option: Any) -> str:
    names = ", ".join(f"`{name}`" for name in sorted([*option.opts, *option.secondary_opts], key=len, reverse=True))
    value = f" `{_cell(option.metavar)}`" if option.metavar else ""
    is_said = option.show_default and option.default not in (None, False, 0) and not option.is_flag and not option.multiple
    default = f" Default: {option.default}." if is_said else ""
    return f"| {names}{value} | {_cell(option.help or '')}{default} |\n"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")


def main() -> None:
    """Write page and schemas."""
    SCHEMAS.mkdir(exist_ok=True)
    schemas = make_schemas()
    for path in SCHEMAS.glob("*.json"):
        if path.name not in schemas:
            path.unlink()
    for name, text in schemas.items():
        (SCHEMAS / name).write_text(text)
    PAGE.write_text(make_page())


if __name__ == "__main__":
    main()
