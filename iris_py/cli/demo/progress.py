"""Progress of the demo: a bar for people, plain lines for logs."""

from __future__ import annotations

from typing import IO, TYPE_CHECKING, Final, Protocol, Self

if TYPE_CHECKING:
    from types import TracebackType

    import rich.progress

__all__ = ["Progress", "make_progress", "print_note"]

LINES_PER_PHASE: Final = 4  # of text, if the output is not a terminal


class Progress(Protocol):
    """Shows the progress of the demo, phase by phase. Ends with its ``with`` block."""

    def __enter__(self) -> Self:
        """Start to show progress."""
        ...

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Stop, and leave the last state visible."""
        ...

    def begin(self, what: str, total: int) -> None:
        """Begin a phase that counts a number of files."""
        ...

    def advance(self) -> None:
        """Show that one more file of the phase is done."""
        ...

    def note(self, text: str) -> None:
        """Show a line about an event, such as a kill."""
        ...


def make_progress(stream: IO[str]) -> Progress:
    """Return a progress bar for a terminal, and lines of text for other streams."""
    return _Bar(stream) if stream.isatty() else _PlainLines(stream)


def print_note(stream: IO[str], text: str) -> None:
    """Print a line about an event."""
    try:
        print(text, file=stream, flush=True)
    except OSError:
        pass  # the reader is gone, which does not affect the demo's result


class _PlainLines:
    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream
        self._what = ""
        self._total = self._done = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def begin(self, what: str, total: int) -> None:
        self._what, self._total, self._done = what, total, 0

    def advance(self) -> None:
        before, self._done = self._done, self._done + 1
        if self._done * LINES_PER_PHASE // self._total > before * LINES_PER_PHASE // self._total:
            self.note(f"{self._done} of {self._total} files {self._what}")

    def note(self, text: str) -> None:
        print_note(self._stream, text)


class _Bar:
    def __init__(self, stream: IO[str]) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        columns = (TextColumn("{task.description:24}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        self._progress = Progress(*columns, console=Console(file=stream))
        self._task: rich.progress.TaskID | None = None

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def begin(self, what: str, total: int) -> None:
        self._task = self._progress.add_task(what, total=total)

    def advance(self) -> None:
        assert self._task is not None
        self._progress.advance(self._task)

    def note(self, text: str) -> None:
        self._progress.console.print(text, highlight=False, markup=False)
