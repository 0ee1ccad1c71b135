"""The parts of a bundle (`iris doctor --bundle`), each gathered within limits of time and size, or missing with a reason."""

from __future__ import annotations

import asyncio
import os
import platform
import shlex
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import msgspec

from iris_py.cli.config import SettingLine, setting_lines
from iris_py.cli.doctor.plain_objects import as_plain
from iris_py.cli.options import user_name
from iris_py.cli.version import version_line
from iris_py.doctor.real_surroundings import Warnings
from iris_py.extras import version_of
from iris_py.observe.node_name import short_id
from iris_py.overview.departed import gone_lines
from iris_py.overview.event_stream import event_lines
from iris_py.overview.pair import summary_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence

    from iris_py.cli.doctor.plain_objects import Rewrite
    from iris_py.cli.doctor.surroundings_recorder import Recorder
    from iris_py.cli.settings import Settings
    from iris_py.doctor.surroundings import Evidence

__all__ = ["BundlePart", "Gathered", "command_line", "encode", "gather"]

#: Timeout for gathering a part (seconds): two rounds of queries of 4 s each, and the start of a node. Too small: a busy network
#: is missing; too large: a silent network delays the bundle.
PART_S: Final = 20.0
#: Maximum bytes of a part. Too small: only the answers of a few nodes fit; too large: the bundle cannot be sent.
PART_BYTES_MAX: Final = 4 << 20
#: Maximum number of events in a bundle, the newest. Too small: the beginning of the trouble is missing; too large:
#: `PART_BYTES_MAX` cuts off the newest.
EVENTS_MAX: Final = 5000


@dataclass(frozen=True, slots=True)
class Gathered:
    """A part of a bundle before writing: its lines, or the reason for its absence."""

    name: str
    """The name of the file."""
    summary: str
    """The contents, as text."""
    lines: Sequence[object] = ()
    missing: str = ""
    """The reason for leaving out the part, or some of it; empty if complete."""


@dataclass(frozen=True, slots=True)
class BundlePart:
    """A file of the bundle, encoded."""

    name: str
    summary: str
    content: bytes
    missing: str = ""


class MachinePart(msgspec.Struct, tag_field="kind", tag="machine", kw_only=True):
    """The machine, the user and the process of `iris doctor`."""

    system: str
    release: str
    machine: str
    libc: tuple[str, str]
    python: str
    host: str
    user: str
    uid: int
    processors: int | None
    processors_usable: int | None
    """Processors available to this process; None if unknown."""
    directory: str
    time: str
    """The local time, with its offset from UTC."""
    time_zone: str
    """The system's name of the time zone."""
    event_loop: str
    """The class of the doctor's event loop."""
    is_uvloop_used: bool
    uvloop: str
    """The version of the installed uvloop."""
    variables: tuple[str, ...]
    """The Iris variables that are set, without their values."""


async def gather(
    seen: Recorder, settings: Settings, findings: Sequence[object], tell: Callable[[str], None]
) -> tuple[list[Gathered], Evidence | None]:
    """Gather all parts of a bundle.

    Args:
        seen: The surroundings of the checks, with the recorded answers.
        settings: The options of the command line.
        findings: The lines of the checks.
        tell: Called before each step, with its description.

    Returns:
        The parts, and the answers of other nodes. In place of the answers, None if no node could be queried.
    """
    tell("the settings, for the bundle")
    parts = [
        Gathered("findings.jsonl", "the findings, as `iris doctor --json` prints them", findings),
        await _one("version.json", "the installed versions, as `iris version --json` prints them", _version),
        await _one(
            "settings.jsonl",
            "the settings without secrets, as `iris config show --json` prints them",
            lambda: _settings(settings),
        ),
    ]
    tell("the answers of other nodes, for the bundle")
    evidence, reason = await _ask(seen)
    parts += _answers(evidence, reason)
    tell("this machine, for the bundle")
    looked = await _one("surroundings.jsonl", "", lambda: _surroundings(seen))
    text = "the machine, its limits and interfaces, and the data behind the checks"
    parts.append(replace(looked, summary=text))
    return parts, evidence


async def _one(name: str, summary: str, find: Callable[[], Awaitable[Sequence[object]]]) -> Gathered:
    """Gather a part within its timeout. A failure becomes the reason for the missing part, and other parts continue."""
    try:
        async with asyncio.timeout(PART_S):
            return Gathered(name, summary, await find())
    except TimeoutError:
        return Gathered(name, summary, missing=f"there was no result within {PART_S:g} s")
    except Exception as exc:
        return Gathered(name, summary, missing=f"{type(exc).__name__}: {exc}")


async def _ask(seen: Recorder) -> tuple[Evidence | None, str]:
    found: list[Evidence] = []

    async def ask() -> Sequence[object]:
        found.append(await seen.evidence())
        return ()

    asked = await _one("", "", ask)
    return (found[0] if found else None), asked.missing


async def _version() -> Sequence[object]:
    return [version_line()]


