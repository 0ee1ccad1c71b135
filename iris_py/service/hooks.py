"""Hooks of a service: functions at start-up and shut-down, and the resources that start-up hooks return.

Theory of operation. The hooks form one list, in the order of registration. The start goes through the list: start-up hooks run,
and shut-down hooks are noted. The end runs the noted hooks in reverse order. So a shut-down hook registered right after a
start-up hook undoes its work, even if a later hook fails. A generator is both kinds of hook: it yields once, and its rest runs
at the end.
"""

from __future__ import annotations

import asyncio
import inspect
import types
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Generator, Iterable, Iterator
from contextvars import copy_context
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, get_args, get_origin

from iris_py.api.threads import DaemonThreads
from iris_py.logs import EventLogger
from iris_py.service.handler_calls import FunctionCall, plan_hook, refusal, unresolved
from iris_py.service.signature import NOTHING, Unresolved, show_type

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

__all__ = ["Hook", "HookPlan", "Hooks", "contain", "plan_hooks"]

logger = EventLogger("iris_py")

#: Threads for hooks that are plain functions. Hooks run one after the other, so more than one thread is in use only while
#: cancelled hooks run on.
THREADS_MAX: Final = 16

_GENERATORS: Final = (AsyncGenerator, AsyncIterable, AsyncIterator, Generator, Iterable, Iterator)
#: Result types that a resource must not have: parameters of these types are too common.
_NO_RESOURCES: Final = (bool, bytes, bytearray, complex, dict, float, frozenset, int, list, memoryview, object, set, str, tuple)
_END: Final = object()


@dataclass(frozen=True, slots=True)
class Hook:
    """A function that a program has registered as a start-up or shut-down hook.

    Attributes:
        function: The function.
        is_startup: Whether the function runs at start-up; otherwise it runs at shut-down.
    """

    function: Callable[..., Any]
    is_startup: bool

    @property
    def what(self) -> str:
        """The kind of the hook, for errors."""
        return "a start-up hook" if self.is_startup else "a shut-down hook"


@dataclass(frozen=True, slots=True)
class HookPlan:
    """A hook whose signature has been read.

    Attributes:
        hook: The hook.
        call: How to call the hook.
        resource: The type of the resource that the hook returns; None without a resource.
    """

    hook: Hook
    call: FunctionCall
    resource: Any


def plan_hooks(hooks: Sequence[Hook]) -> list[HookPlan]:
    """Read the signatures of hooks; return how to call each hook, in the same order.

    Raises:
        ConfigurationError: A hook cannot be called, or returns a type that is no resource.
    """
    plans: list[HookPlan] = []
    for hook in hooks:
        call = plan_hook(hook.function, [plan.resource for plan in plans if plan.resource is not None], what=hook.what)
        resource = _resource_of(hook, call) if hook.is_startup else None
        other = next((plan for plan in plans if plan.resource is not None and plan.resource == resource), None)
        if other is not None:
            raise refusal(
                call.name,
                f"{other.call.name} returns a {show_type(resource)}, too, so the value for a parameter of this type is "
                "ambiguous. Distinguish the types with typing.NewType.",
            )
        plans.append(HookPlan(hook, call, resource))
    return plans


