"""`iris keys`: make secrets and keys, rotate secrets in their file or in a running network, and find the per-user secret."""

from __future__ import annotations

import os
import shlex
import sys
from typing import TYPE_CHECKING, Final

from msgspec import UNSET, UnsetType, field

from iris_py.api.keys import next_generations, open_keyring_in_use
from iris_py.cli.network import complain_of
from iris_py.cli.output import Output
from iris_py.config import load_config
from iris_py.errors import ConfigurationError
from iris_py.files.secrets import (
    find_added,
    is_present,
    read_administration_key,
    read_cloud_key,
    read_secret_file,
    rewrite_secret_file,
    write_secret_file,
)
from iris_py.json_lines import Line, Lines
from iris_py.observe.node_name import short_id
from iris_py.overview.generations import GenerationsHolder, describe_holdings, holdings_of
from iris_security import AdministrationKey, CloudKey, Keyring, Secret

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from iris_py.api.keys import RotationStatus, RotationStep
    from iris_py.cli.settings import Settings

__all__ = [
    "LINES",
    "administrator",
    "identity",
    "list_generations",
    "list_running",
    "new",
    "path",
    "public",
    "take_running_step",
    "take_step",
]


class SecretLine(Line, tag="secret", kw_only=True):
    """A new network secret, or the path of its file."""

    secret: str | UnsetType = UNSET
    path: str | UnsetType = UNSET


class PathLine(Line, tag="path"):
    """The place of the per-user secret."""

    path: str
    exists: bool


class AdministratorLine(Line, tag="administrator", kw_only=True):
    """A new administrator key, or the path of its file, and the public half."""

    administrator: str
    """The public half, for every node."""
    key: str | UnsetType = UNSET
    path: str | UnsetType = UNSET


class IdentityLine(Line, tag="identity", kw_only=True):
    """A new private key of a cloud, or the path of its file, and the public half."""

    public: str
    """The public half, for neighbours."""
    identity: str | UnsetType = UNSET
    path: str | UnsetType = UNSET


class PublicLine(Line, tag="public"):
    """The public half of a cloud's private key."""

    public: str
    cloud: str
    """The id of the cloud."""


class GenerationsLine(Line, tag="generations"):
    """The key ids of all generations of the secrets, the primary first."""

    network: str
    generations: list[str]
    """The generations of the network's secret."""
    clusters: dict[str, list[str]]
    """The generations of clusters with their own secret, by name."""


class StepLine(Line, tag="step"):
    """The generations in a secret file after a step of a rotation."""

    path: str
    network: str
    generations: list[str]
    """The key ids of the generations, the primary first."""


class RotationLine(Line, tag="rotation"):
    """The state of the rotation in a running network."""

    network: str
    number: int
    """The number of the administrator's last step."""
    generations: list[str]
    """The key ids of the generations, the primary first."""
    linked_nodes: dict[str, int | None]
    """The number of the last step of each linked node, by node id; None if not reported."""
    nodes: dict[str, list[str]] = field(default_factory=dict)
    """With `--running`, the generations of each node, by id: the encrypting one first."""


#: The lines of `--json`, by command.
LINES: Final[Lines] = {
    "keys new": (SecretLine,),
    "keys path": (PathLine,),
    "keys administrator": (AdministratorLine,),
    "keys identity": (IdentityLine,),
    "keys public": (PublicLine,),
    "keys list": (GenerationsLine, RotationLine),
    **{f"keys {step}": (StepLine, RotationLine) for step in ("add", "rotate", "retire")},
}

_NEXT = "Copy the file to every node, and reload it there: send SIGHUP to `iris` commands, call reload_keys() in programs."
#: For each step of a rotation the step that follows; None after the last.
_AFTER: Final[Mapping[RotationStep, RotationStep | None]] = {"add": "rotate", "rotate": "retire", "retire": None}


async def new(output: Path | None, *, as_json: bool) -> int:
    """Print a new secret, or write it to a private file and print only the path."""
    secret = Secret.generate(os.urandom)
    if output is not None:
        write_secret_file(output, secret)
        Output(as_json=as_json).line(SecretLine(path=str(output)), str(output))
    else:
        Output(as_json=as_json).line(SecretLine(secret=secret.text), secret.text)
    return 0


async def path(*, as_json: bool) -> int:
    """Print the path of the per-user secret."""
    directory = load_config().config_directory
    if directory is None:
        raise ConfigurationError("this user has no home directory, and so no secret there. Set HOME, or set IRIS_SECRET_FILE.")
    location = directory / "secret"
    Output(as_json=as_json).line(PathLine(str(location), is_present(location)), str(location))
    return 0


async def list_generations(settings: Settings, file: Path | None, *, as_json: bool) -> int:
    """Print the key id of each generation in a file, or of all secrets of a node on this machine, but no secret."""
    config = settings.load()
    own = None if config.config_directory is None else config.config_directory / "secret"
    if file is None and config.is_zero_configuration and (own is None or not is_present(own)):
        raise ConfigurationError(
            "no secret is configured; your per-user secret is made at its first use. See `iris keys path`."
        )
    keyring = await open_keyring_in_use(config) if file is None else _keyring_of(read_secret_file(file, "FILE"), config.network)
    generations = {"": tuple(keys.key_id for keys in keyring.generations), **keyring.own_secrets}
    if as_json:
        named = {name: [key_id.hex() for key_id in key_ids] for name, key_ids in generations.items()}
        Output(as_json=True).line(GenerationsLine(keyring.network, named.pop(""), named))
        return 0
    for name, key_ids in generations.items():
        whose = f"cluster {name!r}" if name else f"network {keyring.network!r}"
        for index, key_id in enumerate(key_ids):
            print(f"{key_id.hex()}  {'accepted' if index else 'primary':8}  {whose}")
    return 0


