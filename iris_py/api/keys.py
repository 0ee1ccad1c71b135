"""The part of a node that exchanges its secrets while it runs (docs/security.md).

The keys of a node from wherever its settings say, without holding up the event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, get_args

from iris_overlay.ids import NodeId
from iris_py.api.arguments import check_flag, check_time
from iris_py.api.base import NodeBase
from iris_py.api.threads import DaemonThreads
from iris_py.config import make_keyring
from iris_py.defaults import ROTATION_ANSWER_S, ROTATION_TIMEOUT_S
from iris_py.errors import ConfigurationError, NodeClosed, RotationIncomplete
from iris_py.files.generations import GenerationsFile, fingerprint
from iris_py.files.remembered import RememberedPeers
from iris_py.logs import EventLogger
from iris_security import AdministrationKey, Secret, SecretFormatError
from iris_security.keyring import GENERATIONS_MAX

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Generator, Mapping

    from iris_py.config import Config
    from iris_py.peers.rotation import GenerationsSigned, RotationMissed
    from iris_security import Entropy, Keyring, SignedGenerations

__all__ = ["Reloading", "open_keyring"]


class Reloading(Awaitable[None]):
    """Keys that are being read again. ``await`` it, or leave it: an error that nobody waits for is logged."""

    def __init__(self, future: asyncio.Future[None]) -> None:
        self._future = future
        self._is_awaited = False
        future.add_done_callback(self._tell)

    def __await__(self) -> Generator[object, None, None]:
        self._is_awaited = True
        return self._future.__await__()

    def done(self) -> bool:
        """Whether the node uses the new keys, or goes on with the old ones."""
        return self._future.done()

    def _tell(self, future: asyncio.Future[None]) -> None:
        if future.cancelled():
            return
        error = future.exception()
        if error is not None and not self._is_awaited and not isinstance(error, NodeClosed):
            logger.error("secrets_kept", "the secrets stay as they are: %s", error, reason=str(error))


async def open_keyring(config: Config) -> Keyring:
    """Make the keyring that the settings of a node say; a command that they name runs beside the event loop.

    To be cancelled does not end the command: it runs to its end, or to that of its time, and nobody hears of it.

    Raises:
        ConfigurationError: There is no secret where the settings say.
    """
    if config.secret_command is None:
        return make_keyring(config)
    threads = DaemonThreads(1, "iris-secret")  # the end of a program does not wait for it
    try:
        return await asyncio.get_running_loop().run_in_executor(threads, make_keyring, config)
    finally:
        threads.shutdown()


logger = EventLogger("iris_py")

RotationStep: TypeAlias = Literal["add", "rotate", "retire"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RotationStatus:
    """The exchange of the network's secret, as far as it is; see :meth:`Node.rotation`."""

    number: int
    """The number of the last step that was taken in this network; 0 before the first one. It grows with each step: by one where
    the steps come in their order, and by more where some are left out."""
    generations: tuple[str, ...]
    """The ids of the generations of the secret, the primary one first: 16 hexadecimal digits, public."""
    neighbours: Mapping[str, int | None]
    """The same number by the ids of the nodes that this one has links to; None of one that has no administrator, or has said
    nothing yet."""


def check_step(step: object) -> None:
    """Refuse everything but a step of a rotation.

    Raises:
        ConfigurationError: It is none.
    """
    if step not in get_args(RotationStep):
        raise ConfigurationError(f"{step!r} is no step of a rotation. They are: {', '.join(get_args(RotationStep))}.")


