"""Descriptions of an event loop's tasks for errors, with the line of the program where each task waits."""

from __future__ import annotations

import asyncio
import linecache
import os
import sysconfig
from typing import TYPE_CHECKING, Any, Final

import iris_overlay
import iris_security
from iris_py import errors

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

__all__ = ["TASKS_NAMED_MAX", "describe_tasks"]

#: Number of tasks named in an error; more would not help the reader.
TASKS_NAMED_MAX: Final = 20

#: The folders of Iris.
_IRIS: Final = tuple(f"{os.path.dirname(str(module.__file__))}{os.sep}" for module in (errors, iris_overlay, iris_security))
#: The folders of installed packages, and of Python.
_INSTALLED: Final = tuple({path + os.sep for key, path in sysconfig.get_paths().items() if key.endswith("lib")})


def describe_tasks(loop: asyncio.AbstractEventLoop) -> str:
    """Return one line for each waiting task: first tasks in the program's code, then tasks in Iris alone.

    A task waits in a chain of functions, where every function awaits the next. The reported line is the program's last one in
    the chain, wherever the task began: in a handler run by a task of Iris, for example.
    """
    of_program, others = [], []
    for task in asyncio.all_tasks(loop):
        frames = list(_frames_of(task))
        place = next(filter(_is_of_program, reversed(frames)), None)
        if place is not None:
            of_program.append(f"\n  {task.get_name()}: {_describe(place)}")
        else:
            others.append(f"\n  {task.get_name()}: {_describe(frames[0]) if frames else 'not started'}")
    lines = sorted(of_program) + sorted(others)
    more = len(lines) - TASKS_NAMED_MAX
    return "".join(lines[:TASKS_NAMED_MAX]) + (f"\n  and {more} more" if more > 0 else "")


def _frames_of(task: asyncio.Task[Any]) -> Iterator[FrameType]:
    """Yield the frames of a waiting task, the outermost first."""
    waiting: Any = task.get_coro()
    while waiting is not None:
        frame, waiting = _step(waiting)
        if frame is not None:
            yield frame


def _step(waiting: Any) -> tuple[FrameType | None, Any]:  # noqa: ANN401 - whatever can be awaited
    """Return the frame of a coroutine or generator, and the object for which it waits."""
    for frame, awaited in (("cr_frame", "cr_await"), ("gi_frame", "gi_yieldfrom"), ("ag_frame", "ag_await")):
        if hasattr(waiting, frame):
            return getattr(waiting, frame), getattr(waiting, awaited)
    return None, None


def _is_of_program(frame: FrameType) -> bool:
    path = frame.f_code.co_filename
    return not path.startswith(_IRIS) and not path.startswith(_INSTALLED) and not path.startswith("<frozen ")


def _describe(frame: FrameType) -> str:
    path, number, name = frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_qualname
    text = linecache.getline(path, number).strip()
    shown = os.path.relpath(path) if path.startswith(os.getcwd() + os.sep) else path
    return f"{shown}:{number}, in {name}" + (f": {text}" if text else "")
