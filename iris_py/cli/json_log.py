"""The option ``--log-json``: every line of standard error becomes a JSON object, whatever its source.

Iris's own lines and the records of Python's `logging` become objects with a level, an event and facts. Warnings and uncaught
errors are one object each. Any other line, as of ``print``, becomes the message of an object; a line with a JSON object stays
unchanged. Text written to the descriptor by C code or another process is not converted, except that of workers: their
supervisor reads it (`iris_py.cli.serve.process`).
"""

from __future__ import annotations

import io
import json
import logging
import sys
import threading
import time
import traceback
import warnings
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, cast

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from types import TracebackType
    from typing import TextIO

__all__ = ["JsonFormatter", "JsonStream", "LineSplitter", "json_lines", "put", "put_error", "put_objects"]

_emit: Final = logging.StreamHandler.emit

#: The longest unfinished line held in memory (characters). Too small: a line written in parts becomes several objects; too
#: large: a program without line ends uses that much memory in each thread.
LINE_CHARACTERS_MAX: Final = 64 * 1024


def make_object(at: float, level: str, logger: str, message: str, facts: dict[str, object]) -> str:
    """Return one line with a JSON object, for a log record or for a line of a program's output.

    Args:
        at: The time (seconds since 1970).
        level: The severity.
        logger: The name of the logger.
        message: The text.
        facts: Further fields. The fact ``event`` gives the standard field of this name, which is ``other`` without it. Facts
            may come from other users, so they replace no other standard field.
    """
    facts = dict(facts)
    event = facts.pop("event", "other")
    moment = datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds")
    head = {"kind": "log", "time": moment, "level": level, "logger": logger, "event": event, "message": message}
    return json.dumps(facts | head, default=str)


def _as_object(line: str, **facts: object) -> str:
    """Turn a line of a program into a JSON object; a line with a JSON object stays unchanged.

    Args:
        line: The line, without its end.
        facts: Further fields of a new object.
    """
    if line.startswith("{"):
        try:
            if isinstance(json.loads(line), dict):
                return line
        except ValueError:
            pass
    return make_object(time.time(), "info", "stderr", line, {"event": "output", **facts})


class JsonFormatter(logging.Formatter):
    """Formats each log record as one JSON object: the message, the event with its facts, and the traceback of an error."""

    def format(self, record: logging.LogRecord) -> str:
        facts = dict(getattr(record, "iris", {}))
        if record.exc_info:
            facts["traceback"] = self.formatException(record.exc_info)
        if record.stack_info:
            facts["stack"] = record.stack_info
        return make_object(record.created, record.levelname.lower(), record.name, _message_of(record), facts)


class LineSplitter:
    """Turns text in parts into a JSON object per line.

    Args:
        facts: Further fields of each object.
    """

    def __init__(self, **facts: object) -> None:
        self._facts = facts
        self._rest = ""

    def feed(self, text: str) -> list[str]:
        """Add a part of the text; return an object for each complete line."""
        *lines, rest = (self._rest + text).split("\n")
        while len(rest) >= LINE_CHARACTERS_MAX:
            lines.append(rest[:LINE_CHARACTERS_MAX])
            rest = rest[LINE_CHARACTERS_MAX:]
        self._rest = rest
        return [_as_object(line.rstrip("\r"), **self._facts) for line in lines if line.strip()]

    def finish(self) -> list[str]:
        """Return an object for the last, unfinished line; empty without one."""
        return self.feed("\n")


class JsonStream(io.TextIOBase):
    """Replaces standard error, and writes a JSON object for each line of text.

    Attributes:
        below: The stream to which the objects are written.
        buffer: The binary stream for programs that write bytes.
    """

    def __init__(self, below: TextIO) -> None:
        self.below: Final = below
        self.buffer: Final = _JsonBytes(self)
        self._splitters: dict[int, LineSplitter] = {}  # one per thread, so that lines of two threads are not mixed

    @property
    def encoding(self) -> str:  # type: ignore[override]
        """The encoding of the underlying stream."""
        return self.below.encoding

    @property
    def errors(self) -> str | None:  # type: ignore[override]
        """The error handling of the underlying stream's encoding."""
        return self.below.errors

    def fileno(self) -> int:
        """Return the descriptor of the underlying stream, for child processes."""
        return self.below.fileno()

    def isatty(self) -> bool:
        """Return False, because programs must write no terminal control sequences."""
        return False

    def writable(self) -> bool:
        """Return True."""
        return True

    def write(self, text: str) -> int:
        """Add text. A line is written as an object as soon as its end is added."""
        thread = threading.get_ident()
        splitter = self._splitters.get(thread) or self._splitters.setdefault(thread, LineSplitter())
        self.put(splitter.feed(text))
        return len(text)

    def put(self, objects: Iterable[str]) -> None:
        """Write lines that are JSON objects already."""
        if written := "".join(f"{each}\n" for each in objects):
            self.below.write(written)
            self.below.flush()

    def flush(self) -> None:
        """Do nothing: a line is written at its end, and not before."""

    def finish(self) -> None:
        """Write all unfinished lines as objects."""
        for splitter in list(self._splitters.values()):
            self.put(splitter.finish())
        self._splitters.clear()


