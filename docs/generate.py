"""Write what these pages say of the code and of benchmarks: settings, errors and exit codes, and the figures of the comparison.

``python docs/generate.py`` writes them. A test fails while they are not what it would write.
"""

from __future__ import annotations

import ast
import inspect
import re
from dataclasses import MISSING, fields
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

import iris_py
from iris_py.cli.outcome import EXIT_CODES_HELP, ExitCode, exit_code
from iris_py.config import Config
from iris_py.doors.counts import DoorStatistics
from iris_py.metrics.families import BUCKETS, NAMES_MAX, Families
from iris_py.observe import histogram as histogram_module
from iris_py.observe import journal as journal_module
from iris_py.observe import statistics as statistics_module
from iris_py.observe.histogram import upper_s
from iris_py.observe.journal import KINDS
from iris_py.observe.statistics import Statistics
from iris_py.servers.metrics import door_families
from iris_py.settings.table import SETTINGS, VARIABLES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from types import ModuleType

    from iris_py.metrics.families import Family

HERE: Final = Path(__file__).parent
MADE: Final = "<!-- Made by docs/generate.py from the code: change that, and run it. -->"

SETTINGS_HEAD: Final = """\
# Settings

{made}

A node works without any setting: it then belongs to the network of its user on this machine. You can give each setting in four
ways, in this order of precedence:

1. an argument of `iris_py.connect()`, or an option of the command line,
2. a variable of the environment, `IRIS_*`,
3. a key of the file `iris.toml`, in `$XDG_CONFIG_HOME/iris` or `~/.config/iris` (`config=` or `IRIS_CONFIG` names another),
4. the default.

`iris config show` prints each setting and its source: the option, the variable, or the file and the line. A `Config` given as
`config=` replaces 2 and 3: the other arguments override it, and the node reads neither variables nor the file.

`secret`, `secret_file`, `secret_command` and `keyring` are alternatives: the first source that sets one of them decides, and
one source may set only one of them. A keyring also sets the network's name, the secrets of clusters, `strict` and
`administrator`. The node then ignores these settings in lower sources, and refuses a contradiction in the same source.
Secrets of clusters come from all sources together, and for each cluster the first source wins; a function that returns None
leaves the cluster to the next source. An empty variable counts as not set, but an empty secret is an error. An unknown
variable `IRIS_*` causes a warning, an unknown key of the file an error.

With a secret, a node needs no directory. It runs even if `HOME` is not set, is not writable, or belongs to another user,
as in containers. Such a node does not remember peers, and finds others by seeds and beacons. With an administrator, set
`XDG_STATE_HOME` to a directory that outlives the process: the node stores the administrator's signed steps there.

[More than one machine](../how-to/machines.md) shows the usual settings in use.

| argument | variable | key of the file | option | default |
|---|---|---|---|---|
"""

#: The systems of the comparison, and what the benchmarks call them. Of two ways to use one, the better counts.
COMPARED: Final = {
    "**Iris**": ("iris",),
    "ZeroMQ": ("pyzmq", "pyzmq-asyncio"),
    "NNG": ("pynng", "pynng-asyncio"),
    "NATS": ("nats",),
    "Zenoh": ("zenoh",),
    "Redis": ("redis",),
    "gRPC": ("grpcio",),
    "raw TCP": ("tcp",),
}
#: The rows: what it is, and where it stands in the benchmarks.
FIGURES: Final = (
    ("messages of 64 B to one subscriber, /s", "stream: 64 B", "received, /s"),
    ("messages of 1 KiB, /s", "stream: 1 KiB", "received, /s"),
    ("messages of 16 KiB, /s", "stream: 16 KiB", "received, /s"),
    ("messages of 1 MiB, /s", "stream: 1 MiB", "received, /s"),
    ("1 KiB to 8 subscribers, deliveries/s", "fan-out: 8 subscribers", "delivered, /s"),
    ("1 KiB to 64 subscribers, deliveries/s", "fan-out: 64 subscribers", "delivered, /s"),
    ("a lone request of 1 KiB, median, us", "request: 1 caller", "p50, us"),
    ("64 callers, replies/s", "request: 64 callers", "replies, /s"),
    ("1,000 callers, replies/s", "request: 1,000 callers", "replies, /s"),
    ("1,000 callers, p99, ms", "request: 1,000 callers", "p99, ms"),
    ("a survey of 64 members, median, ms", "survey: 64 members", "p50, ms"),
    ("a connection with flow control, 256 KiB messages, MB/s", "tunnel: 256 KiB", "bytes, MB/s"),
    ("from the start of a process to its first reply, ms", "start-up: first reply", "first reply after, ms"),
    ("memory of a serving process, with its server, MiB", "memory: links", "a process that serves, with its server, MiB"),
)
FIGURES_BEGIN: Final = "<!-- figures: made by docs/generate.py from benchmarks.md -->"
FIGURES_END: Final = "<!-- end of figures -->"

