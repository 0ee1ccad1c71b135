"""The cluster of all doors of a network: doors find each other, and have the same revocations (docs/design.md 17.50, 17.51).

Theory of operation. A door joins the cluster ``iris.doors`` and greets all members, before clients reach the door. The door
greets again when a member appears, and now and then. An answer has the digest of the other door's revocations. Where the digest
differs, the door takes the revocations over, page by page. Late doors, and doors back from a partition, soon have all of them.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

import iris_py
from iris_py.api.handler import Handler
from iris_py.api.lifecycle import parts_of
from iris_py.api.membership import Capacity
from iris_py.api.runtime import runtime_of
from iris_py.doors.counts import DoorClusterCounts
from iris_py.doors.door_messages import (
    DOORS,
    ClientPage,
    ClientPageQuestion,
    DoorAnnouncement,
    DoorGreeting,
    DoorStatus,
    DoorStatusQuestion,
    RevocationOrder,
    RevocationPage,
    RevocationPageQuestion,
    RevocationReceipt,
    UserPage,
    UserPageQuestion,
    decode_message,
    encode_message,
)
from iris_py.doors.door_reports import CLIENT_BYTES_MAX, PAGE_CLIENTS, PAGE_USERS, USER_BYTES_MAX
from iris_py.doors.door_table import DoorTable
from iris_py.errors import IrisError, NodeClosed
from iris_py.logs import EventLogger
from iris_py.wire.headers import NO_HEADERS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from iris_py.api.membership import Membership
    from iris_py.api.node import Node
    from iris_py.api.survey import Survey
    from iris_py.doors.door_messages import DoorMessage
    from iris_py.doors.door_reports import DoorReporter
    from iris_py.doors.revocations import Revocation, RevocationOutcome, RevocationTable
    from iris_py.patterns.messages import Message, Request
    from iris_py.servers.revocations_file import RevocationsFile

__all__ = ["DoorCluster", "RevocationReport", "revoke_tokens"]

logger = EventLogger("iris_py.servers")

#: Time to wait for the answers of other doors (seconds). Too small: a busy door is not heard; too large: a door starts late
#: beside a member that hangs.
ANSWER_TIMEOUT_S: Final = 2.0
#: Time between two looks at the members of the cluster (seconds). Too small: work of idle doors; too large: a door that was cut
#: off gets revocations late.
LOOK_S: Final = 1.0
#: Looks until all doors are asked again, also without a new member. Too small: messages of idle doors; too large: a lost
#: message is mended late.
LOOKS_MAX: Final = 30
#: Time that a door has for leaving the cluster (seconds).
LEAVE_S: Final = 2.0
#: Bytes of a revocation in a message: a subject of 128 characters, and the field names.
REVOCATION_BYTES_MAX: Final = 640
_DOOR_ID_BYTES: Final = 8


class DoorCluster(Handler):
    """A door in the cluster of all doors.

    Args:
        node: The node of the door.
        kind: The kind of the door: ``web``, or ``nats``.
        address: The address for clients; empty if unknown yet.
        revocations: The revocations of the door.
        on_revoked: Called when revocations were added.
        file: Stores the revocations for a restart; None in tests without files.
        reporter: Reports about the door; None to decline questions about clients and counts.

    Attributes:
        doors: The other doors.
    """

    def __init__(
        self,
        node: Node,
        kind: str,
        address: str,
        revocations: RevocationTable,
        on_revoked: Callable[[], object],
        file: RevocationsFile | None = None,
        reporter: DoorReporter | None = None,
    ) -> None:
        self._node = node
        self._revocations = revocations
        self._on_revoked = on_revoked
        self._file = file
        self._reporter = reporter
        identity = secrets.token_hex(_DOOR_ID_BYTES)
        self._own = DoorAnnouncement(id=identity, kind=kind, address=address, version=iris_py.__version__)
        self.doors = DoorTable(identity)
        self._heard: frozenset[str] = frozenset()  # the nodes that have answered
        self._is_full_told = False
        self._membership: Membership | None = None
        self._task: asyncio.Task[None] | None = None

    @property
    def counts(self) -> DoorClusterCounts:
        """The counts of the door in the cluster."""
        return DoorClusterCounts(self.doors.all, len(self._revocations))

    async def join(self) -> None:
        """Read the stored revocations, join the cluster, and take over the revocations of the other doors.

        Raises:
            ConfigurationError: The node is in too many clusters.
            NodeClosed: The node was closed.
        """
        if self._file is not None:
            now = time.time()
            for revocation in self._file.load(now):
                self._revocations.add(revocation, now)
        self._membership = await parts_of(self._node).memberships.enlist(DOORS, self, Capacity(), remembers=False)
        if silent := await self._greet_doors():
            logger.warning(
                "doors_silent", "%d doors did not answer; tokens revoked there may be valid here for a while", silent
            )
        self._task = asyncio.get_running_loop().create_task(self._look_on())

    def change_address(self, address: str) -> None:
        """Change the address for clients. Other doors learn the address with the next greeting, or by :meth:`announce`."""
        self._own = msgspec.structs.replace(self._own, address=address)

    async def announce(self, *, is_draining: bool = False) -> None:
        """Tell the other doors about a change.

        Args:
            is_draining: Whether the door closes.
        """
        self._own = msgspec.structs.replace(self._own, is_draining=is_draining)
        runtime = runtime_of(self._node)
        with suppress(NodeClosed):
            await runtime.send_to_all(runtime.core.broadcast, DOORS, encode_message(self._greeting()), NO_HEADERS)

    async def leave(self) -> None:
        """Leave the cluster. Harmless if repeated."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait((task,))
        membership, self._membership = self._membership, None
        if membership is not None:
            with suppress(NodeClosed):
                await membership.leave(timeout=LEAVE_S)

    # -- the messages of other doors

    async def on_survey(self, request: Request) -> bytes | None:
        """Answer another door, or `revoke_tokens`; None for an unknown message."""
        answer = self._answer(request.source, decode_message(request.payload))
        return None if answer is None else encode_message(answer)

    async def on_broadcast(self, message: Message) -> None:
        """Note the change of another door."""
        if isinstance(greeting := decode_message(message.payload), DoorGreeting):
            self.doors.hear(message.source, greeting, self._revocations.digest)

    def _answer(self, source: str, question: DoorMessage | None) -> DoorMessage | None:
        if isinstance(question, DoorGreeting):
            self.doors.hear(source, question, self._revocations.digest)
            return self._greeting()
        if isinstance(question, RevocationOrder):
            return RevocationReceipt(self._own, tuple(self._revoke(question.revocations)))
        if isinstance(question, RevocationPageQuestion) and question.door == self._own.id:
            count = max(1, runtime_of(self._node).core.max_message_bytes // REVOCATION_BYTES_MAX)
            return RevocationPage(self._revocations.page(question.start, count))
        return self._report(question)

    def _report(self, question: DoorMessage | None) -> DoorMessage | None:
        """Answer a question about clients, counts or users."""
        reporter = self._reporter
        if reporter is None:
            return None
        if isinstance(question, DoorStatusQuestion):
            return DoorStatus(self._own, reporter.figures())
        if isinstance(question, ClientPageQuestion) and question.door in ("", self._own.id):
            count = max(1, runtime_of(self._node).core.max_message_bytes // CLIENT_BYTES_MAX)
            found = reporter.clients(question.start, min(question.count, count, PAGE_CLIENTS))
            return ClientPage(self._own, found.total, found.clients)
        if isinstance(question, UserPageQuestion) and question.door in ("", self._own.id):
            count = max(1, runtime_of(self._node).core.max_message_bytes // USER_BYTES_MAX)
            users = reporter.users(question.start, min(question.count, count, PAGE_USERS))
            return None if users is None else UserPage(self._own, users.total, users.digest, users.users)
        return None

    def _greeting(self) -> DoorGreeting:
        return DoorGreeting(self._own, self._revocations.digest)

    # -- revocations

    def _revoke(self, revocations: Sequence[Revocation]) -> list[RevocationOutcome]:
        """Add revocations, and return the outcome of each."""
        now = time.time()
        outcomes = [self._revocations.add(each, now) for each in revocations]
        if "full" in outcomes and not self._is_full_told:
            self._is_full_told = True
            logger.error(
                "revocations_full",
                "the door remembers %d revocations and has no place for more: some revoked tokens stay valid here. Revoke "
                "all tokens with `iris token revoke --all-before now`, which needs no further place.",
                len(self._revocations),
            )
        added = [each for each, outcome in zip(revocations, outcomes, strict=True) if outcome == "added"]
        if added:
            if self._file is not None:
                self._file.append(added, self._revocations.all)
            self._on_revoked()
        return outcomes

    async def _look_on(self) -> None:
        """Ask the other doors when a member has come, and now and then."""
        looks = 0
        while True:
            await asyncio.sleep(LOOK_S)
            looks += 1
            try:
                members = parts_of(self._node).memberships.view(DOORS)
                nodes = frozenset(each.id for each in members)
                if not members.is_sample:
                    self.doors.keep(nodes)
                if nodes <= self._heard and looks < LOOKS_MAX:
                    continue
                looks = 0
                self._revocations.expire(time.time())
                await self._greet_doors()
            except NodeClosed:
                return
            except IrisError as exc:
                logger.warning("doors_unheard", "the other doors could not be asked: %s", exc)

    async def _greet_doors(self) -> int:
        """Greet all doors, and take over missing revocations; return the number of silent doors."""
        survey = self._survey(self._greeting())
        heard: set[str] = set()
        lacking: list[DoorGreeting] = []
        async for reply in survey:
            heard.add(reply.member.id)
            greeting = decode_message(reply.payload)
            if isinstance(greeting, DoorGreeting) and self.doors.hear(reply.member.id, greeting, self._revocations.digest):
                lacking.append(greeting)
        answers = survey.answers
        heard.update(member.id for member in answers.declined)
        for greeting in lacking:
            if greeting.revocations != self._revocations.digest and not await self._take_over(greeting.door.id):
                heard.clear()  # so all doors are asked again
                continue
            self.doors.note_copied(greeting.door.id, greeting.revocations)
        self._heard = frozenset(heard)
        return answers.missing_count

    async def _take_over(self, door: str) -> bool:
        """Take over the revocations of another door; return whether the door has answered to the end."""
        start = 0
        while True:
            async for reply in self._survey(RevocationPageQuestion(door, start)):
                page = decode_message(reply.payload)
                if isinstance(page, RevocationPage):
                    break
            else:
                return False
            if not page.revocations:
                return True
            self._revoke(page.revocations)
            start += len(page.revocations)

    def _survey(self, question: DoorMessage) -> Survey[bytes]:
        content = encode_message(question)
        return parts_of(self._node).surveys.begin(DOORS, content, ANSWER_TIMEOUT_S, None, NO_HEADERS)


class RevocationReport(NamedTuple):
    """The result of a revocation at all doors."""

    receipts: tuple[tuple[str, RevocationReceipt], ...]
    """The ids of the nodes (hex), and the receipts of their doors."""
    silent: tuple[str, ...]
    """The ids of the nodes without a confirmation, as far as known."""
    silent_count: int
    """The number of doors without a confirmation."""


async def revoke_tokens(node: Node, revocations: Sequence[Revocation], timeout_s: float) -> RevocationReport:
    """Revoke tokens at all doors of the network.

    Args:
        node: A node of the network.
        revocations: The revocations, at most `PAGE_REVOCATIONS`.
        timeout_s: Time to wait for the doors (seconds).

    Raises:
        NoMembers: No door runs.
        RequestTimeout: No door has answered in time.
        NotConnected: The node reaches no other node.
    """
    content = encode_message(RevocationOrder(tuple(revocations)))
    survey = parts_of(node).surveys.begin(DOORS, content, timeout_s, None, NO_HEADERS)
    receipts: list[tuple[str, RevocationReceipt]] = []
    async for reply in survey:
        receipt = decode_message(reply.payload)
        if isinstance(receipt, RevocationReceipt):
            receipts.append((reply.member.id, receipt))
    answers = survey.answers
    confirmed = {member for member, _receipt in receipts}
    others = (*answers.missing, *answers.rejected, *answers.declined, *(each.member for each in answers.failed))
    silent = {member.id for member in others if member.id not in confirmed}
    count = answers.missing_count + len(answers.rejected) + len(answers.declined) + len(answers.failed) + answers.dropped
    return RevocationReport(tuple(receipts), tuple(sorted(silent)), count)
