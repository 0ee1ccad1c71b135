"""The secrets of a node and their rotation at run time (docs/security.md).

The keys are read from the source in the settings, without blocking the event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, get_args

from iris_overlay.ids import NodeId
from iris_py.api.arguments import check_flag, check_time
from iris_py.api.threads import DaemonThreads
from iris_py.config import make_keyring
from iris_py.errors import ConfigurationError, NodeClosed, RotationIncomplete
from iris_py.files.generations import GenerationsFile, fingerprint
from iris_py.files.remembered_peers import RememberedPeers
from iris_py.logs import EventLogger
from iris_security import AdministrationKey, Secret, SecretFormatError
from iris_security.keyring import GENERATIONS_MAX

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Generator, Mapping

    from iris_py.api.runtime import Runtime
    from iris_py.config import Config
    from iris_py.peers.rotation import GenerationsSigned, RotationMissed
    from iris_security import Entropy, Keyring, SignedGenerations

__all__ = ["Reloading", "open_keyring", "open_keyring_in_use"]


class Reloading(Awaitable[None]):
    """A running reload of the keys, from :meth:`Node.reload_keys`. ``await`` it for its errors, which are logged otherwise."""

    def __init__(self, future: asyncio.Future[None]) -> None:
        self._future = future
        self._is_awaited = False
        future.add_done_callback(self._tell)

    def __await__(self) -> Generator[object, None, None]:
        self._is_awaited = True
        return self._future.__await__()

    def done(self) -> bool:
        """Whether the reload has ended: the node uses the new keys, or keeps the old ones."""
        return self._future.done()

    def _tell(self, future: asyncio.Future[None]) -> None:
        if future.cancelled():
            return
        error = future.exception()
        if error is not None and not self._is_awaited and not isinstance(error, NodeClosed):
            logger.error("secrets_kept", "the secrets were not changed: %s", error, reason=str(error))


async def open_keyring(config: Config) -> Keyring:
    """Make the keyring from the settings of a node; a secret command runs beside the event loop.

    Cancelling does not end the command: the command runs to the end or timeout, unobserved.

    Raises:
        ConfigurationError: The source in the settings has no secret.
    """
    if config.secret_command is None:
        return make_keyring(config)
    threads = DaemonThreads(1, "iris-secret")  # the end of a program does not wait for it
    try:
        return await asyncio.get_running_loop().run_in_executor(threads, make_keyring, config)
    finally:
        threads.shutdown()


async def open_keyring_in_use(config: Config) -> Keyring:
    """Make the keyring as :func:`open_keyring` does, with the generations that an administrator has signed meanwhile.

    Raises:
        ConfigurationError: The source in the settings has no secret.
    """
    configured = await open_keyring(config)
    signed = GenerationsFile(config.state_directory, configured).load()
    return configured if signed is None else configured.with_generations(signed.secrets)


logger = EventLogger("iris_py")

RotationStep: TypeAlias = Literal["add", "rotate", "retire"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RotationStatus:
    """The progress of a rotation of the network's secret; see :meth:`Node.rotation`."""

    number: int
    """The number of the last step in this network; 0 before the first. Each step increases the number, by more than 1 if steps
    are skipped.
    """
    generations: tuple[str, ...]
    """The ids of the generations of the secret, the primary one first: 16 hexadecimal digits, public."""
    linked_nodes: Mapping[str, int | None]
    """The number of the last step at each linked node, by node id; None for a node without administrator or without answer."""


