"""A door inside another web application: the tokens and codes that the application makes for its users."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import iris_py.web
from iris_py.doors.rights import Rights
from iris_py.errors import ConfigurationError
from iris_py.testing import NodeSimulation, run
from tests.unit.iris_py.servers.asgi import ask

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

POLICY = "[roles.viewer]\nsubscribe = ['notes.{sub}.>']\npublish = ['notes.{sub}.read']\n"


def with_door(scenario: Callable[[iris_py.web.MountedDoor], Awaitable[Any]]) -> None:
    async def main() -> None:
        async with NodeSimulation(1) as simulation:
            node = await simulation.start_node()
            async with iris_py.web.door(node, iris_py.web.Policy.from_text(POLICY)) as door:
                await scenario(door)

    run(main())


def test_a_token_for_a_user_has_the_rights_of_its_role() -> None:
    async def scenario(door: iris_py.web.MountedDoor) -> None:
        headers = {"Authorization": f"Bearer {door.make_token('ann', role='viewer')}"}
        assert (await ask(door.app, "GET", "/v1/session", b"", headers)).json()["subject"] == "ann"
        assert (await ask(door.app, "POST", "/v1/topics/notes.ann.read", b"1", headers)).status == 202
        assert (await ask(door.app, "POST", "/v1/topics/notes.bob.read", b"1", headers)).problem == "forbidden"
        headers = {"Authorization": f"Bearer {door.make_token('ann', role='viewer', rights=Rights())}"}
        assert (await ask(door.app, "POST", "/v1/topics/notes.ann.read", b"1", headers)).problem == "forbidden"
        headers = {"Authorization": f"Bearer {door.make_token('ann', role='other')}"}
        assert (await ask(door.app, "GET", "/v1/session", b"", headers)).problem == "token-unknown-role"

    with_door(scenario)


def test_a_code_signs_in_with_its_own_rights() -> None:
    async def scenario(door: iris_py.web.MountedDoor) -> None:
        for code, subject, observes in (
            (door.make_code(), "dashboard", True),
            (door.make_code("visitor", Rights(publish=("chat.room",))), "visitor", False),
        ):
            body = b'{"code": "%s"}' % code.encode()
            answer = await ask(door.app, "POST", "/v1/session", body, {"Iris-Request": "1"})
            cookie = {"Cookie": answer.headers["set-cookie"].partition(";")[0]}
            session = (await ask(door.app, "GET", "/v1/session", b"", cookie)).json()
            assert (session["subject"], session["observes"]) == (subject, observes)

    with_door(scenario)


@pytest.mark.parametrize(
    "arguments",
    [{}, {"role": "viewer", "lifetime_s": 0.0}, {"role": "viewer", "lifetime_s": 1e6}, {"rights": Rights(publish=("a..b",))}],
)
def test_a_wrong_token_is_refused_when_it_is_made(arguments: dict[str, Any]) -> None:
    async def scenario(door: iris_py.web.MountedDoor) -> None:
        with pytest.raises(ConfigurationError):
            door.make_token("ann", **arguments)

    with_door(scenario)