async def _settings(settings: Settings) -> Sequence[object]:
    def read() -> Sequence[object]:
        with Warnings():  # already reported by the checks
            lines, summary = setting_lines(settings)
        return [*lines, summary]

    return await asyncio.to_thread(read)


def _answers(evidence: Evidence | None, reason: str) -> list[Gathered]:
    """Return the parts with the answers of other nodes, and with the statistics of the doctor's node."""
    texts = {
        "own-node.jsonl": "the statistics and events of the node of this command",
        "nodes.jsonl": "the answers of other nodes about themselves",
        "events.jsonl": "the events of these nodes, as `iris monitor --since 0 --json` prints them",
        "gone.jsonl": "the nodes that left or died, as `iris nodes --gone --json` prints them",
    }
    if evidence is None:
        return [Gathered(name, text, missing=f"no node was queried: {reason}") for name, text in texts.items()]
    gone, answers = evidence.gone, evidence.answers
    departed, events = gone_lines(gone), event_lines(answers)
    older = max(0, len(events) - EVENTS_MAX)
    nodes = [msgspec.structs.replace(report, events=None) for report in answers.reports]
    lines: dict[str, tuple[list[object], str]] = {
        "own-node.jsonl": ([evidence.own, *evidence.own_events], ""),
        "nodes.jsonl": ([*nodes, summary_of(answers, shown=len(nodes), total=len(gone.reports))], _silence(evidence)),
        "events.jsonl": (list(events[-EVENTS_MAX:]), f"{older} older events" if older else ""),
        "gone.jsonl": ([*departed, summary_of(gone, shown=len(departed), total=len(departed))], ""),
    }
    return [Gathered(name, texts[name], found, missing) for name, (found, missing) in lines.items()]


def _silence(evidence: Evidence) -> str:
    """Return a text about the nodes without an answer; empty if all answered."""
    gone, answers = evidence.gone, evidence.answers
    if not gone.asked:
        return "no other node was found"
    missing = []
    if len(gone.reports) > answers.asked:
        missing.append(f"{len(gone.reports) - answers.asked} of {len(gone.reports)} nodes were not queried completely")
    for nodes, text in (
        ((*gone.missing, *answers.missing), "did not answer"),
        ((*gone.refused, *answers.refused), "refuse queries, or get too many"),
    ):
        if nodes:
            missing.append(f"{len(nodes)} nodes {text}: {', '.join(short_id(node.id) for node in nodes[:8])}")
    return "; ".join(missing)


async def _surroundings(seen: Recorder) -> Sequence[object]:
    seen.limits()
    seen.interfaces()
    return [_machine(), *seen.lines()]


def _machine() -> MachinePart:
    loop = type(asyncio.get_running_loop())
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None
    return MachinePart(
        system=platform.system(),
        release=platform.release(),
        machine=platform.machine(),
        libc=platform.libc_ver(),
        python=platform.python_version(),
        host=platform.node(),
        user=user_name(),
        uid=os.geteuid(),
        processors=os.cpu_count(),
        processors_usable=usable,
        directory=os.getcwd(),
        time=time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        time_zone=time.tzname[time.localtime().tm_isdst > 0],
        event_loop=f"{loop.__module__}.{loop.__qualname__}",
        is_uvloop_used=loop.__module__.partition(".")[0] == "uvloop",
        uvloop=version_of("uvloop"),
        variables=tuple(sorted(name for name in os.environ if name.startswith("IRIS_"))),
    )


def command_line(settings: Settings, words: Iterable[str]) -> str:
    """Return the command line for README.txt in a bundle, without the arguments of a secret command.

    Args:
        settings: The options common to all commands.
        words: The arguments and options of `iris doctor` alone.
    """
    if "secret_command" in settings.given:
        program = str(settings.given["secret_command"]).split()[:1]
        shown = " ".join([*program, "[arguments left out]"])
        settings = replace(settings, given={**settings.given, "secret_command": shown})
    return shlex.join(["iris", "doctor", *words, *settings.as_options()])


def encode(gathered: Gathered, rewrite: Rewrite) -> BundlePart:
    """Encode a part as lines of JSON. Lines beyond the size limit are left out.

    Args:
        gathered: The part.
        rewrite: Removes secrets, and optionally names, from a text.
    """
    written: list[bytes] = []
    size = 0
    missing = gathered.missing
    for number, line in enumerate(gathered.lines):
        plain = as_plain(line, rewrite)
        if isinstance(line, SettingLine) and isinstance(plain, dict):
            plain["name"] = line.name  # the name of a setting is a word of Iris
        text = msgspec.json.encode(plain) + b"\n"
        size += len(text)
        if size > PART_BYTES_MAX:
            more = f"{len(gathered.lines) - number} lines, because the file would have more than {PART_BYTES_MAX >> 20} MiB"
            missing = "; ".join(filter(None, (missing, more)))
            break
        written.append(text)
    return BundlePart(gathered.name, gathered.summary, b"".join(written), rewrite(missing))
