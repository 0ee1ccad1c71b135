"""`iris keys`: make secrets, rotate them in their file, and find the per-user one. No node is started."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

from iris_py.config import load_config, make_keyring
from iris_py.errors import ConfigurationError
from iris_py.files.secrets import read_secret_file, rewrite_secret_file, write_secret_file
from iris_security.keyring import GENERATIONS_MAX, Keyring
from iris_security.secret import Secret

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

__all__ = ["add", "list_generations", "new", "path", "retire", "rotate"]

_NEXT = "Bring the file to every node, and let each read it: send SIGHUP to `iris` commands, call reload_keys() in programs."


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


async def list_generations(file: Path | None, *, as_json: bool) -> int:
    """Print the key id of each generation in a file, or of all secrets that a node here would use; never a secret."""
    config = load_config()
    if file is None and config.is_zero_configuration and not (config.config_directory / "secret").exists():
        raise ConfigurationError("no secret is configured, and your own is made when it is first needed. See `iris keys path`.")
    keyring = make_keyring(config) if file is None else _keyring_of(read_secret_file(file, "FILE"), config.network)
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


async def add(file: Path, *, as_json: bool) -> int:
    """Make a new generation, which is accepted: the first step of a rotation."""
    secrets = read_secret_file(file, "FILE")
    if len(secrets) >= GENERATIONS_MAX:
        raise ConfigurationError(
            f"{file} has {len(secrets)} generations already. End a rotation first: iris keys retire {file}"
        )
    return _rewrite(file, (*secrets, Secret.generate(os.urandom)), f"iris keys rotate {file}", as_json=as_json)


async def rotate(file: Path, *, as_json: bool) -> int:
    """Let the newest generation seal, and the others be accepted: the second step."""
    secrets = read_secret_file(file, "FILE")
    if len(secrets) == 1:
        raise ConfigurationError(f"{file} has one generation alone. Begin with: iris keys add {file}")
    return _rewrite(file, (secrets[-1], *secrets[:-1]), f"iris keys retire {file}", as_json=as_json)


async def retire(file: Path, *, as_json: bool) -> int:
    """Keep the primary generation alone: the last step."""
    secrets = read_secret_file(file, "FILE")
    if len(secrets) == 1:
        raise ConfigurationError(f"{file} has one generation alone: nothing is to be retired. Begin with: iris keys add {file}")
    return _rewrite(file, secrets[:1], "", as_json=as_json)


def _rewrite(file: Path, secrets: Sequence[Secret], then: str, *, as_json: bool) -> int:
    rewrite_secret_file(file, secrets)
    network = load_config(secret=secrets[0]).network
    key_ids = [keys.key_id.hex() for keys in _keyring_of(secrets, network).generations]
    if as_json:
        print(json.dumps({"path": str(file), "network": network, "generations": key_ids}))
        return 0
    print(
        f"{file}: {key_ids[0]} seals"
        + (f", {' and '.join(key_ids[1:])} accepted" if key_ids[1:] else ", nothing else is accepted")
    )
    print(_NEXT + (f" When all have: {then}" if then else ""))
    return 0


def _keyring_of(secrets: Sequence[Secret], network: str) -> Keyring:
    return Keyring(secrets[0], network=network, accepted=secrets[1:])