class _JsonBytes(io.RawIOBase):
    """The side of a `JsonStream` that accepts bytes."""

    def __init__(self, stream: JsonStream) -> None:
        self._stream = stream

    def writable(self) -> bool:
        return True

    def write(self, content: bytes | bytearray | memoryview) -> int:  # type: ignore[override]
        self._stream.write(bytes(content).decode(errors="backslashreplace"))
        return memoryview(content).nbytes


@contextmanager
def json_lines() -> Iterator[None]:
    """In the block, turn every line of standard error into a JSON object; a nested block changes nothing."""
    below = sys.stderr
    if isinstance(below, JsonStream):
        yield
        return
    before = (sys.excepthook, threading.excepthook, sys.unraisablehook, warnings.showwarning)
    stream = sys.stderr = JsonStream(below)
    sys.excepthook = _handle_uncaught
    threading.excepthook = _handle_uncaught_in_thread
    sys.unraisablehook = _handle_unraisable
    warnings.showwarning = _show_warning
    logging.StreamHandler.emit = _emit_object  # type: ignore[method-assign, assignment]
    try:
        yield
    finally:
        stream.finish()
        sys.stderr = below
        sys.excepthook, threading.excepthook, sys.unraisablehook, warnings.showwarning = before
        logging.StreamHandler.emit = _emit  # type: ignore[method-assign]


def put(level: str, logger: str, message: str, facts: dict[str, object]) -> None:
    """Write one JSON object; the arguments are those of :func:`make_object`."""
    put_objects([make_object(time.time(), level, logger, message, facts)])


def put_objects(objects: Iterable[str]) -> None:
    """Write lines that are JSON objects already."""
    try:
        if isinstance(sys.stderr, JsonStream):
            sys.stderr.put(objects)
        else:
            for each in objects:
                print(each, file=sys.stderr, flush=True)
    except OSError:
        pass  # the reader is gone


def put_error(event: str, error: BaseException, level: str = "error", **facts: object) -> None:
    """Write an error with its traceback as one JSON object.

    Args:
        event: The event.
        error: The error.
        level: The severity.
        facts: Further fields.
    """
    text = str(error)
    kind = type(error).__name__
    whole = "".join(traceback.format_exception(error)).rstrip("\n")
    put(level, "python", f"{kind}: {text}" if text else kind, {"event": event, "error": kind, "traceback": whole, **facts})


def _message_of(record: logging.LogRecord) -> str:
    try:
        return record.getMessage()
    except (TypeError, ValueError):  # the number of arguments is wrong
        return f"{record.msg} {record.args}"


def _emit_object(handler: logging.StreamHandler[TextIO], record: logging.LogRecord) -> None:
    """Write a log record as one JSON object, where `logging.StreamHandler` would write lines of text.

    A program may set up `logging` at any time, also by the first ``logging.warning()``. Handlers for other streams, and
    handlers with their own formatter class, are not changed.
    """
    is_plain = type(handler.formatter) in (type(None), logging.Formatter)
    if is_plain and isinstance(cast("object", handler.stream), JsonStream):
        put_objects([JsonFormatter().format(record)])
    else:
        _emit(handler, record)


def _handle_uncaught(kind: type[BaseException], error: BaseException | None, trace: TracebackType | None) -> None:
    put_error("uncaught", kind() if error is None else error, "critical")


def _handle_uncaught_in_thread(found: threading.ExceptHookArgs) -> None:
    if issubclass(found.exc_type, SystemExit):
        return
    name = "" if found.thread is None else found.thread.name
    put_error("uncaught", found.exc_type() if found.exc_value is None else found.exc_value, thread=name)


def _handle_unraisable(found: sys.UnraisableHookArgs) -> None:
    error = found.exc_type() if found.exc_value is None else found.exc_value
    put_error("unraisable", error, at=f"{found.err_msg or 'Exception ignored in'}: {found.object!r}")


def _show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    if file is None or file is sys.stderr:
        place = {"category": category.__name__, "file": filename, "line": lineno}
        put("warning", "python", str(message), {"event": "warning", **place})
    else:
        file.write(warnings.formatwarning(message, category, filename, lineno, line))