ERRORS_HEAD: Final = """\
# Errors and exit codes

{made}

Every error of Iris is an `IrisError`. Its text gives the cause and the remedy; its attributes are in
[the reference of the package](python.md#errors). A command of `iris` prints the error in one line on standard error, and exits
with the code in the table.

Errors can be pickled and copied, so they pass between processes of `multiprocessing.Pool`, `ProcessPoolExecutor` or Spark.
The copy keeps type, text, attributes, notes and cause. An `iris_py.errors.UnpicklableCause` with type and text replaces a
cause that cannot be pickled, or cannot be loaded in the other process. The traceback is lost, as with every Python exception;
the pools of the standard library put its text in place of the cause.

| error | meaning | exit code of a command |
|---|---|---|
"""


def settings_page() -> str:
    """Return the page of the settings: the arguments of ``connect()``, in its order."""
    about = arguments_of(iris_py.connect)
    hints = inspect.signature(iris_py.connect).parameters
    defaults = {field.name: field.default for field in fields(Config)}
    settings = {setting.name: setting for setting in SETTINGS}
    page = SETTINGS_HEAD.format(made=MADE)
    details = []
    for name, text in about.items():
        setting = settings.get(name)
        has_option, has_key = (setting.option is not None, setting.is_key) if setting is not None else (True, False)
        option = f"`{setting.option_name if setting is not None else f'--{name}'}`" if has_option else ""
        variable = VARIABLES.get(name, "")
        key = f"`{name}`" if has_key else ""
        default = defaults.get(name, MISSING)
        shown = "" if default is MISSING or default is None or default == () else f"`{shown_default(default)}`"
        page += f"| [`{name}`](#{name}) | {variable and f'`{variable}`'} | {key} | {option} | {shown} |\n"
        details.append(f"## `{name}`\n\n{plain(text)}\n\nType: `{shown_type(str(hints[name].annotation))}`\n")
    return page + "\n" + "\n".join(details)


def errors_page() -> str:
    """Return the page of errors and exit codes."""
    page = ERRORS_HEAD.format(made=MADE)
    for name in iris_py.__all__:
        kind = getattr(iris_py, name)
        if isinstance(kind, type) and issubclass(kind, iris_py.IrisError):
            error = kind.__new__(kind)  # without its attributes, which the code does not depend on, but for this one:
            vars(error).setdefault("type", "")
            code = exit_code(error)
            page += f"| `{name}` | {plain(first_paragraph(kind))} | {int(code)} |\n"
    page += "\n## Exit codes\n\n| code | name | meaning |\n|---|---|---|\n"
    meanings = dict(re.findall(r"\b(\d+) ([^;.]+)", EXIT_CODES_HELP))
    for code in ExitCode:
        meaning = meanings.get(str(int(code)), "the reader of the output closed it" if code == ExitCode.BROKEN_PIPE else "")
        page += f"| {int(code)} | `{code.name}` | {meaning} |\n"
    return page


