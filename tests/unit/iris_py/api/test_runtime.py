"""The runtime of a node: the waits for the overlay's reports, and the names of the own cloud."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, cast

import pytest

from iris_py.api import runtime as runtime_module
from iris_py.api.runtime import Reports, Runtime, runtime_of
from iris_py.errors import ConfigurationError, NodeClosed
from iris_py.testing import NodeSimulation, run

if TYPE_CHECKING:
    from iris_py.config import Config
    from iris_security import Keyring


def test_reports_resolve_the_changes_of_a_group_in_their_order() -> None:
    async def main() -> None:
        reports = Reports(asyncio.get_running_loop())
        first, second, other = reports.expect(b"a"), reports.expect(b"a"), reports.expect(b"b")
        assert reports.last(b"a") is second
        reports.receive(b"a")
        assert [each.done() for each in (first, second, other)] == [True, False, False]
        reports.receive(b"a")
        assert [each.done() for each in (first, second, other)] == [True, True, False]
        assert (b"a" in reports, b"b" in reports) == (False, True)
        assert reports.last(b"a") is None

    run(main())


def test_a_report_that_nothing_waits_for_is_ignored() -> None:
    async def main() -> None:
        reports = Reports(asyncio.get_running_loop())
        reports.receive(b"a")
        assert b"a" not in reports

    run(main())


def test_a_cancelled_wait_takes_its_report_all_the_same() -> None:
    async def main() -> None:
        reports = Reports(asyncio.get_running_loop())
        first, second = reports.expect(b"a"), reports.expect(b"a")
        first.cancel()
        reports.receive(b"a")
        assert not second.done()
        reports.end()
        assert second.done()

    run(main())


def test_valid_names_are_kept_up_to_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        monkeypatch.setattr(runtime_module, "OWN_NAMES_MAX", 2)
        async with NodeSimulation(1) as simulation:
            runtime = runtime_of(await simulation.start_node())
            runtime.own_names.clear()
            assert not any(runtime.is_far(name) for name in ("a", "b", "a"))
            assert runtime.own_names == {"a", "b"}
            assert not runtime.is_far("c")
            assert runtime.own_names == {"c"}

    run(main())


def test_names_of_other_clouds_are_not_kept_and_invalid_ones_are_refused() -> None:
    async def main() -> None:
        async with NodeSimulation(1) as simulation:
            runtime = runtime_of(await simulation.start_node())
            runtime.own_names.clear()
            assert runtime.is_far("store@eu")
            for name in ("store@", "@eu", "iris.gateway.eu", 7):
                with pytest.raises(ConfigurationError):
                    runtime.is_far(name)  # type: ignore[arg-type] # one of them is no name
            assert runtime.own_names == set()

    run(main())


def test_after_the_end_calls_are_refused_and_looking_is_not() -> None:
    async def main() -> None:
        async with NodeSimulation(1) as simulation:
            node = await simulation.start_node()
            runtime = runtime_of(node)
            runtime.check_open()
            await node.close()
            runtime.check_loop()
            with pytest.raises(NodeClosed):
                runtime.check_open()

    run(main())


def test_a_call_from_another_thread_is_refused() -> None:
    async def main() -> None:
        runtime = Runtime(cast("Config", None), cast("Keyring", None), is_simulated=True)
        assert runtime.is_own_thread()
        assert not await asyncio.to_thread(runtime.is_own_thread)
        for check in (runtime.check_open, runtime.check_loop):
            with pytest.raises(ConfigurationError, match="another thread"):
                await asyncio.to_thread(check)

    asyncio.run(main())


def test_who_waits_for_room_is_woken_once() -> None:
    async def main() -> None:
        async with NodeSimulation(1) as simulation:
            runtime = runtime_of(await simulation.start_node())
            waiting = [asyncio.ensure_future(runtime.wait_for_room()) for _ in range(2)]
            await asyncio.sleep(0)
            waiting[0].cancel()
            await asyncio.sleep(0)
            runtime.handle_room()
            await waiting[1]
            assert waiting[0].cancelled()

    run(main())