class Hooks:
    """Runs the hooks of a service.

    Args:
        plans: The hooks, with how to call each.
        values: The node by its types; the resources of start-up hooks are added by their types.

    Attributes:
        running: The kind and name of the running hook, for texts; empty while no hook runs.
        failed: The kind and name of the failed hook, for texts; empty without a failure.
    """

    def __init__(self, plans: Sequence[HookPlan], values: dict[Any, Any]) -> None:
        self.running = ""
        self.failed = ""
        self._plans = plans
        self._values = values
        self._threads = DaemonThreads(THREADS_MAX, "iris-hook")
        self._ends: list[tuple[str, Callable[[], Awaitable[object]]]] = []

    async def start(self) -> None:
        """Run the start-up hooks.

        Raises:
            ConfigurationError: A hook returned a resource of a different type than annotated.
            Exception: The error of a hook; no later hook has run.
        """
        for plan in self._plans:
            call = plan.call.bind(self._values)
            if not plan.hook.is_startup:
                self._ends.append((f"the shut-down hook {plan.call.name}", partial(self._run, plan, call)))
                continue
            value = await self._noting(f"the start-up hook {plan.call.name}", partial(self._begin, plan, call))
            if plan.resource is not None:
                self._values[plan.resource] = value
            elif value is not None:
                raise refusal(
                    plan.call.name,
                    f"it returned a {type(value).__qualname__}, but this type is not in its annotation. Annotate the return "
                    "type, so that handlers can take the value, or return None.",
                )

    async def stop(self, timeout_s: float) -> BaseException | None:
        """Run the shut-down hooks that the start has noted, in reverse order. Errors are logged.

        Args:
            timeout_s: Seconds for all hooks. At the timeout the running hook and all later ones are cancelled.

        Returns:
            The first error; None without one.
        """
        first: BaseException | None = None
        until = asyncio.get_running_loop().time() + timeout_s
        try:
            while self._ends:
                name, end = self._ends.pop()
                limit = asyncio.timeout_at(until)
                try:
                    async with limit:
                        await self._noting(name, end)
                except Exception as exc:
                    first = first or exc
                    self._log(name, exc, timeout_s if limit.expired() else None)
        finally:
            self._threads.shutdown()
        return first

    # --

    async def _noting(self, name: str, function: Callable[[], Awaitable[Any]]) -> Any:  # noqa: ANN401 - a resource
        """Run a hook, and keep its name in :attr:`running` meanwhile, and in :attr:`failed` after a failure."""
        self.running = name
        try:
            return await function()
        except Exception as exc:
            self.failed = self.failed or name
            exc.add_note(f"It was raised by {name}.")
            raise
        finally:
            self.running = ""

    def _log(self, name: str, error: BaseException, timeout_s: float | None) -> None:
        """Log the error of a shut-down hook. (The error of a start-up hook is raised instead.)"""
        if timeout_s is not None:
            self.failed = self.failed or name
            logger.error(
                "hook_cancelled",
                "%s was cancelled: the shut-down hooks have not ended within %g s",
                name,
                timeout_s,
                about=name,
                hook=name,
            )
        else:
            kind = type(error).__qualname__
            logger.error("hook_failed", "%s failed: %s: %s", name, kind, error, about=name, error=error, hook=name)

    async def _begin(self, plan: HookPlan, call: Callable[[], Any]) -> Any:  # noqa: ANN401 - a resource
        """Run a start-up hook; a generator up to its ``yield``."""
        go_on: Callable[[], Awaitable[object]]
        if inspect.isasyncgenfunction(plan.hook.function):
            go_on = partial(anext, call(), _END)
        elif inspect.isgeneratorfunction(plan.hook.function):
            go_on = partial(self._in_thread, partial(next, call(), _END))
        else:
            return await self._run(plan, call)
        value = await go_on()
        if value is _END:
            raise RuntimeError("it is a generator, and did not yield")
        self._ends.append((f"the rest of the start-up hook {plan.call.name}", partial(_finish, go_on)))
        return value

    async def _run(self, plan: HookPlan, call: Callable[[], Any]) -> Any:  # noqa: ANN401 - a resource
        """Call a function: in the event loop if it is async, else in a thread."""
        result = call() if plan.call.is_async else await self._in_thread(call)
        return await result if inspect.isawaitable(result) else result

    async def _in_thread(self, function: Callable[[], Any]) -> Any:  # noqa: ANN401 - a resource
        context = copy_context()
        return await asyncio.get_running_loop().run_in_executor(self._threads, context.run, contain, function)


async def _finish(go_on: Callable[[], Awaitable[object]]) -> None:
    """Run the rest of a generator after its ``yield``; raise if it yields again."""
    if await go_on() is not _END:
        raise RuntimeError("it is a generator, and yielded twice")


def contain(function: Callable[[], Any]) -> Any:  # noqa: ANN401 - a resource
    """Call a function, and raise a RuntimeError for its StopIteration, which the future of a thread could not carry."""
    try:
        return function()
    except StopIteration as exc:
        raise RuntimeError("the function raised StopIteration") from exc


def _resource_of(hook: Hook, call: FunctionCall) -> Any:  # noqa: ANN401 - a type
    """Return the type of the resource that a start-up hook returns or yields; None for no resource.

    Raises:
        ConfigurationError: The type is too common for a resource, or cannot be evaluated.
    """
    annotation = call.returns
    if inspect.isgeneratorfunction(hook.function) or inspect.isasyncgenfunction(hook.function):
        arguments = get_args(annotation) if get_origin(annotation) in _GENERATORS else ()
        annotation = arguments[0] if arguments else NOTHING
    if isinstance(annotation, Unresolved):
        raise unresolved(call.name, "its result", annotation)
    if annotation in (NOTHING, Any, None, types.NoneType):
        return None
    if annotation in _NO_RESOURCES or get_origin(annotation) in _NO_RESOURCES:
        raise refusal(
            call.name,
            f"it returns a {show_type(annotation)}, and too many parameters have this type. Return an object of a class of "
            "your own, or name the type with typing.NewType.",
        )
    return annotation