def comparison_page() -> str:
    """Return the page of the comparison with the figures that are in the benchmarks now."""
    tables = tables_of((HERE / "benchmarks.md").read_text())
    lines = ["", f"| | {' | '.join(COMPARED)} |", "|---|" + "--:|" * len(COMPARED)]
    for what, case, column in FIGURES:
        best = max if column.endswith("/s") else min
        found = [[value for name in names if (value := tables[case][column].get(name))] for names in COMPARED.values()]
        lines.append(f"| {what} | {' | '.join(best(values, key=number, default='') for values in found)} |")
    head, rest = (HERE / "comparison.md").read_text().split(FIGURES_BEGIN)
    tail = rest.split(FIGURES_END)[1]
    return "\n".join([head + FIGURES_BEGIN, *lines, "", FIGURES_END + tail])


def tables_of(text: str) -> dict[str, dict[str, dict[str, str]]]:
    """Return the medians of the benchmarks: by section and case, by column, and by system."""
    found: dict[str, dict[str, dict[str, str]]] = {}
    section, case, columns = "", "", list[str]()
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")] if line.startswith("|") else []
        if line.startswith("## "):
            section = line.removeprefix("## ")
        if not cells:
            columns = []
        elif not columns:
            case, columns = f"{section}: {cells[0]}", cells[1:]
        else:
            system = cells[0].strip("*")
            for column, cell in zip(columns, cells[1:], strict=True):
                found.setdefault(case, {}).setdefault(column, {})[system] = cell.partition(" (")[0]
    return found


def number(text: str) -> float:
    return float(text.replace(",", ""))


METRICS_HEAD: Final = """\
# Metrics and events of the log

{made}

[Metrics and health](../metrics.md) explains how to read these, and [the runbook](../runbook.md) what to do when an alert fires.

Labels have bounds. `cluster` is one of the first {names} names that a node has used, and `_other` for all further names;
`topic` is likewise the first token of topics. Reasons, events, outcomes and tables come from fixed lists. No label is an id,
an address or a whole topic. Histograms have buckets up to {bounds} s.

## Metrics of a node

| metric | kind | labels | meaning |
|---|---|---|---|
"""

DOORS_HEAD: Final = """
## Metrics of a door

[A door](../how-to/door.md#metrics-and-health) has these besides. `kind` is `web`. Operations, problems and reasons come from
the code; no label is a client or a name.

| metric | kind | labels | meaning |
|---|---|---|---|
"""

EVENTS_HEAD: Final = """
Gateways also have the metrics of [federation](../federation.md#metrics).

## Events of the log

The event is `record.iris["event"]` of a record of the loggers `iris_py`, and `event` of a line of `--log-json`. Of each event
ten lines are logged in a minute; the next one has `suppressed`, the number of omitted lines. The logger
`iris_py.federation.audit` has all [events of audits](../federation.md#audit).

| event | level | text |
|---|---|---|
"""


def metrics_page() -> str:
    """Return the page of the metrics and of the events of the log."""
    bounds = ", ".join(f"{upper_s(bucket):.2g}" for bucket in BUCKETS)
    page = METRICS_HEAD.format(made=MADE, names=NAMES_MAX, bounds=bounds)
    page += rows_of(Families().collect(Statistics()))
    page += DOORS_HEAD + rows_of(door_families(DoorStatistics(kind="web")))
    page += EVENTS_HEAD
    for event, level, text in sorted(set(log_lines())):
        page += f"| `{event}` | {level} | {text.replace('|', '')} |\n"
    return page


def rows_of(families: Iterable[Family]) -> str:
    """Return a row for each metric, by name."""
    return "".join(
        f"| `{each.name}` | {each.kind} | {', '.join(each.labels)} | {each.help.removesuffix('.')} |\n"
        for each in sorted(families, key=lambda family: family.name)
    )


