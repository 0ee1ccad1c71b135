"""Questions of commands to all doors of a network: their clients, their counts and their users."""

from __future__ import annotations

from operator import itemgetter
from typing import TYPE_CHECKING, Final, NamedTuple

from iris_py.api.lifecycle import parts_of
from iris_py.doors.door_messages import (
    DOORS,
    ClientPage,
    ClientPageQuestion,
    DoorStatus,
    DoorStatusQuestion,
    UserPage,
    UserPageQuestion,
    decode_message,
    encode_message,
)
from iris_py.doors.door_reports import PAGE_CLIENTS, PAGE_USERS
from iris_py.doors.nats.settings import USERS_MAX
from iris_py.errors import IrisError
from iris_py.wire.headers import NO_HEADERS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from iris_py.api.node import Node
    from iris_py.doors.door_messages import DoorAnnouncement, DoorMessage
    from iris_py.doors.door_reports import ClientReport

__all__ = ["ClientsAtDoor", "DoorClientsReport", "UsersAtDoor", "ask_clients", "ask_statuses", "ask_users"]

#: Time to wait for the counts of doors (seconds). Too small: a busy door is left out; too large: a hung door delays a screen.
STATUS_TIMEOUT_S: Final = 1.0


class ClientsAtDoor(NamedTuple):
    """Clients of a door."""

    node: str
    """The id of the door's node, in hexadecimal digits."""
    door: DoorAnnouncement
    total: int
    """The number of all clients of the door."""
    clients: tuple[ClientReport, ...]
    """The asked ones."""


class DoorClientsReport(NamedTuple):
    """The answers of doors to a question about their clients."""

    doors: tuple[ClientsAtDoor, ...]
    """The chosen doors that have answered."""
    others: int
    """The number of other doors that have answered."""
    silent: int
    """The number of doors without an answer, because they are busy or of an earlier version."""


class UsersAtDoor(NamedTuple):
    """The users in the file of a NATS door."""

    node: str
    """The id of the door's node, in hexadecimal digits."""
    door: DoorAnnouncement
    total: int
    """The number of users."""
    digest: bytes
    """The digest of all users."""
    users: Mapping[str, bytes] = {}
    """The digests of the users, by name; empty if they were not asked for."""


async def ask_clients(
    node: Node, timeout_s: float, limit: int, is_chosen: Callable[[str, DoorAnnouncement], bool]
) -> DoorClientsReport:
    """Ask the doors of the network about their clients, page by page.

    Args:
        node: A node of the network.
        timeout_s: Time to wait for the answers to each question (seconds).
        limit: The largest number of clients.
        is_chosen: Tells whether a door is asked, by its node id and its announcement.

    Raises:
        NoMembers: No door runs.
        RequestTimeout: No door has answered in time.
        NotConnected: The node reaches no other node.
    """
    pages, silent = await _ask(node, ClientPageQuestion(count=min(limit, PAGE_CLIENTS)), timeout_s)
    doors: list[ClientsAtDoor] = []
    others = 0
    left = limit
    for source, page in pages:
        if not isinstance(page, ClientPage):
            silent += 1
        elif not is_chosen(source, page.door):
            others += 1
        else:
            doors.append(ClientsAtDoor(source, page.door, page.total, page.clients[:left]))
            left -= len(doors[-1].clients)
    for number, at_door in enumerate(doors):
        more = await _ask_further(node, at_door, left, timeout_s)
        left -= len(more)
        doors[number] = ClientsAtDoor(at_door.node, at_door.door, at_door.total, (*at_door.clients, *more))
    return DoorClientsReport(tuple(doors), others, silent)


async def _ask_further(node: Node, at_door: ClientsAtDoor, limit: int, timeout_s: float) -> list[ClientReport]:
    """Ask a door for the clients behind those of its first page."""
    more: list[ClientReport] = []
    start = len(at_door.clients)
    while len(more) < limit and 0 < start + len(more) < at_door.total:
        question = ClientPageQuestion(at_door.door.id, start + len(more), min(limit - len(more), PAGE_CLIENTS))
        pages = [page for _node, page in (await _ask(node, question, timeout_s))[0] if isinstance(page, ClientPage)]
        if not pages or not pages[0].clients:
            break  # the clients have gone, or the door
        more += pages[0].clients[: limit - len(more)]
    return more


async def ask_statuses(node: Node, timeout_s: float = STATUS_TIMEOUT_S) -> list[tuple[str, DoorStatus]]:
    """Ask the doors of the network for their counts; return the node ids and the answers, none without answers."""
    try:
        found, _silent = await _ask(node, DoorStatusQuestion(), timeout_s)
    except IrisError:
        return []
    return sorted(((source, answer) for source, answer in found if isinstance(answer, DoorStatus)), key=itemgetter(0))


async def ask_users(node: Node, timeout_s: float) -> tuple[UsersAtDoor, ...]:
    """Ask the NATS doors of the network for their users, in the order of their addresses; empty without answers.

    Of doors with the same users only the first is asked for each of them, and none if all doors have the same.

    Args:
        node: A node of the network.
        timeout_s: Time to wait for the answers to each question (seconds).
    """
    try:
        pages, _silent = await _ask(node, UserPageQuestion(), timeout_s)
    except IrisError:
        return ()
    doors = [UsersAtDoor(source, page.door, page.total, page.digest) for source, page in pages if isinstance(page, UserPage)]
    doors.sort(key=lambda each: (each.door.address, each.node))
    first = {each.digest: each for each in reversed(doors)}
    if len(first) <= 1:
        return tuple(doors)
    users = {each.node: await _ask_for_users(node, each, timeout_s) for each in first.values()}
    return tuple(UsersAtDoor(*each[:-1], users.get(each.node, {})) for each in doors)


async def _ask_for_users(node: Node, at_door: UsersAtDoor, timeout_s: float) -> Mapping[str, bytes]:
    """Ask a door for the digests of all its users."""
    found: dict[str, bytes] = {}
    start = 0
    while start < min(at_door.total, USERS_MAX):
        question = UserPageQuestion(at_door.door.id, start, PAGE_USERS)
        pages = [page for _node, page in (await _ask(node, question, timeout_s))[0] if isinstance(page, UserPage)]
        if not pages or not pages[0].users:
            break
        found.update(pages[0].users)
        start += len(pages[0].users)
    return found


async def _ask(node: Node, question: DoorMessage, timeout_s: float) -> tuple[list[tuple[str, DoorMessage | None]], int]:
    """Ask all doors; return the answers with the ids of their nodes, and the number of doors without an answer."""
    survey = parts_of(node).surveys.begin(DOORS, encode_message(question), timeout_s, None, NO_HEADERS)
    found = [(reply.member.id, decode_message(reply.payload)) async for reply in survey]
    answers = survey.answers
    silent = answers.missing_count + len(answers.rejected) + len(answers.failed) + answers.dropped
    if isinstance(question, ClientPageQuestion) and not question.door:
        silent += len(answers.declined)
    return found, silent
