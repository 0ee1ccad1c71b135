"""The keys of a node: the effective source of the network's secret, and the secrets of single clusters from all sources."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, cast

from iris_py.errors import ConfigurationError
from iris_py.files.secrets import check_path, parse_secrets, read_secret_file
from iris_py.settings.table import KEYS_CHOICE
from iris_py.settings.values import looks_secret, parse_name, parse_text
from iris_security.keyring import GENERATIONS_MAX, Keyring
from iris_security.secret import Secret

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import TypeAlias

    from iris_py.settings.layers import Layer
    from iris_py.settings.table import FindSecret, SecretLike

__all__ = [
    "CLUSTERS_MAX",
    "KeySource",
    "Secrets",
    "as_generations",
    "as_setting",
    "read_clusters_directory",
    "settle_clusters",
    "settle_keys",
]

#: A secret, or its generations (the secrets accepted during a rotation), the encrypting one first.
Secrets: TypeAlias = "Secret | tuple[Secret, ...]"

#: The number of files that a directory of cluster secrets may have. Too small: networks with many secret clusters do not
#: start; too large: another directory, named by mistake, is read.
CLUSTERS_MAX: Final = 1024


class KeySource:
    """The effective source of a node's keys: a keyring, secret, file or command; empty for the per-user secret.

    Args:
        rank: The index of the layer (source of settings) that gives the keys; without keys the number of layers.
    """

    __slots__ = ("keyring", "rank", "secret", "secret_command")

    def __init__(
        self,
        secret: Secrets | None = None,
        *,
        keyring: Keyring | None = None,
        secret_command: tuple[str, ...] | None = None,
        rank: int,
    ) -> None:
        self.secret = secret
        self.keyring = keyring
        self.secret_command = secret_command
        self.rank = rank


def settle_keys(layers: Sequence[Layer]) -> KeySource:
    """Take the keys from the first layer that gives keys: a secret passed as argument overrides the keyring of a Config.

    Raises:
        ConfigurationError: A layer gives several sources, or an invalid secret.
    """
    for rank, layer in enumerate(layers):
        chosen = [key for key in KEYS_CHOICE if key in layer.values]
        if len(chosen) > 1:
            both = " and ".join(layer.origin(key) for key in chosen)
            raise ConfigurationError(f"{both} are both given, but only one is allowed. Leave one out.")
        if not chosen:
            continue
        key, origin, value = chosen[0], layer.origin(chosen[0]), layer.values[chosen[0]]
        if key == "keyring":
            if not isinstance(value, Keyring):
                raise ConfigurationError(
                    f"{origin} must be a Keyring, not {type(value).__name__}. Make one with Keyring(primary, ...)."
                )
            return KeySource(keyring=value, rank=rank)
        if key == "secret_command":
            from iris_py.files.secret_command import check_command, split_command  # few nodes have a command

            text = value if layer.source == "variable" and isinstance(value, str) else None  # a variable is always text
            directory = None if layer.path is None else layer.path.parent
            command = check_command(value, origin, directory) if text is None else split_command(text, origin)
            return KeySource(secret_command=command, rank=rank)
        if key == "secret_file":
            path = layer.locate(value if isinstance(value, Path) else Path(parse_text(value, origin)), key)
            return KeySource(as_setting(read_secret_file(path, origin), origin), rank=rank)
        return KeySource(as_setting(parse_secrets(value, origin), origin), rank=rank)
    return KeySource(rank=len(layers))


def settle_clusters(layers: Sequence[Layer]) -> Mapping[str, Secrets] | FindSecret:
    """Collect the secrets of clusters from all layers; the first layer with a cluster counts.

    In one layer ``clusters`` counts before ``clusters_directory``. A function has the secret of a cluster unless it returns
    None.

    Raises:
        ConfigurationError: A secret or a name is wrong, or the directory cannot be read.
    """
    found: list[Mapping[str, Secrets] | FindSecret] = []
    for layer in layers:
        given = layer.values.get("clusters")
        if given is not None:
            found.append(given if callable(given) else _parse_clusters(given, layer.origin("clusters")))
        directory, origin = layer.values.get("clusters_directory"), layer.origin("clusters_directory")
        if directory is not None:
            path = directory if isinstance(directory, Path) else Path(parse_text(directory, origin))
            found.append(_read_clusters(layer.locate(path, "clusters_directory"), origin))
    return _merge(found)


def _merge(found: Sequence[Mapping[str, Secrets] | FindSecret]) -> Mapping[str, Secrets] | FindSecret:
    """Merge tables, or tables and functions into one function; for each cluster the first that has a secret counts."""
    if not any(map(callable, found)):
        merged: dict[str, Secrets] = {}
        for table in reversed(found):
            merged |= cast("Mapping[str, Secrets]", table)
        return MappingProxyType(merged)
    finders = [each if callable(each) else each.get for each in found]

    def find(cluster: str) -> SecretLike | Sequence[SecretLike] | None:
        return next((secret for finder in finders if (secret := finder(cluster)) is not None), None)

    return finders[0] if len(finders) == 1 else find


def _parse_clusters(value: object, origin: str) -> Mapping[str, Secrets]:
    if not isinstance(value, Mapping):
        raise ConfigurationError(f'{origin} must be a table of name = "secret", not {type(value).__name__}. Correct it.')
    if any(isinstance(name, str) and looks_secret(name) for name in value):
        raise ConfigurationError(f'a secret is given in place of the name of a cluster in {origin}. Write name = "secret".')
    return {
        parse_name(name, f"the name of a cluster in {origin}"): as_setting(
            parse_secrets(secret, f"{origin}.{name}"), f"{origin}.{name}"
        )
        for name, secret in value.items()
    }


def _read_clusters(directory: Path, origin: str) -> Mapping[str, Secrets]:
    """Read the secrets of clusters from a directory with a file per cluster, the format of mounted secrets."""
    check_path(directory, origin)
    try:
        names = [path.name for path in read_clusters_directory(directory)]
    except OSError as exc:
        raise ConfigurationError(f"{origin}: {directory} cannot be read: {exc.strerror}. Correct the path.") from exc
    if len(names) > CLUSTERS_MAX:
        raise ConfigurationError(
            f"{origin}: {directory} has {len(names)} files, and {CLUSTERS_MAX} are allowed. Check that it is the right "
            "directory."
        )
    if any(map(looks_secret, names)):
        raise ConfigurationError(f"{origin}: a file in {directory} has a secret as its name. Name it after its cluster.")
    where = f"a file in {directory}"
    return {
        parse_name(name, where): as_setting(read_secret_file(directory / name, origin), f"{origin}: {name}") for name in names
    }


def read_clusters_directory(directory: Path) -> list[Path]:
    """Return the files in a directory of cluster secrets, sorted by name.

    Raises:
        OSError: The directory cannot be read.
    """
    names = sorted(name for name in os.listdir(directory) if not name.startswith("."))
    return [directory / name for name in names if (directory / name).is_file()]


def as_setting(secrets: tuple[Secret, ...], origin: str) -> Secrets:
    """Return the generations of a secret as the value of a setting.

    Raises:
        ConfigurationError: There are too many generations.
    """
    if len(secrets) > GENERATIONS_MAX:
        raise ConfigurationError(
            f"{origin} has {len(secrets)} generations, and {GENERATIONS_MAX} are allowed. Retire the oldest."
        )
    return secrets[0] if len(secrets) == 1 else secrets


def as_generations(secrets: Secrets) -> tuple[Secret, ...]:
    """Return the generations of a secret from a setting, the primary one first."""
    return (secrets,) if isinstance(secrets, Secret) else secrets