def log_lines() -> Iterator[tuple[str, str, str]]:
    """Return the event, the level and the message of each line that Iris logs, from its source."""
    for path in sorted((HERE.parent / "iris_py").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and len(node.args) > 1:
                owner, level, (event, message, *_rest) = node.func.value, node.func.attr, node.args
                if isinstance(owner, ast.Name) and owner.id.endswith("logger") and isinstance(message, ast.Constant):
                    choices = [each.value for each in ast.walk(event) if isinstance(each, ast.Constant)]
                    text = re.sub(r"%(\.\d)?[a-z]", "...", str(message.value)).strip()
                    yield from ((str(choice), level, text) for choice in choices if choice)


STATISTICS_HEAD: Final = """\
# Statistics and events

{made}

`node.statistics()` returns the first of these; [Numbers and events of a node](../statistics.md) explains how to read them.
Counters start with the node and never fall; a field that says "now" is a current value. Durations are in seconds.
"""


def statistics_page() -> str:
    """Return the page of the statistics, each with its fields, and of the kinds of events."""
    page = STATISTICS_HEAD.format(made=MADE)
    for struct, described in (*structs_of(statistics_module), *structs_of(histogram_module), *structs_of(journal_module)):
        page += f"\n## `{struct.__name__}`\n\n{plain(first_paragraph(struct))}\n\n| field | type | meaning |\n|---|---|---|\n"
        for name, (annotation, text) in described.items():
            page += f"| `{name}` | `{annotation}` | {plain(' '.join(text.split()))} |\n".replace(" | None`", " \\| None`")
    page += "\n## Kinds of events\n\n| kind | meaning |\n|---|---|\n"
    return page + "".join(f"| `{kind}` | {text} |\n" for kind, text in KINDS.items())


def structs_of(module: ModuleType) -> Iterator[tuple[type, dict[str, tuple[str, str]]]]:
    """Return the structs of a module, the last one first, each with its fields: the type, and the string below it."""
    for node in reversed(ast.parse(inspect.getsource(module)).body):
        if isinstance(node, ast.ClassDef) and issubclass(getattr(module, node.name), msgspec.Struct):
            described: dict[str, tuple[str, str]] = {}
            for field, below in pairwise(node.body):
                if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
                    assert isinstance(below, ast.Expr), f"{node.name}.{field.target.id} has no description"
                    described[field.target.id] = ast.unparse(field.annotation), ast.literal_eval(below.value)
            yield getattr(module, node.name), described


#: What is written, by its path from here.
PAGES: Final[dict[str, Callable[[], str]]] = {
    "reference/settings.md": settings_page,
    "reference/errors.md": errors_page,
    "reference/metrics.md": metrics_page,
    "reference/statistics.md": statistics_page,
    "comparison.md": comparison_page,
}


def arguments_of(function: object) -> dict[str, str]:
    """Return what a docstring of Google's form says of each argument."""
    section = re.split(r"\n(?=\w)", inspect.getdoc(function).split("\nArgs:\n")[1])[0]  # type: ignore[union-attr]
    entries = re.split(r"\n {4}(?=\w+: )", "\n" + section.rstrip())[1:]
    return {name: " ".join(text.split()) for name, text in (entry.split(": ", 1) for entry in entries)}


def first_paragraph(thing: object) -> str:
    return " ".join((inspect.getdoc(thing) or "").split("\n\n")[0].split())


def shown_type(annotation: str) -> str:
    return annotation.removesuffix(" | None")


def shown_default(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value) or '""'


def plain(text: str) -> str:
    """Turn the marks of reStructuredText into those of Markdown."""
    text = re.sub(r":\w+:`~?(?:iris_py\.)?(?:config\.)?([^`]+)`", r"`\1`", text)
    text = text.replace("``", "`").replace("|", "\\|")
    return re.sub(r"\(docs/([\w-]+)\.md(?: [\d.]+)?\)", r"([\1](../\1.md))", text)


if __name__ == "__main__":
    for name, make in PAGES.items():
        (HERE / name).write_text(make())
