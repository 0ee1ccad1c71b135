"""The settings of a node, from arguments, the environment, a TOML file and defaults, in this order.

:mod:`iris_py.settings.table` gives the names of all settings and their sources. `Config` has their checked values: a field
states the type, the default and the check of a setting.

The file is ``$XDG_CONFIG_HOME/iris/iris.toml`` unless ``config`` or ``IRIS_CONFIG`` names another. An empty variable counts as
unset, except for the secret: an empty secret is more likely a broken deployment.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Literal, cast, get_args

import msgspec

from iris_py.defaults import MAX_MESSAGE_BYTES
from iris_py.errors import ConfigurationError
from iris_py.files.secrets import is_present, parse_secrets, read_exposed, user_secret
from iris_py.net.addresses import format_address, is_loopback, parse_address, without_ports
from iris_py.observe.journal import Observe
from iris_py.settings.keys import (
    CLUSTERS_MAX,
    as_generations,
    as_setting,
    read_clusters_directory,
    settle_clusters,
    settle_keys,
)
from iris_py.settings.layers import (
    CONFIG_BYTES_MAX,
    Layer,
    Source,
    check_file_exposure,
    config_directory,
    config_file,
    environment_layer,
    file_layer,
    first_value,
    state_directory,
)
from iris_py.settings.table import ARGUMENTS, FILE_KEYS, KEYS_CHOICE, SETTINGS, variable_of
from iris_py.settings.values import (
    MESSAGE_BYTES_MIN,
    SEEDS_MAX,
    default_name,
    looks_secret,
    parse_administrator_setting,
    parse_advertise,
    parse_boolean,
    parse_message_bytes,
    parse_name,
    parse_node_name,
    parse_observe,
    parse_seeds,
    parse_text,
    parse_tracing,
    parse_zone,
)
from iris_py.wire.facts import NAME_LENGTH_MAX
from iris_py.wire.names import nearest_name
from iris_py.wire.packets import MESSAGE_BYTES_LIMIT
from iris_security import parse_administrator
from iris_security.keyring import Keyring
from iris_security.secret import Secret

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from iris_py.settings.keys import Secrets
    from iris_py.settings.table import FindSecret
    from iris_py.toml_document import KeyPath
    from iris_py.tracing import TracingSetting

__all__ = [
    "Config",
    "Origin",
    "check_file",
    "companion_config",
    "config_path",
    "default_secret",
    "find_origins",
    "load_config",
    "secret_paths",
]

DEFAULT_NETWORK: Final = "default"
DEFAULT_LISTEN: Final = "127.0.0.1:0"
#: Settings that a keyring contains. Values from sources below the keyring (with lower precedence) have no effect.
_OF_KEYRING: Final = ("network", "strict", "administrator")
#: Stands for the value of a setting that no source gives.
_NOT_GIVEN: Final = object()


def _checked(check: Callable[[object, str], object], **limits: object) -> Mapping[str, Any]:
    """Return the metadata of a field of `Config`.

    Args:
        check: Makes the field's value from the value in a source; its second argument names the source in errors.
        limits: The limits that ``check`` enforces, for the schema of the file: ``choices``, or arguments of `msgspec.Meta`.
    """
    return {"check": check, "limits": limits}


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """The settings of a node. Passed as ``config=``, they replace environment and file."""

    network: str = field(default=DEFAULT_NETWORK, metadata=_checked(parse_name))
    """Name of the network. Nodes with the same secret and different names are in different networks."""
    secret: Secrets | None = field(default=None, repr=False)
    """The network secret, or None for the per-user secret (docs/design.md 2.5). The first of several generations encrypts, the
    others only decrypt (docs/security.md).
    """
    keyring: Keyring | None = field(default=None, repr=False)
    """Keys made by the program itself. A keyring is complete: it replaces `network`, `secret` and `clusters`."""
    listen: str = DEFAULT_LISTEN
    """``host:port`` to listen on, IPv6 in brackets, port 0 for any free one. ``0.0.0.0`` is every address of IPv4, ``[::]`` is
    every address of IPv6 and of IPv4."""
    is_port_shared: bool = False
    """Whether all programs of the machine share the port of ``listen``, as from the environment or the file. While another node
    of the network has the port, this node takes any other.
    """
    advertise: tuple[str, ...] = ()
    """Addresses for other nodes to dial, behind an address translator, a container's published port or a forwarder: ``host`` or
    ``host:port``, the most reachable first. The word ``listen`` stands for the listening address. Empty: the listening address
    alone.
    """
    seeds: tuple[str, ...] = field(default=(), metadata=_checked(parse_seeds, max_length=SEEDS_MAX))
    """``host:port`` of nodes to dial at the start, besides the discovered ones."""
    zone: str = field(default="", metadata=_checked(parse_zone))
    """The location of the node, from large to small, for example ``eu-west/a``."""
    name: str = field(default_factory=default_name, metadata=_checked(parse_node_name, max_length=NAME_LENGTH_MAX))
    """The label of the node for people: at most 64 printable ASCII characters; by default host and program, as in
    ``web-1/orders.py``. Empty for no label.
    """
    discovery: bool = field(default=True, metadata=_checked(parse_boolean))
    """Whether to send and hear beacons and to remember peers."""
    max_message_bytes: int = field(
        default=MAX_MESSAGE_BYTES, metadata=_checked(parse_message_bytes, ge=MESSAGE_BYTES_MIN, le=MESSAGE_BYTES_LIMIT)
    )
    """The largest payload of a request, reply or other message that the node sends, 1 KiB to 64 MiB; the node accepts up to 64
    MiB from others. Too small: documents must be split. Too large: a few messages in flight fill the memory of a small machine.
    """
    tracing: TracingSetting = field(default=None, metadata=_checked(parse_tracing))
    """Whether to make spans of OpenTelemetry: None if the program has set it up before, True also if it does so later, False
    never, or the tracer provider to use (docs/tracing.md).
    """
    observe: Observe = field(default="all", metadata=_checked(parse_observe, choices=get_args(Observe)))
    """The answers to questions of other nodes about this one (docs/observe.md): ``all``; ``counts``, which are numbers without
    the names of clusters, topics, groups and peers; or ``none``.
    """
    busy_poll: bool = field(default=True, metadata=_checked(parse_boolean))
    """Whether the event loop polls for up to 250 us after a request, while no other is in flight, instead of sleeping at once:
    a quick reply then arrives about 60 us sooner. No effect with one processor.
    """
    clusters: Mapping[str, Secrets] | FindSecret = field(default_factory=lambda: MappingProxyType({}), repr=False)
    """Secrets of single clusters, by name; only holders can read or join the cluster. Several generations as for ``secret``. Or
    a function from the name of a cluster to the secret, or None for the network's.
    """
    strict: bool = field(default=False, metadata=_checked(parse_boolean))
    """Whether using a cluster without a secret of its own is an error."""
    administrator: str | None = field(default=None, metadata=_checked(parse_administrator_setting))
    """The public half of the administrator key, as printed by ``iris keys administrator``. The holder of the private half may
    rotate the network's secret. None for no administrator.
    """
    secret_command: tuple[str, ...] | None = None
    """A command that prints the network secret: the program and its arguments. It runs when a node starts and when the node
    reads its keys again.
    """
    state_directory: Path | None = field(default_factory=lambda: state_directory(os.environ))
    """The directory of remembered peers and of the generations signed by the administrator. None if the user has no home
    directory: the node then remembers nothing.
    """
    config_directory: Path | None = field(default_factory=lambda: config_directory(os.environ))
    """The directory of the per-user secret and of ``iris.toml``. None if the user has no home directory: the node then needs a
    secret.
    """

    @property
    def is_zero_configuration(self) -> bool:
        """Whether the network belongs to a single user and machine: per-user secret, loopback, the usual ways to find peers.

        Every node of this network leaves a file among the remembered peers. So the files are complete, and a node without peers
        is surely alone (docs/design.md 5.6).
        """
        has_keys = self.secret is not None or self.keyring is not None or self.secret_command is not None
        return not has_keys and self.discovery and is_loopback(parse_address(self.listen)[0])

    def without_shared_port(self) -> Config:
        """Return the settings of a node that leaves a shared port to the other nodes."""
        host, port = parse_address(self.listen)
        if not (self.is_port_shared and port):
            return self
        return replace(self, listen=format_address(host, 0), is_port_shared=False, advertise=without_ports(self.advertise))


def load_config(
    *, config: Path | str | Config | None = None, environ: Mapping[str, str] = os.environ, **arguments: object
) -> Config:
    """Combine all sources into a `Config`. Arguments override ``IRIS_*`` variables, which override the file and the defaults.

    Args:
        config: Path of the file, or a `Config` that replaces environment and file.
        environ: The environment.
        arguments: Settings by name, as for :func:`iris_py.connect`; None leaves a setting to the lower layers.

    Raises:
        ConfigurationError: A setting is wrong; the text names the setting, its source and the remedy.
        TypeError: No setting has this name.
    """
    for key in arguments:
        if key not in ARGUMENTS:
            raise TypeError(f"there is no setting {key!r}. {nearest_name(key, ARGUMENTS)}")
    if isinstance(config, Config):
        known = {one.name: getattr(config, one.name) for one in fields(config)}
        layers = [
            _argument_layer(arguments),
            Layer("config", {key: value for key, value in known.items() if value is not None}),
        ]
        return _settle(layers, config.state_directory, config.config_directory)
    return _settle(_layers_of(config, environ, arguments), state_directory(environ), config_directory(environ))


def _layers_of(config: Path | str | None, environ: Mapping[str, str], arguments: Mapping[str, object]) -> list[Layer]:
    return [_argument_layer(arguments), environment_layer(environ), file_layer(config, environ)]


def _argument_layer(arguments: Mapping[str, object]) -> Layer:
    return Layer("argument", {key: value for key, value in arguments.items() if value is not None})


def secret_paths(
    *, config: Path | str | None = None, environ: Mapping[str, str] = os.environ, **arguments: object
) -> tuple[Path, ...]:
    """Return the secret files of a node with these settings, the network's first, without reading them.

    Arguments and errors are those of :func:`load_config`.
    """
    layers = _layers_of(config, environ, arguments)
    paths: list[Path] = []
    speaking = next((layer for layer in layers if any(key in layer.values for key in KEYS_CHOICE)), None)
    own = config_directory(environ)
    if speaking is not None and "secret_file" in speaking.values:
        paths.append(speaking.locate(Path(str(speaking.values["secret_file"])), "secret_file"))
    elif speaking is None and own is not None:
        paths.append(own / "secret")
    for layer in layers:
        if layer.path is not None and ("secret" in layer.values or "clusters" in layer.values):
            paths.append(layer.path)
        if "clusters_directory" in layer.values:
            directory = layer.locate(Path(str(layer.values["clusters_directory"])), "clusters_directory")
            with suppress(OSError):  # the file does not exist
                paths += read_clusters_directory(directory)[:CLUSTERS_MAX]
    return tuple(path for path in paths if is_present(path))


class Origin(msgspec.Struct, frozen=True):
    """The source of a setting."""

    source: Source | Literal["default"]
    key: str
    """The name of the setting in this source; for the network secret the effective one, such as ``secret_file``."""
    variable: str = ""
    """The environment variable, if the source is one."""
    path: Path | None = None
    """The file, if the source is one."""
    line: int | None = None


def find_origins(
    *, config: Path | str | None = None, environ: Mapping[str, str] = os.environ, **arguments: object
) -> Mapping[str, tuple[Origin, ...]]:
    """Return the sources of each setting of :func:`load_config`, by its name in `Config`, without the directories.

    Cluster secrets may have several sources: for each cluster the first source with a secret counts. Every other setting has
    one source.

    Args:
        config: As for :func:`load_config`.
        environ: As for :func:`load_config`.
        arguments: As for :func:`load_config`.

    Raises:
        ConfigurationError: A setting is wrong.
    """
    load_config(config=config, environ=environ, **arguments)
    from iris_py.toml_document import find_lines  # as for the parser: most nodes run without a file

    layers = _layers_of(config, environ, arguments)
    path = layers[-1].path
    lines: Mapping[KeyPath, int] = {} if path is None else find_lines(path.read_text())
    joined = {"secret": KEYS_CHOICE, "clusters": ("clusters", "clusters_directory")}
    single = {setting.name: (setting.name,) for setting in SETTINGS if setting.name not in sum(joined.values(), ())}
    found = {}
    for name, keys in (single | joined).items():
        origins = tuple(_origin_of(layer, key, lines) for layer in layers for key in keys if key in layer.values)
        found[name] = origins[: None if name == "clusters" else 1] or (Origin("default", name),)
    return found


def _origin_of(layer: Layer, key: str, lines: Mapping[KeyPath, int]) -> Origin:
    variable = variable_of(key) if layer.source == "variable" else ""
    return Origin(layer.source, key, variable, layer.path, None if layer.path is None else lines.get((key,)))


def config_path(config: Path | str | None = None, environ: Mapping[str, str] = os.environ) -> Path | None:
    """Return the path of the file for :func:`load_config`, existing or not; None if no home directory is known."""
    return config_file(config, environ)


def check_file(path: Path) -> list[tuple[int, str]]:
    """Return all mistakes of a configuration file: for each the line, the mistake and the remedy.

    Arguments and variables are not considered.

    Raises:
        ConfigurationError: The file cannot be read.
    """
    try:
        content, exposure = read_exposed(path, CONFIG_BYTES_MAX)
    except OSError as exc:
        raise ConfigurationError(f"the configuration file {path} cannot be read: {exc.strerror}. Correct the path.") from exc
    import tomllib

    from iris_py.toml_document import find_lines

    try:
        text = content.decode()
        values = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as exc:
        place = re.search(r"at line (\d+)", str(exc))
        return [(int(place[1]) if place else 1, f"this is not TOML: {exc}. Correct the line, or the one before it.")]
    lines = find_lines(text)
    mistakes: list[tuple[int, str]] = []
    for key in [key for key in values if key not in FILE_KEYS]:
        says = 'a secret is given in place of the name of a setting. Write secret = "..."' if looks_secret(key) else ""
        mistakes.append((lines.get((key,), 1), says or f"there is no setting {key!r}. {nearest_name(key, FILE_KEYS)}"))
        del values[key]
    try:
        check_file_exposure(values, exposure, path)
    except ConfigurationError as exc:
        mistakes.append((1, str(exc)))
    return sorted(mistakes + _mistakes_of(values, lines, path))


def _mistakes_of(values: dict[str, object], lines: Mapping[KeyPath, int], path: Path) -> list[tuple[int, str]]:
    """Find all mistakes by checking the settings repeatedly, each time without the wrong setting found before."""
    mistakes = []
    while True:
        try:
            _settle([Layer("file", values, path)], path.parent, path.parent)
        except ConfigurationError as exc:
            wrong = re.search(rf"{re.escape(str(path))}: ([a-z_]+)", str(exc))
            key = wrong[1] if wrong is not None else ""
            clusters = values.get(key)
            name = next((each for each in clusters if f".{each} " in str(exc)), "") if isinstance(clusters, dict) else ""
            line = lines.get((key, name), lines.get((key,), 1))
            mistakes.append((line, str(exc).replace(f"{path}: ", "")))
            if name and isinstance(clusters, dict):
                values[key] = {each: secret for each, secret in clusters.items() if each != name}
            elif values.pop(key, None) is None:
                return mistakes  # the mistake is already in the list
            if key in KEYS_CHOICE and not any(each in values for each in KEYS_CHOICE):
                values["secret"] = Secret(bytes(32))  # a missing secret must not hide other mistakes
        else:
            return mistakes


def make_keyring(config: Config) -> Keyring:
    """Make the keyring from the settings of a node, and run their secret command, if any, to its end.

    Raises:
        ConfigurationError: As for :func:`default_secret`, or the command prints no secret.
    """
    if config.keyring is not None:
        return config.keyring
    if config.secret_command is not None:
        from iris_py.files.secret_command import run_secret_command  # few nodes have a command

        found = as_setting(run_secret_command(config.secret_command, "secret_command"), "the output of secret_command")
    else:
        found = config.secret or default_secret(config)
    secrets, clusters = as_generations(found), config.clusters
    find: FindSecret | None = clusters if callable(clusters) else None
    return Keyring(
        secrets[0],
        network=config.network,
        accepted=secrets[1:],
        clusters=_as_finder(find) if find is not None else cast("Mapping[str, Secrets]", clusters),
        strict=config.strict,
        administrator=None if config.administrator is None else parse_administrator(config.administrator),
    )


#: The hosts by which this machine dials a node that listens at every interface.
_LOOPBACK: Final = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - dialled


def companion_config(config: Config, listened: str, suffix: str) -> Config:
    """Return the settings of a second node in the process of a running node: any port, no advertised address, and the first
    node as a seed, which may be the only one that knows the network.

    Args:
        config: The settings of the first node.
        listened: The listening address of the first node.
        suffix: The end of the label of the second node, after the label of the first: lists of nodes tell the two apart.
    """
    host, _port = parse_address(config.listen)
    listened_host, port = parse_address(listened)
    first = format_address(_LOOPBACK.get(listened_host, listened_host), port)
    name = f"{config.name[: NAME_LENGTH_MAX - len(suffix)]}{suffix}" if config.name else ""
    seeds = (first, *config.seeds[: SEEDS_MAX - 1])
    return replace(config, listen=format_address(host, 0), is_port_shared=False, advertise=(), seeds=seeds, name=name)


def _as_finder(find: FindSecret) -> Callable[[str], tuple[Secret, ...] | None]:
    """Adapt the program's function for secrets of clusters to the form that a keyring takes."""

    def find_own(cluster: str) -> tuple[Secret, ...] | None:
        found = find(cluster)
        return None if found is None else parse_secrets(found, f"the result of clusters= for {cluster!r}")

    return find_own