def check_step(step: object) -> None:
    """Refuse a value that is not the name of a step of a rotation.

    Raises:
        ConfigurationError: The value is no step.
    """
    if step not in get_args(RotationStep):
        raise ConfigurationError(f"{step!r} is not a step of a rotation. The steps are: {', '.join(get_args(RotationStep))}.")


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
    """Return the generations of a secret (all accepted ones, the encrypting one first) after a step of a rotation.

    Args:
        step: The step.
        secrets: The generations before, the primary one first.
        entropy: Randomness for a new generation.
        what: The holder of the generations, for errors.
        operand: The argument of the command line for a step, for errors.
        added: Added generations that have never encrypted. To retire would discard these and leave the old generation.
        abandon: Whether to retire nevertheless.

    Raises:
        ConfigurationError: The step is unknown, or not possible now.
    """
    if abandon and (step != "retire" or not added):
        raise ConfigurationError(
            f"{what} has no added generation that waits for the step rotate, so there is nothing to abandon. Leave abandon out."
        )
    if step == "add":
        if len(secrets) >= GENERATIONS_MAX:
            raise ConfigurationError(
                f"{what} has {len(secrets)} generations already. End a rotation first: iris keys retire{operand}"
            )
        return (*secrets, Secret.generate(entropy))
    check_step(step)
    if len(secrets) == 1:
        nothing = ", so there is nothing to retire" if step == "retire" else ""
        raise ConfigurationError(f"{what} has only one generation{nothing}. Begin with: iris keys add{operand}")
    if step == "rotate":
        return (secrets[-1], *secrets[:-1])
    if added and secrets[0] not in added and not abandon:
        raise ConfigurationError(
            f"{what} has an added generation that does not seal yet. To retire now would discard it and keep only the old "
            f"one. Let it seal first: iris keys rotate{operand}. Or discard it: iris keys retire --abandon{operand}"
        )
    return secrets[:1]


#: The remainder by 3 of the number of each step: from the number that the administrator signed, nodes know the last step.
_REMAINDERS: Final[Mapping[RotationStep, int]] = {"add": 1, "rotate": 2, "retire": 0}


def next_number(number: int, step: RotationStep) -> int:
    """Return the number of a step after the given number: the least higher number with the remainder of the step."""
    return number + 1 + (_REMAINDERS[step] - number - 1) % len(_REMAINDERS)


def added_by(number: int, secrets: tuple[Secret, ...]) -> tuple[Secret, ...]:
    """Return the generation that the step of this number has added and that never encrypted; empty for other steps."""
    return secrets[-1:] if len(secrets) > 1 and number % len(_REMAINDERS) == _REMAINDERS["add"] else ()


