"""`iris keys`: make secrets, rotate them in their file or in a running network, and find the per-user one."""

from __future__ import annotations

import json
import os
import shlex
from dataclasses import asdict
from typing import TYPE_CHECKING, Final

import iris_py
from iris_py.api.keys import open_keyring
from iris_py.api.rekeying import next_generations
from iris_py.config import load_config
from iris_py.errors import ConfigurationError
from iris_py.files.generations import GenerationsFile
from iris_py.files.secrets import read_administration_key, read_secret_file, rewrite_secret_file, write_secret_file
from iris_security import AdministrationKey, Keyring, Secret

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from iris_py.api.rekeying import RotationStatus, RotationStep
    from iris_py.cli.settings import Settings
    from iris_py.config import Config

__all__ = ["administrator", "list_generations", "list_running", "new", "path", "take_running_step", "take_step"]

_NEXT = "Bring the file to every node, and let each read it: send SIGHUP to `iris` commands, call reload_keys() in programs."
#: The step that follows a step.
_AFTER: Final[Mapping[RotationStep, RotationStep | None]] = {"add": "rotate", "rotate": "retire", "retire": None}


async def new(output: Path | None, *, as_json: bool) -> int:
    """Print a new secret, or write it to a private file and print nothing but where."""
    secret = Secret.generate(os.urandom)
    if output is not None:
        write_secret_file(output, secret)
        print(json.dumps({"path": str(output)}) if as_json else output)
    else:
        print(json.dumps({"secret": secret.text}) if as_json else secret.text)
    return 0


async def path(*, as_json: bool) -> int:
    """Print where the per-user secret is."""
    location = load_config().config_directory / "secret"
    print(json.dumps({"path": str(location), "exists": location.exists()}) if as_json else location)
    return 0


async def list_generations(settings: Settings, file: Path | None, *, as_json: bool) -> int:
    """Print the key id of each generation in a file, or of all secrets that a node here would use; never a secret."""
    config = settings.load()
    if file is None and config.is_zero_configuration and not (config.config_directory / "secret").exists():
        raise ConfigurationError("no secret is configured, and your own is made when it is first needed. See `iris keys path`.")
    keyring = await _keyring_in_use(config) if file is None else _keyring_of(read_secret_file(file, "FILE"), config.network)
    generations = {"": tuple(keys.key_id for keys in keyring.generations), **keyring.own_secrets}
    if as_json:
        named = {name: [key_id.hex() for key_id in key_ids] for name, key_ids in generations.items()}
        print(json.dumps({"network": keyring.network, "generations": named.pop(""), "clusters": named}))
        return 0
    for name, key_ids in generations.items():
        whose = f"cluster {name!r}" if name else f"network {keyring.network!r}"
        for index, key_id in enumerate(key_ids):
            print(f"{key_id.hex()}  {'accepted' if index else 'primary':8}  {whose}")
    return 0


async def take_step(step: RotationStep, file: Path, *, as_json: bool) -> int:
    """Take a step of a rotation in a secret file."""
    secrets = next_generations(step, read_secret_file(file, "FILE"), os.urandom, what=str(file), operand=f" {file}")
    rewrite_secret_file(file, secrets)
    network = load_config(secret=secrets[0]).network
    key_ids = [keys.key_id.hex() for keys in _keyring_of(secrets, network).generations]
    if as_json:
        print(json.dumps({"path": str(file), "network": network, "generations": key_ids}))
        return 0
    print(f"{file}: {_describe(key_ids)}")
    then = _AFTER[step]
    print(_NEXT + (f" When all have: iris keys {then} {file}" if then else ""))
    return 0


async def administrator(output: Path | None, *, as_json: bool) -> int:
    """Make an administration key, and show its public half, which nodes are to know."""
    key = AdministrationKey.generate(os.urandom)
    public = key.administrator_text
    if output is not None:
        write_secret_file(output, key)
        print(json.dumps({"path": str(output), "administrator": public}) if as_json else public)
    else:
        print(json.dumps({"key": key.text, "administrator": public}) if as_json else f"{key.text}\n{public}")
    return 0


async def list_running(settings: Settings, *, as_json: bool) -> int:
    """Print the key id of each generation in the running network, and how far its nodes near this one are."""
    config = settings.load()
    async with iris_py.connect(config=config) as node:
        status = await node.rotation()
        if as_json:
            print(json.dumps({"network": node.network, **asdict(status)}))
            return 0
        for index, key_id in enumerate(status.generations):
            print(f"{key_id}  {'accepted' if index else 'primary':8}  network {node.network!r}")
        print(f"Steps taken: {status.number}. {_describe_neighbours(status)}")
    return 0


async def take_running_step(
    settings: Settings, step: RotationStep, key_file: Path, *, timeout_s: float, force: bool, as_json: bool
) -> int:
    """Take a step of a rotation in the running network."""
    key = read_administration_key(key_file, "--administration-key")
    config = settings.load()
    async with iris_py.connect(config=config) as node:
        status = await node.rotate_secret(step, key, timeout=timeout_s, force=force)
        if as_json:
            print(json.dumps({"network": node.network, **asdict(status)}))
            return 0
        print(f"network {node.network!r}: {_describe(status.generations)}")
        then = _AFTER[step]
        options = f"--administration-key {shlex.quote(str(key_file))}"
        print(
            _describe_neighbours(status) + (f" When those that were away are back: iris keys {then} {options}" if then else "")
        )
    return 0


def _describe(key_ids: Sequence[str]) -> str:
    others = " and ".join(key_ids[1:])
    return f"{key_ids[0]} seals, {others} accepted" if others else f"{key_ids[0]} seals, nothing else is accepted"


def _describe_neighbours(status: RotationStatus) -> str:
    if not status.neighbours:
        return "No other node was reached."
    count = sum(number == status.number for number in status.neighbours.values())
    return f"{count} of {len(status.neighbours)} neighbours have taken step {status.number}."


async def _keyring_in_use(config: Config) -> Keyring:
    configured = await open_keyring(config)
    signed = GenerationsFile(config.state_directory, configured).load()
    return configured if signed is None else configured.with_generations(signed.secrets)


def _keyring_of(secrets: Sequence[Secret], network: str) -> Keyring:
    return Keyring(secrets[0], network=network, accepted=secrets[1:])