def next_generations(
    step: RotationStep,
    secrets: tuple[Secret, ...],
    entropy: Entropy,
    *,
    what: str,
    operand: str = "",
    added: Collection[Secret] = (),
    abandon: bool = False,
) -> tuple[Secret, ...]:
    """Return the generations of a secret after a step of a rotation.

    Args:
        step: Which one.
        secrets: The generations before, the primary one first.
        entropy: Of a new generation.
        what: What holds them, for errors.
        operand: What stands behind the command of a step, for errors.
        added: Generations that were added and have never sealed. To retire would discard them, and leave the old one.
        abandon: Whether to retire so nevertheless.

    Raises:
        ConfigurationError: It is no step, or not one that can be taken now.
    """
    if abandon and (step != "retire" or not added):
        raise ConfigurationError(
            f"{what} has no generation that was added and does not seal yet: nothing is to be abandoned. Leave abandon out."
        )
    if step == "add":
        if len(secrets) >= GENERATIONS_MAX:
            raise ConfigurationError(
                f"{what} has {len(secrets)} generations already. End a rotation first: iris keys retire{operand}"
            )
        return (*secrets, Secret.generate(entropy))
    check_step(step)
    if len(secrets) == 1:
        nothing = ": nothing is to be retired" if step == "retire" else ""
        raise ConfigurationError(f"{what} has one generation alone{nothing}. Begin with: iris keys add{operand}")
    if step == "rotate":
        return (secrets[-1], *secrets[:-1])
    if added and secrets[0] not in added and not abandon:
        raise ConfigurationError(
            f"{what} has a generation that was added and does not seal yet: to retire now would discard it, and leave the old "
            f"one alone. Let it seal first: iris keys rotate{operand}. Or discard it: iris keys retire --abandon{operand}"
        )
    return secrets[:1]


#: The remainder by 3 of the number of each step. So the number that the administrator signs says which step was the last.
_REMAINDERS: Final[Mapping[RotationStep, int]] = {"add": 1, "rotate": 2, "retire": 0}


def next_number(number: int, step: RotationStep) -> int:
    """Return the number of a step after the step of a number: the least one above it with the remainder of that step."""
    return number + 1 + (_REMAINDERS[step] - number - 1) % len(_REMAINDERS)


def added_by(number: int, secrets: tuple[Secret, ...]) -> tuple[Secret, ...]:
    """Return the generation that does not seal yet, if the step of that number has added one."""
    return secrets[-1:] if len(secrets) > 1 and number % len(_REMAINDERS) == _REMAINDERS["add"] else ()