def default_secret(config: Config, environ: Mapping[str, str] = os.environ) -> Secret:
    """Return the per-user secret, the default of a node without one; the first call ever makes the secret (docs/design.md 2.5).

    Without HOME, as in a service or container, the secret is read from the home directory in the user database, but not made: a
    new secret would silently separate this node from the user's other nodes.

    Raises:
        ConfigurationError: The file is not private to this user, is damaged or cannot be made, or no home directory is known.
    """
    if config.config_directory is None:
        raise ConfigurationError(
            "no secret is set, and this user has no home directory for one. Set IRIS_SECRET or IRIS_SECRET_FILE, or set HOME."
        )
    is_home_known = any(os.path.isabs(environ.get(name, "")) for name in ("HOME", "XDG_CONFIG_HOME"))
    path = config.config_directory / "secret"
    if not is_home_known and config.config_directory == config_directory(environ) and not is_present(path):
        raise ConfigurationError(
            f"HOME is not set and there is no secret at {path}. A new secret would make a separate network with no other "
            "nodes. Set HOME, or set IRIS_SECRET_FILE to a file with the network secret."
        )
    return user_secret(config.config_directory)


def _settle(layers: list[Layer], state: Path | None, configuration: Path | None) -> Config:
    keys = settle_keys(layers)
    value, origin = first_value(layers, "listen", DEFAULT_LISTEN)
    listen = parse_text(value, origin)
    host, _ = parse_address(listen, origin)
    if keys.rank == len(layers) and not is_loopback(host):
        raise ConfigurationError(
            f"{origin}: {listen} accepts connections from other machines, but the per-user secret exists only on this one. "
            "Make a secret with `iris keys new` and give it to every node as IRIS_SECRET, or listen on 127.0.0.1."
        )
    of_keys = layers  # layers that may give settings which a keyring brings itself
    if keys.keyring is not None:
        _check_keyring(layers[: keys.rank + 1], keys.keyring)
        of_keys = []
    values: dict[str, Any] = {}
    for each in fields(Config):
        if "check" in each.metadata:
            value, origin = first_value(of_keys if each.name in _OF_KEYRING else layers, each.name, _NOT_GIVEN)
            if value is not _NOT_GIVEN:
                values[each.name] = each.metadata["check"](value, origin)
    if keys.keyring is not None:
        values["network"] = keys.keyring.network
    return Config(
        secret=keys.secret,
        secret_command=keys.secret_command,
        keyring=keys.keyring,
        listen=listen,
        is_port_shared=_is_port_shared(layers),
        advertise=parse_advertise(*first_value(layers, "advertise", ()), listen),
        clusters=settle_clusters(of_keys),
        state_directory=state,
        config_directory=configuration,
        **values,
    )