class Keys:
    """The secrets of a node, their rotation, and the node's file for finding nodes with the same secrets on this machine.

    Args:
        runtime: The runtime of the node; its core may be made later.
        reload: Reads the settings again, for :meth:`reload`.

    Attributes:
        signed: The generations signed by the administrator, if any.
    """

    def __init__(self, runtime: Runtime, reload: Callable[[], Config]) -> None:
        self.signed: SignedGenerations | None = None
        self._remembered: RememberedPeers | None = None  # the files of the user's nodes on this machine
        self._runtime = runtime
        self._reload = reload
        self._configured = runtime.keyring  # the keys of the settings, before any step of the administrator
        self._missed: set[str] = set()
        self._rotation_changed = asyncio.Event()
        self._reloading: asyncio.Task[None] | None = None  # the last reload by a command

    def rekey(self, keyring: Keyring) -> None:
        """Use other secrets, as :meth:`iris_py.Node.rekey` describes."""
        self.use(keyring)
        self._configured, self.signed = keyring, None

    def reload(self) -> Reloading:
        """Read the secrets again, as :meth:`iris_py.Node.reload_keys` describes."""
        self._runtime.check_open()
        config = self._reload()
        if config.secret_command is not None:
            self._reloading = self._runtime.loop.create_task(self._reload_by_command(config, self._reloading))
            return Reloading(self._reloading)
        self._use_configured(make_keyring(config))
        done: asyncio.Future[None] = self._runtime.loop.create_future()
        done.set_result(None)
        return Reloading(done)

    async def _reload_by_command(self, config: Config, before: asyncio.Task[None] | None) -> None:
        try:
            if before is not None:
                await asyncio.wait([before])
            configured = await open_keyring(config)
        except asyncio.CancelledError:
            self._runtime.check_open()  # tells waiting callers that the node was closed
            raise
        self._use_configured(configured)

    def _use_configured(self, configured: Keyring) -> None:
        """Use the keys of the settings; generations that the administrator has signed for these settings replace the secret.

        Raises:
            ConfigurationError: As for :meth:`iris_py.Node.rekey`.
            NodeClosed: The node was closed.
        """
        signed = self.signed if fingerprint(configured) == fingerprint(self._configured) else self._find_signed(configured)
        self.use(configured if signed is None else configured.with_generations(signed.secrets))
        self._configured, self.signed = configured, signed

    async def rotation(self, timeout: float) -> RotationStatus:
        """Return the progress of the rotation, as :meth:`iris_py.Node.rotation` describes."""
        self._runtime.check_open()
        ranks = self._runtime.core.peers.rotation.ranks
        await self._wait_until(lambda: bool(ranks()) and None not in ranks().values(), timeout)
        return self._rotation_status()

    def _rotation_status(self) -> RotationStatus:
        numbers = {}
        for link, rank in self._runtime.core.peers.rotation.ranks().items():
            peer = self._runtime.core.peers.peer_of(link)
            if peer is not None:
                numbers[peer.id.hex()] = None if rank is None else rank.number
        generations = tuple(keys.key_id.hex() for keys in self._runtime.keyring.generations)
        return RotationStatus(
            number=self._runtime.core.peers.rotation.rank.number, generations=generations, linked_nodes=numbers
        )

    async def rotate(
        self, step: RotationStep, key: AdministrationKey | str, timeout: float, *, force: bool, abandon: bool
    ) -> RotationStatus:
        """Take a step in the rotation, as :meth:`iris_py.Node.rotate_secret` describes."""
        self._runtime.check_open()
        check_step(step)
        check_time("timeout", timeout)
        check_flag("force", force)
        check_flag("abandon", abandon)
        signing = _as_key(key)
        if signing.administrator != self._runtime.keyring.administrator:
            has = "another administrator" if self._runtime.keyring.administrator is not None else "no administrator"
            raise ConfigurationError(
                f"this node has {has}: other nodes would not accept a signature of this key. Set administrator to the "
                "public half of the key."
            )
        await self._wait_for_linked_nodes(timeout, may_lag=force or step == "add", is_begun=False)
        rotation = self._runtime.core.peers.rotation
        number, before, name = rotation.rank.number, self._runtime.keyring.secrets, self._runtime.keyring.network
        added = added_by(number, before)
        secrets = next_generations(
            step, before, self._runtime.entropy, what=f"the network {name!r}", added=added, abandon=abandon
        )
        signed = signing.sign(name, next_number(number, step), secrets)
        rotation.take(signed)
        self._use_generations(signed)
        await self._wait_for_linked_nodes(timeout, may_lag=False, is_begun=True)
        return self._rotation_status()

    def close(self) -> None:
        """Cancel a running reload, because the node ends."""
        if self._reloading is not None:
            self._reloading.cancel()

    # -- for the other parts of the node

    def _find_signed(self, configured: Keyring) -> SignedGenerations | None:
        """Return the latest stored generations of nodes with these settings, signed by the administrator; None without any."""
        return None if self._runtime.is_simulated else GenerationsFile(self._runtime.config.state_directory, configured).load()

    def restore(self) -> None:
        """Use the stored generations of an earlier node with these settings, if there are any, from the start."""
        self.signed = self._find_signed(self._configured)
        if self.signed is not None:
            self._runtime.keyring = self._configured.with_generations(self.signed.secrets)

    def remember(self) -> bool:
        """Write this node's file for the user's other nodes on this machine; return whether others can find the file."""
        directory = self._runtime.config.state_directory
        if directory is None or not self.is_remembered:
            return False
        if self._remembered is not None:
            self._remembered.remove(self._runtime.core.info.id.hex())
        tag, needed = self._runtime.keyring.primary.key_id.hex(), self._runtime.config.is_zero_configuration
        self._remembered = RememberedPeers(directory, tag, is_needed=needed)
        return self._remembered.add(self._runtime.core.info.id.hex(), [self._runtime.listened])  # dialled from this machine

    @property
    def is_remembered(self) -> bool:
        """Whether the node uses the files of nodes on this machine: not without discovery, and not in a simulation."""
        return self._runtime.config.discovery and not self._runtime.is_simulated

    def remembered_addresses(self) -> list[str]:
        """Return the addresses of the user's nodes on this machine, from their files."""
        return [] if self._remembered is None else self._remembered.addresses()

    def forget(self, address: str) -> None:
        """Remove the file of the node at an address that refuses connections."""
        if self._remembered is not None:
            self._remembered.forget(address)

    def close_remembered(self) -> None:
        """Remove the file of this node, because the node has ended."""
        if self._remembered is not None:
            self._remembered.remove(self._runtime.core.info.id.hex())

    def use(self, keyring: Keyring) -> None:
        """Use other secrets, or keep the present ones on an error.

        Raises:
            ConfigurationError: As for :meth:`iris_py.Node.rekey`.
            NodeClosed: The node was closed.
        """
        self._runtime.check_open()
        before = self._runtime.keyring
        if keyring.network != before.network:
            raise ConfigurationError(
                f"the keyring is for the network {keyring.network!r}, but this node is in {before.network!r}, and a "
                "node cannot change its network. Make the keyring for the network of the node."
            )
        try:
            self._runtime.core.rekey(keyring, self._runtime.loop.time())
        except Exception:  # also from a program's function for cluster secrets
            self._runtime.core.rekey(before, self._runtime.loop.time())  # restores everything
            raise
        finally:
            self._runtime.wake()
        self._runtime.keyring = keyring
        if keyring.primary.key_id != before.primary.key_id:
            self.remember()

    # -- events of the core

    def handle_signed(self, event: GenerationsSigned) -> None:
        """Use the signed generations that a linked node has passed on: a step of a rotation."""
        if event.signed is not self.signed and self._runtime.closing is None:
            self._use_generations(event.signed)

    def handle_missed(self, event: RotationMissed) -> None:
        """Log once for each reason that this node misses a rotation."""
        if event.reason not in self._missed:
            self._missed.add(event.reason)
            logger.warning(
                "rotation_missed",
                "the network's secret is being rotated, and this node cannot take part: %s. It loses its links when its "
                "generation is retired. Give it the settings of the other nodes",
                event.reason,
                reason=event.reason,
            )

    def handle_heard(self) -> None:
        """Wake the tasks that wait for the linked nodes: one of them has reported its step of a rotation."""
        self._rotation_changed.set()

    # --

    def _use_generations(self, signed: SignedGenerations) -> None:
        try:
            self.use(self._runtime.keyring.with_generations(signed.secrets))
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
        self.signed = signed
        self._rotation_changed.set()
        generations = self._runtime.keyring.generations
        logger.info(
            "rotation_step",
            "step %d of the rotation of the network's secret: %s encrypts, %d others are accepted",
            signed.number,
            generations[0].key_id.hex(),
            len(generations) - 1,
            step=signed.number,
        )
        if not self._runtime.is_simulated:
            GenerationsFile(self._runtime.config.state_directory, self._configured).save(signed)

    async def _wait_for_linked_nodes(self, timeout: float, *, may_lag: bool, is_begun: bool) -> None:
        """Wait until all linked nodes have the step in effect here.

        Args:
            timeout: Seconds to wait.
            may_lag: Whether some nodes may be behind at the timeout, as long as another one has taken the step.
            is_begun: Whether this node has already taken the step.

        Raises:
            RotationIncomplete: There are no linked nodes, or some are behind.
            NodeClosed: The node was closed.
        """
        rotation = self._runtime.core.peers.rotation
        if await self._wait_until(lambda: set(rotation.ranks().values()) == {rotation.rank}, timeout):
            return
        status = self._rotation_status()
        missing = tuple(node for node, number in status.linked_nodes.items() if number is None or number < status.number)
        if not status.linked_nodes or (missing and not (may_lag and len(missing) < len(status.linked_nodes))):
            names = {node: self._runtime.core.peers.known_nodes.find(NodeId(bytes.fromhex(node))).name for node in missing}
            raise RotationIncomplete(status.number, missing, is_begun=is_begun, node_names=names)

    async def _wait_until(self, is_so: Callable[[], bool], timeout: float) -> bool:
        """Wait for a condition on the answers of the linked nodes, or for the timeout; return whether the condition holds.

        Raises:
            NodeClosed: The node was closed.
        """
        try:
            async with asyncio.timeout(timeout):
                while not is_so():
                    self._rotation_changed.clear()
                    await self._rotation_changed.wait()
                    self._runtime.check_open()
        except TimeoutError:
            self._runtime.check_open()
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
        raise ConfigurationError(
            f"this is not an administration key: {exc}. Make one with `iris keys administrator`."
        ) from None