class Rekeying(NodeBase):
    """The part of a node that exchanges its secrets while it runs."""

    _config: Config
    _keyring: Keyring
    _configured: Keyring  # what the settings say, whatever the administrator has made of it
    _reload: Callable[[], Config]
    _is_simulated: bool
    _is_remembered: bool
    _listened: str

    def __init__(self) -> None:
        super().__init__()
        self._remembered: RememberedPeers | None = None
        self._signed: SignedGenerations | None = None
        self._missed: set[str] = set()
        self._rotation_changed = asyncio.Event()
        self._reloading: asyncio.Task[None] | None = None  # the last time that a command was run for the keys

    def rekey(self, keyring: Keyring) -> None:
        """Use other secrets from now on, without a restart: a step of a rotation (docs/security.md).

        Nothing is lost between nodes that accept a generation of each other: what runs is answered as it was asked, and links,
        tunnels and subscriptions stay. Links to nodes that have shown none of the generations that are accepted now are closed.

        Args:
            keyring: For the same network.

        Raises:
            ConfigurationError: The keyring is for another network, or more groups are in use than the overlay takes. The node
                goes on with the secrets that it has.
            NodeClosed: The node was closed.
        """
        self._use(keyring)
        self._configured, self._signed = keyring, None

    def reload_keys(self) -> Reloading:
        """Read the secrets again from where :func:`iris_py.connect` has found them, and use them from now on, as :meth:`rekey`.

        A command that prints them runs in a thread; several calls run one after the other. If the network's secret is still the
        same there, what the administrator has made of it since goes on to count.

        Returns:
            ``await`` it for the end of a command and its errors, which are logged otherwise.

        Raises:
            ConfigurationError: A setting is wrong now, there is no secret, the network has another name, or as of
                :meth:`rekey`. The node goes on with the secrets that it has.
            NodeClosed: The node was closed.
        """
        self._check_open()
        config = self._reload()
        if config.secret_command is not None:
            self._reloading = self._loop.create_task(self._reload_by_command(config, self._reloading))
            return Reloading(self._reloading)
        self._use_configured(make_keyring(config))
        done: asyncio.Future[None] = self._loop.create_future()
        done.set_result(None)
        return Reloading(done)

    async def _reload_by_command(self, config: Config, before: asyncio.Task[None] | None) -> None:
        try:
            if before is not None:
                await asyncio.wait([before])
            configured = await open_keyring(config)
        except asyncio.CancelledError:
            self._check_open()  # whoever waits is told that the node was closed
            raise
        self._use_configured(configured)

    def _use_configured(self, configured: Keyring) -> None:
        """Use what the settings say, and what the administrator has made of it.

        Raises:
            ConfigurationError: As of :meth:`rekey`.
            NodeClosed: The node was closed.
        """
        signed = self._signed if fingerprint(configured) == fingerprint(self._configured) else self._find_signed(configured)
        self._use(configured if signed is None else configured.with_generations(signed.secrets))
        self._configured, self._signed = configured, signed

    async def rotation(self, *, timeout: float = ROTATION_ANSWER_S) -> RotationStatus:
        """Return how far the exchange of the network's secret is at this node and its neighbours.

        Args:
            timeout: Seconds to wait at most until each neighbour has said so.

        Raises:
            NodeClosed: The node was closed.
        """
        self._check_open()
        ranks = self._core.peers.rotation.ranks
        await self._wait_until(lambda: bool(ranks()) and None not in ranks().values(), timeout)
        return self._rotation_status()

    def _rotation_status(self) -> RotationStatus:
        neighbours = {}
        for link, rank in self._core.peers.rotation.ranks().items():
            peer = self._core.peers.peer_of(link)
            if peer is not None:
                neighbours[peer.id.hex()] = None if rank is None else rank.number
        generations = tuple(keys.key_id.hex() for keys in self._keyring.generations)
        return RotationStatus(number=self._core.peers.rotation.rank.number, generations=generations, neighbours=neighbours)

    async def rotate_secret(
        self,
        step: RotationStep,
        key: AdministrationKey | str,
        *,
        timeout: float = ROTATION_TIMEOUT_S,
        force: bool = False,
        abandon: bool = False,
    ) -> RotationStatus:
        """Take a step in exchanging the secret of the whole network, which every node then takes by itself.

        ``"add"`` makes a new generation, which is accepted; ``"rotate"`` lets the newest one seal; ``"retire"`` leaves the
        primary one alone, and is refused while a generation was added and does not seal yet. A step goes from node to node;
        this node waits for its neighbours. Nodes that are away catch up as long as a generation that they have is accepted.

        Args:
            step: Which step.
            key: The administration key, or its text, as ``iris keys administrator`` makes it.
            timeout: Seconds to wait for the neighbours, before the step for what they say and after it.
            force: Whether to go on where neighbours have not taken the step before; they may be put out.
            abandon: Whether ``"retire"`` discards a generation that was added and does not seal yet: the old one stays.

        Returns:
            How far the exchange is now.

        Raises:
            ConfigurationError: The key is not that of this network's administrator, or the step cannot be taken now.
            RotationIncomplete: Before the step: neighbours have not taken the one before, or there are none, and nothing was
                changed. After it: neighbours have not taken it in time.
            NodeClosed: The node was closed.
        """
        self._check_open()
        check_step(step)
        check_time("timeout", timeout)
        check_flag("force", force)
        check_flag("abandon", abandon)
        signing = _as_key(key)
        if signing.administrator != self._keyring.administrator:
            has = "another administrator" if self._keyring.administrator is not None else "no administrator"
            raise ConfigurationError(
                f"this node has {has}: the others would not take what this key signs. Set administrator to its public half."
            )
        await self._wait_for_neighbours(timeout, may_lag=force or step == "add", is_begun=False)
        rotation = self._core.peers.rotation
        number, before, name = rotation.rank.number, self._keyring.secrets, self._keyring.network
        added = added_by(number, before)
        secrets = next_generations(step, before, self._entropy, what=f"the network {name!r}", added=added, abandon=abandon)
        signed = signing.sign(name, next_number(number, step), secrets)
        rotation.take(signed)
        self._use_generations(signed)
        await self._wait_for_neighbours(timeout, may_lag=False, is_begun=True)
        return self._rotation_status()

    # -- what the other parts of the node need

    def _find_signed(self, configured: Keyring) -> SignedGenerations | None:
        """Return what the administrator has signed last and nodes with these settings have kept."""
        return None if self._is_simulated else GenerationsFile(self._config.state_directory, configured).load()

    def _restore_generations(self) -> None:
        """Begin with what counted when the last node with these settings ran."""
        self._signed = self._find_signed(self._configured)
        if self._signed is not None:
            self._keyring = self._configured.with_generations(self._signed.secrets)

    def _remember(self) -> bool:
        """Leave a file for others of this machine and user; returns whether they find it."""
        directory = self._config.state_directory
        if not self._is_remembered or directory is None:
            return False
        if self._remembered is not None:
            self._remembered.remove(self._core.info.id.hex())
        tag, needed = self._keyring.primary.key_id.hex(), self._config.is_zero_configuration
        self._remembered = RememberedPeers(directory, tag, is_needed=needed)
        return self._remembered.add(self._core.info.id.hex(), [self._listened])  # they are on this machine, as it is

    def _handle_signed(self, event: GenerationsSigned) -> None:
        if event.signed is not self._signed and self._closing is None:
            self._use_generations(event.signed)

    def _handle_missed(self, event: RotationMissed) -> None:
        if event.reason not in self._missed:
            self._missed.add(event.reason)
            logger.warning(
                "rotation_missed",
                "the network's secret is being rotated, and this node cannot take part: %s. It loses its links when its "
                "generation is retired. Give it the settings of the other nodes",
                event.reason,
                reason=event.reason,
            )

    # --

    def _use(self, keyring: Keyring) -> None:
        """Use other secrets, or go on with those that this node has.

        Raises:
            ConfigurationError: As of :meth:`rekey`.
            NodeClosed: The node was closed.
        """
        self._check_open()
        if keyring.network != self._keyring.network:
            raise ConfigurationError(
                f"the keyring is for the network {keyring.network!r}, and this node is in {self._keyring.network!r}: "
                "a node stays in its network. Make the keyring for that."
            )
        before = self._keyring
        try:
            self._core.rekey(keyring, self._loop.time())
        except Exception:  # also one of a function that finds the secrets of clusters
            self._core.rekey(before, self._loop.time())  # nothing of it stays
            raise
        finally:
            self._driver.wake()
        self._keyring = keyring
        if keyring.primary.key_id != before.primary.key_id:
            self._remember()

    def _use_generations(self, signed: SignedGenerations) -> None:
        try:
            self._use(self._keyring.with_generations(signed.secrets))
        except Exception as exc:
            logger.error(
                "rotation_failed",
                "step %d of the rotation of the network's secret failed: %s",
                signed.number,
                exc,
                step=signed.number,
                reason=str(exc),
            )
            return
        self._signed = signed
        self._rotation_changed.set()
        generations = self._keyring.generations
        logger.info(
            "rotation_step",
            "step %d of the rotation of the network's secret: %s encrypts, %d others are accepted",
            signed.number,
            generations[0].key_id.hex(),
            len(generations) - 1,
            step=signed.number,
        )
        if not self._is_simulated:
            GenerationsFile(self._config.state_directory, self._configured).save(signed)

    async def _wait_for_neighbours(self, timeout: float, *, may_lag: bool, is_begun: bool) -> None:
        """Wait until what counts here counts at all nodes that there are links to.

        Args:
            timeout: Seconds after which not all have to.
            may_lag: Whether some may be behind then, as long as one says something.
            is_begun: Whether this node has taken the step already.

        Raises:
            RotationIncomplete: There are no such nodes, or some are behind.
            NodeClosed: The node was closed.
        """
        rotation = self._core.peers.rotation
        if await self._wait_until(lambda: set(rotation.ranks().values()) == {rotation.rank}, timeout):
            return
        status = self._rotation_status()
        missing = tuple(node for node, number in status.neighbours.items() if number is None or number < status.number)
        if not status.neighbours or (missing and not (may_lag and len(missing) < len(status.neighbours))):
            names = {node: self._core.peers.known_nodes.find(NodeId(bytes.fromhex(node))).name for node in missing}
            raise RotationIncomplete(status.number, missing, is_begun=is_begun, node_names=names)

    async def _wait_until(self, is_so: Callable[[], bool], timeout: float) -> bool:
        """Wait until something is so of what the neighbours say, or the time is over; return whether it is.

        Raises:
            NodeClosed: The node was closed.
        """
        try:
            async with asyncio.timeout(timeout):
                while not is_so():
                    self._rotation_changed.clear()
                    await self._rotation_changed.wait()
                    self._check_open()
        except TimeoutError:
            self._check_open()
            return is_so()
        return True


def _as_key(key: object) -> AdministrationKey:
    if isinstance(key, AdministrationKey):
        return key
    if not isinstance(key, str):
        raise ConfigurationError(f"an administration key is an AdministrationKey or its text, not {type(key).__name__}.")
    try:
        return AdministrationKey.parse(key)
    except SecretFormatError as exc:
        raise ConfigurationError(f"this is no administration key: {exc}. Make one with `iris keys administrator`.") from None