def _is_port_shared(layers: Sequence[Layer]) -> bool:
    """Return whether all programs of the machine share the port to listen on."""
    layer = next((layer for layer in layers if "listen" in layer.values), None)
    if layer is None or layer.source == "argument":
        return False
    return layer.source != "config" or layer.values["is_port_shared"] is True


def _check_keyring(layers: Sequence[Layer], keyring: Keyring) -> None:
    """Refuse settings that contradict a keyring, which brings the network, the cluster secrets and the administrator itself.

    Args:
        layers: The sources from the highest precedence down to the source of the keyring, which overrides all lower ones.
        keyring: The keyring.

    Raises:
        ConfigurationError: One of these sources gives a setting that the keyring contains.
    """
    said = layers[0].values.get("network", keyring.network)  # a Config always has a network
    if said != keyring.network:
        raise ConfigurationError(f"network={said!r} contradicts the keyring, which is for {keyring.network!r}. Leave one out.")
    for key, advice in (
        ("clusters", "Make the keyring with clusters=."),
        ("clusters_directory", "Make the keyring with clusters=."),
        ("strict", "Make the keyring with strict=True."),
        ("administrator", "Make the keyring with administrator=."),
    ):
        if first_value(layers, key, None)[0]:
            raise ConfigurationError(f"{key} and keyring are both given. {advice}")