async def take_step(step: RotationStep, file: Path, *, abandon: bool, as_json: bool) -> int:
    """Take a step of a rotation in a secret file, and print the next step; return the exit code."""
    before = read_secret_file(file, "FILE")
    added = find_added(file, before)
    secrets = next_generations(
        step, before, os.urandom, what=str(file), operand=f" {shlex.quote(str(file))}", added=added, abandon=abandon
    )
    added = () if step == "rotate" else (*added, *(secret for secret in secrets if secret not in before))
    rewrite_secret_file(file, secrets, [secret for secret in added if secret != secrets[0]])
    network = load_config(secret=secrets[0]).network
    key_ids = [keys.key_id.hex() for keys in _keyring_of(secrets, network).generations]
    if as_json:
        Output(as_json=True).line(StepLine(str(file), network, key_ids))
        return 0
    print(f"{file}: {_describe(key_ids)}")
    then = _AFTER[step]
    print(_NEXT + (f" When all nodes have reloaded it: iris keys {then} {file}" if then else ""))
    return 0


async def administrator(output: Path | None, *, as_json: bool) -> int:
    """Make an administrator key, and print its public half for nodes."""
    key = AdministrationKey.generate(os.urandom)
    public = key.administrator_text
    if output is not None:
        write_secret_file(output, key)
        Output(as_json=as_json).line(AdministratorLine(administrator=public, path=str(output)), public)
    else:
        Output(as_json=as_json).line(AdministratorLine(administrator=public, key=key.text), f"{key.text}\n{public}")
    return 0


async def identity(output: Path | None, *, as_json: bool) -> int:
    """Make the key of a cloud, and print its public half for neighbours."""
    key = CloudKey.generate(os.urandom)
    public_text = key.public_text
    if output is not None:
        write_secret_file(output, key)
        Output(as_json=as_json).line(IdentityLine(public=public_text, path=str(output)), public_text)
        return 0
    Output(as_json=as_json).line(IdentityLine(public=public_text, identity=key.text), key.text)
    if not as_json:
        print(public_text, file=sys.stderr)  # standard output usually goes to a file
    return 0


async def public(file: Path, *, as_json: bool) -> int:
    """Print the public half of the key of a cloud."""
    key = read_cloud_key(file, "FILE")
    Output(as_json=as_json).line(PublicLine(key.public_text, key.cloud_id.hex()), key.public_text)
    return 0


async def list_running(settings: Settings, *, as_json: bool) -> int:
    """Print the key ids of the generations in the running network, and the generations of each node."""
    config = settings.load()
    async with settings.visit(config) as node:
        status = await node.rotation()
        found = await node.ask_nodes("security")
        network = node.network
    told = [(report.node, report.statistics.security) for report in found.reports]
    if as_json:
        line = _rotation_line(network, status)
        line.nodes = {name.id: [security.primary, *security.accepted] for name, security in told if security.primary}
        Output(as_json=True).line(line)
        return 0
    for index, key_id in enumerate(status.generations):
        print(f"{key_id}  {'accepted' if index else 'primary':8}  network {network!r}")
    holdings = holdings_of(GenerationsHolder.of(name.address or short_id(name.id), security) for name, security in told)
    print(f"{describe_holdings(holdings)}." if holdings else "No other node reports which generations it holds.")
    if config.administrator is not None:
        print(f"Steps of the administrator: {status.number}. {_describe_linked_nodes(status)}")
    complain_of(found)
    return 0


async def take_running_step(
    settings: Settings,
    step: RotationStep,
    key_file: Path,
    *,
    timeout_s: float,
    force: bool,
    abandon: bool,
    as_json: bool,
) -> int:
    """Take a step of a rotation in the running network, and print the outcome; return the exit code."""
    key = read_administration_key(key_file, "--administration-key")
    config = settings.load()
    async with settings.visit(config) as node:
        status = await node.rotate_secret(step, key, timeout=timeout_s, force=force, abandon=abandon)
        if as_json:
            Output(as_json=True).line(_rotation_line(node.network, status))
            return 0
        print(f"network {node.network!r}: {_describe(status.generations)}")
        then = _AFTER[step]
        options = f"--administration-key {shlex.quote(str(key_file))}"
        print(_describe_linked_nodes(status) + (f" When absent nodes are back: iris keys {then} {options}" if then else ""))
    return 0


def _rotation_line(network: str, status: RotationStatus) -> RotationLine:
    return RotationLine(network, status.number, list(status.generations), dict(status.linked_nodes))


def _describe(key_ids: Sequence[str]) -> str:
    others = " and ".join(key_ids[1:])
    return f"{key_ids[0]} seals, {others} accepted" if others else f"{key_ids[0]} seals, nothing else is accepted"


def _describe_linked_nodes(status: RotationStatus) -> str:
    if not status.linked_nodes:
        return "No other node was reached."
    count = sum(number == status.number for number in status.linked_nodes.values())
    return f"{count} of {len(status.linked_nodes)} linked nodes have taken step {status.number}."


def _keyring_of(secrets: Sequence[Secret], network: str) -> Keyring:
    return Keyring(secrets[0], network=network, accepted=secrets[1:])
