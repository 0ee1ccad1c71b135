"""The settings of a node: from arguments, the environment, a TOML file, and defaults, in this order.

=================  ====================================  ==========================================================
argument           environment                           key of the file
=================  ====================================  ==========================================================
``network``        ``IRIS_NETWORK``                      ``network``
``secret``         ``IRIS_SECRET``, ``IRIS_SECRET_FILE``  ``secret``, ``secret_file`` (relative to the file)
``secret_command``  ``IRIS_SECRET_COMMAND`` (words)      ``secret_command`` (a list)
``clusters``       ``IRIS_CLUSTERS_DIRECTORY``           ``[clusters]`` (``name = "its own secret"``)
``strict``         ``IRIS_STRICT``                       ``strict``
``administrator``  ``IRIS_ADMINISTRATOR``                ``administrator``
``listen``         ``IRIS_LISTEN``                       ``listen``
``advertise``      ``IRIS_ADVERTISE`` (separated by commas)  ``advertise`` (a list)
``seeds``          ``IRIS_SEEDS`` (separated by commas)  ``seeds`` (a list)
``zone``           ``IRIS_ZONE``                         ``zone``
``discovery``      ``IRIS_DISCOVERY``                    ``discovery``
``max_message_bytes``  ``IRIS_MAX_MESSAGE_BYTES``        ``max_message_bytes`` (a number)
``tracing``        ``IRIS_TRACING``                      ``tracing``
``observe``        ``IRIS_OBSERVE``                      ``observe``
``busy_poll``      ``IRIS_BUSY_POLL``                    ``busy_poll``
``config``         ``IRIS_CONFIG``
=================  ====================================  ==========================================================

The file is ``$XDG_CONFIG_HOME/iris/iris.toml`` unless ``config`` or ``IRIS_CONFIG`` names another. A variable that is set but
empty counts as not set, except for the secret: an empty one is more likely a broken deployment than a wish for no secret.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, cast, get_args

from iris_overlay.messages import ADDRESSES_MAX
from iris_py.defaults import MAX_MESSAGE_BYTES
from iris_py.errors import ConfigurationError
from iris_py.federation.toml_lines import find_lines
from iris_py.files.secret_command import check_command, run_secret_command, split_command
from iris_py.files.secrets import (
    Exposure,
    check_exposure,
    check_path,
    parse_secrets,
    read_exposed,
    read_secret_file,
    user_secret,
)
from iris_py.logs import EventLogger
from iris_py.net.addresses import LISTENED, is_loopback, parse_address, parse_advertised
from iris_py.observe.desk import Observe
from iris_py.wire.mistyped import nearest_name
from iris_py.wire.packets import MESSAGE_BYTES_LIMIT
from iris_security import SecretFormatError, parse_administrator
from iris_security.keyring import GENERATIONS_MAX, NAME_BYTES_MAX, Keyring
from iris_security.secret import TEXT_PREFIX, Secret

if TYPE_CHECKING:
    from typing import TypeAlias

    from iris_py.federation.toml_lines import KeyPath
    from iris_py.tracing import TracingSetting

__all__ = [
    "Config",
    "Origin",
    "check_file",
    "check_zone",
    "config_path",
    "default_secret",
    "find_origins",
    "load_config",
    "secret_paths",
]

logger = EventLogger(__name__)

SecretLike: TypeAlias = "Secret | str | bytes"
#: Finds the secret of a cluster by its name.
FindSecret: TypeAlias = "Callable[[str], SecretLike | Sequence[SecretLike] | None]"
#: A secret, or its generations, the primary one first.
Secrets: TypeAlias = "Secret | tuple[Secret, ...]"

DEFAULT_NETWORK: Final = "default"
DEFAULT_LISTEN: Final = "127.0.0.1:0"
ZONE_BYTES_MAX: Final = 64
SEEDS_MAX: Final = 64  # as many as the overlay takes: dialled at every start; more is a mistake, and one that answers suffices
CONFIG_BYTES_MAX: Final = 1 << 20
MESSAGE_BYTES_MIN: Final = 1024  # less is a mistake in the unit

_ENVIRONMENT: Final = (
    "network",
    "secret",
    "secret_file",
    "secret_command",
    "listen",
    "advertise",
    "seeds",
    "zone",
    "discovery",
    "max_message_bytes",
    "tracing",
    "observe",
    "busy_poll",
    "clusters_directory",
    "strict",
    "administrator",
)
#: The variables that mean something.
_VARIABLES: Final = (*(f"IRIS_{key.upper()}" for key in _ENVIRONMENT), "IRIS_CONFIG")
#: Those that somebody was warned of. The environment is one for the process, and so is this.
_warned: Final[set[str]] = set()
_FILE_KEYS: Final = (*_ENVIRONMENT, "clusters")
#: What :func:`iris_py.connect` takes.
_ARGUMENTS: Final = (*_ENVIRONMENT, "keyring", "clusters")
#: Files in a directory with secrets of clusters. More is another directory, named by mistake.
CLUSTERS_MAX: Final = 1024
_KEYS_CHOICE: Final = ("keyring", "secret", "secret_file", "secret_command")  # one of these answers "which keys"
_TRUE: Final = frozenset({"1", "true", "yes", "on"})
_FALSE: Final = frozenset({"0", "false", "no", "off"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """The settings of a node. Pass it as ``config=`` to take the place of environment and file."""

    network: str = DEFAULT_NETWORK
    """Name of the network. Same secret, different names: different networks."""
    secret: Secrets | None = field(default=None, repr=False)
    """The network secret, or None for the per-user secret (docs/design.md 2.5). Of several generations the first one seals, and
    the others are accepted (docs/security.md)."""
    keyring: Keyring | None = field(default=None, repr=False)
    """Keys made by the program itself. Complete in itself: `network`, `secret` and `clusters` then come from it."""
    listen: str = DEFAULT_LISTEN
    """``host:port`` to listen on, IPv6 in brackets, port 0 for any free one."""
    advertise: tuple[str, ...] = ()
    """Addresses that others are told to dial instead of what the node listens on, where an address translator, a container's
    published port or a forwarder stands before it: ``host`` or ``host:port``, the most reachable first; ``listen`` among them
    stands for what it listens on. Nothing: just that."""
    seeds: tuple[str, ...] = ()
    """``host:port`` of nodes to dial at the start, besides those that are discovered."""
    zone: str = ""
    """Where the node is, from large to small, for example ``eu-west/a``."""
    discovery: bool = True
    """Whether to send and hear beacons and to remember peers."""
    max_message_bytes: int = MAX_MESSAGE_BYTES
    """The largest payload of a request, reply or other message that the node sends, 1 KiB to 64 MiB; of others it takes up to
    64 MiB. Too small: documents must be split. Too large: a few under way at once fill the memory of a small machine."""
    tracing: TracingSetting = None
    """Whether spans of OpenTelemetry are made: None if the program has set it up before, True also if it does so later, False
    never, or the provider of tracers to make them with (docs/tracing.md)."""
    observe: Observe = "all"
    """How much the node tells other nodes of the network that ask about it (docs/observe.md): ``all``; ``counts``, which are
    numbers without the names of clusters, topics and peers; or ``none``."""
    busy_poll: bool = True
    """Whether the event loop turns for up to 250 us after a request, when no other is under way, rather than sleep at once: a
    quick reply then comes some 60 us sooner. Not where there is one processor only."""
    clusters: Mapping[str, Secrets] | FindSecret = field(default_factory=lambda: MappingProxyType({}), repr=False)
    """Secrets of single clusters that not the whole network may read or join; several generations as for ``secret``. Or a
    function from the name of a cluster to its secret, None for the network's."""
    strict: bool = False
    """Whether it is an error to use a cluster that has no secret of its own here."""
    administrator: str | None = None
    """The public half of the key of who may exchange the network's secret while it runs, as ``iris keys administrator`` shows
    it; None if nobody may."""
    secret_command: tuple[str, ...] | None = None
    """A command that prints the network secret: the program and its arguments. It is run when a node starts, and when it reads
    its keys again."""
    state_directory: Path = field(default_factory=lambda: _xdg_directory(os.environ, "XDG_STATE_HOME", ".local/state"))
    """Where remembered peers are kept, and what the administrator has made of the network's secret."""
    config_directory: Path = field(default_factory=lambda: _xdg_directory(os.environ, "XDG_CONFIG_HOME", ".config"))
    """Where the per-user secret and ``iris.toml`` are kept."""

    @property
    def is_zero_configuration(self) -> bool:
        """Whether this is the network of one user on one machine: per-user secret, loopback, the usual ways to find peers.

        Every node of such a network leaves a file among the remembered peers, so these are complete and "nobody else is here"
        is certain (docs/design.md 5.6).
        """
        has_keys = self.secret is not None or self.keyring is not None or self.secret_command is not None
        return not has_keys and self.discovery and is_loopback(parse_address(self.listen)[0])


@dataclass(frozen=True, slots=True)
class _Layer:
    """One source of settings."""

    values: Mapping[str, object] = field(repr=False)  # secrets are among them
    prefix: str = ""
    upper: bool = False
    directory: Path | None = None  # relative paths in `values` start here
    path: Path | None = None  # of the file that it was read from

    def locate(self, path: Path) -> Path:
        """Return where a path of this layer leads to."""
        path = path.expanduser()
        return path if self.directory is None else self.directory / path

    def origin(self, key: str) -> str:
        """Return the name of a setting of this layer, for errors."""
        return self.prefix + (key.upper() if self.upper else key)


@dataclass(frozen=True, slots=True)
class _Keys:
    """The one source of the keys of a node; nothing for the per-user secret."""

    secret: Secrets | None = field(default=None, repr=False)
    keyring: Keyring | None = field(default=None, repr=False)
    secret_command: tuple[str, ...] | None = None


def load_config(
    *, config: Path | str | Config | None = None, environ: Mapping[str, str] = os.environ, **arguments: object
) -> Config:
    """Settle every setting: arguments before ``IRIS_*`` variables before the file before defaults.

    Args:
        config: Path of the file, or a `Config` that replaces environment and file.
        environ: The environment.
        arguments: Settings by name, as :func:`iris_py.connect` takes them; None says nothing of one.

    Raises:
        ConfigurationError: A setting is wrong; the text says which, from where, and what to do.
        TypeError: There is no setting of that name.
    """
    for key in arguments:
        if key not in _ARGUMENTS:
            raise TypeError(f"there is no setting {key!r}. {nearest_name(key, _ARGUMENTS)}")
    if isinstance(config, Config):
        known = {one.name: getattr(config, one.name) for one in fields(config)}
        layers = [
            _Layer({key: value for key, value in arguments.items() if value is not None}),
            _Layer({key: value for key, value in known.items() if value is not None}, prefix="Config."),
        ]
        return _settle(layers, config.state_directory, config.config_directory)
    return _settle(_layers_of(config, environ, arguments), *_directories(environ))


def _layers_of(config: Path | str | None, environ: Mapping[str, str], arguments: Mapping[str, object]) -> list[_Layer]:
    said = _Layer({key: value for key, value in arguments.items() if value is not None})
    return [said, _environment_layer(environ), _file_layer(config, environ, _directories(environ)[1])]


def _directories(environ: Mapping[str, str]) -> tuple[Path, Path]:
    """Return the directories of state and of configuration."""
    return _xdg_directory(environ, "XDG_STATE_HOME", ".local/state"), _xdg_directory(environ, "XDG_CONFIG_HOME", ".config")


def secret_paths(
    *, config: Path | str | None = None, environ: Mapping[str, str] = os.environ, **arguments: object
) -> tuple[Path, ...]:
    """Return the files that a node with these settings takes secrets from, that of the network first; none is read.

    The arguments and the errors of the file are those of :func:`load_config`.
    """
    layers = _layers_of(config, environ, arguments)
    paths: list[Path] = []
    speaking = next((layer for layer in layers if any(key in layer.values for key in _KEYS_CHOICE)), None)
    if speaking is None:
        paths.append(_directories(environ)[1] / "secret")
    elif "secret_file" in speaking.values:
        paths.append(speaking.locate(Path(str(speaking.values["secret_file"]))))
    for layer in layers:
        if layer.path is not None and ("secret" in layer.values or "clusters" in layer.values):
            paths.append(layer.path)
        if "clusters_directory" in layer.values:
            directory = layer.locate(Path(str(layer.values["clusters_directory"])))
            paths += [path for path in sorted(directory.glob("[!.]*")) if path.is_file()][:CLUSTERS_MAX]
    return tuple(path for path in paths if path.exists())


@dataclass(frozen=True, slots=True)
class Origin:
    """The place that a setting comes from."""

    source: str
    """``argument``, ``variable``, ``file`` or ``default``."""
    key: str
    """The name of the setting there; of the network secret that of the one that counts, such as ``secret_file``."""
    variable: str = ""
    """The variable of the environment, if it is one."""
    path: Path | None = None
    """The file, if it is one."""
    line: int | None = None


def find_origins(
    *, config: Path | str | None = None, environ: Mapping[str, str] = os.environ, **arguments: object
) -> Mapping[str, Origin]:
    """Return where each setting of :func:`load_config` comes from, by its name in `Config`; directories are left out.

    Args:
        config: As of :func:`load_config`.
        environ: As of :func:`load_config`.
        arguments: As of :func:`load_config`.

    Raises:
        ConfigurationError: A setting is wrong.
    """
    load_config(config=config, environ=environ, **arguments)
    layers = _layers_of(config, environ, arguments)
    path = config_path(config, environ)
    lines: Mapping[KeyPath, int] = find_lines(path.read_text()) if layers[2].values else {}
    found = {}
    names: dict[str, tuple[str, ...]] = {
        key: (key,) for key in _ENVIRONMENT if key not in (*_KEYS_CHOICE, "clusters_directory")
    }
    for name, keys in (names | {"secret": _KEYS_CHOICE, "clusters": ("clusters", "clusters_directory")}).items():
        found[name] = Origin("default", name)
        for source, layer in zip(("argument", "variable", "file"), layers, strict=True):
            chosen = next((key for key in keys if key in layer.values), None)
            if chosen is not None:
                variable = f"IRIS_{chosen.upper()}" if source == "variable" else ""
                is_file = source == "file"
                line = lines.get((chosen,)) if is_file else None
                found[name] = Origin(source, chosen, variable, path if is_file else None, line)
                break
    return found


def config_path(config: Path | str | None = None, environ: Mapping[str, str] = os.environ) -> Path:
    """Return the file that :func:`load_config` reads, whether it exists or not."""
    named = config if config is not None else environ.get("IRIS_CONFIG", "").strip() or None
    return _directories(environ)[1] / "iris.toml" if named is None else Path(named).expanduser()


def check_file(path: Path) -> list[tuple[int, str]]:
    """Return all mistakes of a configuration file: for each its line, and what is wrong and what to write.

    It is looked at alone, without arguments and variables.

    Raises:
        ConfigurationError: The file cannot be read.
    """
    try:
        content, exposure = read_exposed(path, CONFIG_BYTES_MAX)
    except OSError as exc:
        raise ConfigurationError(f"the configuration file {path} cannot be read: {exc.strerror}. Correct the path.") from exc
    import tomllib

    try:
        text = content.decode()
        values = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as exc:
        place = re.search(r"at line (\d+)", str(exc))
        return [(int(place[1]) if place else 1, f"this is no TOML: {exc}. Correct the line, or the one before it.")]
    lines = find_lines(text)
    mistakes: list[tuple[int, str]] = []
    for key in [key for key in values if key not in _FILE_KEYS]:
        says = 'a secret stands where the name of a setting belongs. Write secret = "..."' if _looks_secret(key) else ""
        mistakes.append((lines.get((key,), 1), says or f"there is no setting {key!r}. {nearest_name(key, _FILE_KEYS)}"))
        del values[key]
    try:
        if "secret" in values or "clusters" in values or ("secret_command" in values and exposure is Exposure.WRITABLE):
            check_exposure(exposure, path)
    except ConfigurationError as exc:
        mistakes.append((1, str(exc)))
    return sorted(mistakes + _mistakes_of(values, lines, path))


def _mistakes_of(values: dict[str, object], lines: Mapping[KeyPath, int], path: Path) -> list[tuple[int, str]]:
    """Settle settings again and again, each time without the one that was wrong."""
    mistakes = []
    while True:
        try:
            _settle([_Layer(values, prefix=f"{path}: ", directory=path.parent)], path.parent, path.parent)
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
                return mistakes  # whatever it was, it was said
            if key in _KEYS_CHOICE and not any(each in values for each in _KEYS_CHOICE):
                values["secret"] = Secret(bytes(32))  # others are not wrong for want of one
        else:
            return mistakes


def make_keyring(config: Config) -> Keyring:
    """Make the keyring that the settings of a node say. If they name a command, it is run, and waited for.

    Raises:
        ConfigurationError: As of :func:`default_secret`, or the command prints no secret.
    """
    if config.keyring is not None:
        return config.keyring
    if config.secret_command is not None:
        found = _as_setting(run_secret_command(config.secret_command, "secret_command"), "the output of secret_command")
    else:
        found = config.secret or default_secret(config)
    secrets, clusters = _as_generations(found), config.clusters
    find: FindSecret | None = clusters if callable(clusters) else None
    return Keyring(
        secrets[0],
        network=config.network,
        accepted=secrets[1:],
        clusters=_as_finder(find) if find is not None else cast("Mapping[str, Secrets]", clusters),
        strict=config.strict,
        administrator=None if config.administrator is None else parse_administrator(config.administrator),
    )


def _as_finder(find: FindSecret) -> Callable[[str], tuple[Secret, ...] | None]:
    """Return a function of the program as a keyring takes it."""

    def find_own(cluster: str) -> tuple[Secret, ...] | None:
        found = find(cluster)
        return None if found is None else parse_secrets(found, f"what clusters= returns for {cluster!r}")

    return find_own


def default_secret(config: Config, environ: Mapping[str, str] = os.environ) -> Secret:
    """Return the secret of a node that was given none: the per-user secret, made at the first call ever (docs/design.md 2.5).

    Where nothing says where the user's home is, as in a service or a container, an existing secret is taken from the home
    directory that the system has for the user, and none is made: others of this user would not meet this node, silently.

    Raises:
        ConfigurationError: The file is not private to this user, damaged, cannot be made, or HOME does not say where.
    """
    is_home_known = any(os.path.isabs(environ.get(name, "")) for name in ("HOME", "XDG_CONFIG_HOME"))
    path = config.config_directory / "secret"
    if not is_home_known and path == _xdg_directory(environ, "XDG_CONFIG_HOME", ".config") / "secret" and not path.exists():
        raise ConfigurationError(
            f"HOME is not set and there is no secret at {path}: a new one would be a network that nobody else is in. "
            "Set HOME, or set IRIS_SECRET_FILE to a file with the network secret."
        )
    return user_secret(config.config_directory)


def _settle(layers: Sequence[_Layer], state_directory: Path, config_directory: Path) -> Config:
    keys = _settle_keys(layers)
    network = _settle_network(layers, keys.keyring)
    value, origin = _first(layers, "listen", DEFAULT_LISTEN)
    listen = _text(value, origin)
    host, _ = parse_address(listen, origin)
    if keys == _Keys() and not is_loopback(host):
        raise ConfigurationError(
            f"{origin}: {listen} is open to other machines, and the per-user secret stays on this one. "
            "Make a secret with `iris keys new` and give it to every node as IRIS_SECRET, or listen on 127.0.0.1."
        )
    advertise = _advertise(*_first(layers, "advertise", ()), listen)
    zone, zone_origin = _first(layers, "zone", "")
    discovery, discovery_origin = _first(layers, "discovery", True)
    observe, observe_origin = _first(layers, "observe", "all")
    busy_poll, busy_poll_origin = _first(layers, "busy_poll", True)
    clusters = _settle_clusters(layers)
    if keys.keyring is not None and clusters:
        raise ConfigurationError("clusters and keyring are both given, and a keyring brings its own. Leave one out.")
    strict, strict_origin = _first(layers, "strict", False)
    if keys.keyring is not None and strict:
        raise ConfigurationError("strict and keyring are both given. Make the keyring with strict=True.")
    administrator = _settle_administrator(layers)
    if keys.keyring is not None and administrator is not None:
        raise ConfigurationError("administrator and keyring are both given. Make the keyring with administrator=.")
    return Config(
        network=network,
        secret=keys.secret,
        secret_command=keys.secret_command,
        keyring=keys.keyring,
        listen=listen,
        advertise=advertise,
        seeds=_seeds(*_first(layers, "seeds", ())),
        zone=_name(zone, zone_origin, ZONE_BYTES_MAX, may_be_empty=True),
        discovery=_boolean(discovery, discovery_origin),
        max_message_bytes=_message_bytes(*_first(layers, "max_message_bytes", MAX_MESSAGE_BYTES)),
        tracing=_tracing(*_first(layers, "tracing", None)),
        observe=_observe(observe, observe_origin),
        busy_poll=_boolean(busy_poll, busy_poll_origin),
        clusters=clusters,
        strict=_boolean(strict, strict_origin),
        administrator=administrator,
        state_directory=state_directory,
        config_directory=config_directory,
    )


def _first(layers: Sequence[_Layer], key: str, default: object) -> tuple[object, str]:
    """Return the value of the first layer that has one, and what to call it in an error."""
    for layer in layers:
        if key in layer.values:
            return layer.values[key], layer.origin(key)
    return default, key


def _settle_keys(layers: Sequence[_Layer]) -> _Keys:
    """Find the keys in the first layer that speaks of any: a secret given as argument overrules a keyring of a Config."""
    for layer in layers:
        chosen = [key for key in _KEYS_CHOICE if key in layer.values]
        if len(chosen) > 1:
            both = " and ".join(layer.origin(key) for key in chosen)
            raise ConfigurationError(f"{both} are both given, and only one can count. Leave one out.")
        if not chosen:
            continue
        key, origin, value = chosen[0], layer.origin(chosen[0]), layer.values[chosen[0]]
        if key == "keyring":
            if not isinstance(value, Keyring):
                raise ConfigurationError(
                    f"{origin} is no Keyring but {type(value).__name__}. Make one with Keyring(primary, ...)."
                )
            return _Keys(keyring=value)
        if key == "secret_command":
            text = value if layer.upper and isinstance(value, str) else None  # the environment has nothing but text
            command = check_command(value, origin, layer.directory) if text is None else split_command(text, origin)
            return _Keys(secret_command=command)
        if key == "secret_file":
            path = layer.locate(value if isinstance(value, Path) else Path(_text(value, origin)))
            return _Keys(_as_setting(read_secret_file(path, origin), origin))
        return _Keys(_as_setting(parse_secrets(value, origin), origin))
    return _Keys()


def _as_setting(secrets: tuple[Secret, ...], origin: str) -> Secrets:
    if len(secrets) > GENERATIONS_MAX:
        raise ConfigurationError(
            f"{origin} has {len(secrets)} generations, and {GENERATIONS_MAX} are allowed. Retire the oldest."
        )
    return secrets[0] if len(secrets) == 1 else secrets


def _as_generations(secrets: Secrets) -> tuple[Secret, ...]:
    return (secrets,) if isinstance(secrets, Secret) else secrets


def _settle_clusters(layers: Sequence[_Layer]) -> Mapping[str, Secrets] | FindSecret:
    """Collect the secrets of clusters of all layers; of one that several name, that of the first one counts."""
    clusters: dict[str, Secrets] = {}
    find: FindSecret | None = None
    for layer in reversed(layers):
        directory, origin = layer.values.get("clusters_directory"), layer.origin("clusters_directory")
        if directory is not None:
            path = layer.locate(directory if isinstance(directory, Path) else Path(_text(directory, origin)))
            clusters |= _read_clusters(path, origin)
        given = layer.values.get("clusters", {})
        if callable(given):
            find = given
        else:
            clusters |= _clusters(given, layer.origin("clusters"))
    if find is None or not clusters:
        return find or MappingProxyType(clusters)
    first, others = find, clusters
    return lambda name: first(name) or others.get(name)


def _settle_administrator(layers: Sequence[_Layer]) -> str | None:
    value, origin = _first(layers, "administrator", None)
    if value is None:
        return None
    text = _text(value, origin)
    try:
        parse_administrator(text)
    except SecretFormatError as exc:
        raise ConfigurationError(f"{origin}: {exc}. `iris keys administrator` makes both halves.") from None
    return text.strip()


def _read_clusters(directory: Path, origin: str) -> dict[str, Secrets]:
    """Read the secrets of clusters from a directory: each file has the name of its cluster, as systems mount secrets."""
    check_path(directory, origin)
    try:
        names = sorted(name for name in os.listdir(directory) if not name.startswith(".") and (directory / name).is_file())
    except OSError as exc:
        raise ConfigurationError(f"{origin}: {directory} cannot be read: {exc.strerror}. Correct the path.") from exc
    if len(names) > CLUSTERS_MAX:
        raise ConfigurationError(
            f"{origin}: {directory} has {len(names)} files, and {CLUSTERS_MAX} are allowed. Is it the right one?"
        )
    if any(map(_looks_secret, names)):
        raise ConfigurationError(f"{origin}: a file in {directory} has a secret as its name. Name it after its cluster.")
    where = f"a file in {directory}"
    return {
        _name(name, where, NAME_BYTES_MAX): _as_setting(read_secret_file(directory / name, origin), f"{origin}: {name}")
        for name in names
    }


def _settle_network(layers: Sequence[_Layer], keyring: Keyring | None) -> str:
    """Return the network's name. A keyring brings its own; an argument that contradicts it is a mistake, not a choice."""
    if keyring is None:
        return _name(*_first(layers, "network", DEFAULT_NETWORK), NAME_BYTES_MAX)
    said = layers[0].values.get("network", keyring.network)
    if said != keyring.network:
        raise ConfigurationError(f"network={said!r} contradicts the keyring, which is for {keyring.network!r}. Leave one out.")
    return keyring.network


def _environment_layer(environ: Mapping[str, str]) -> _Layer:
    values: dict[str, object] = {}
    _warn_of_typos(environ)
    for key in _ENVIRONMENT:
        text = environ.get(f"IRIS_{key.upper()}")
        if text is None:
            continue
        if text.strip():
            values[key] = text.strip()
        elif key in _KEYS_CHOICE:
            raise ConfigurationError(
                f"IRIS_{key.upper()} is set but empty. Unset it to use the per-user secret, or give it a secret."
            )
    return _Layer(values, prefix="IRIS_", upper=True)


def _file_layer(config: Path | str | None, environ: Mapping[str, str], config_directory: Path) -> _Layer:
    """Read the file. One that somebody named must exist; the one at the usual place may be missing."""
    named = config if config is not None else environ.get("IRIS_CONFIG", "").strip() or None
    check_path(named or "", "IRIS_CONFIG" if config is None else "config")
    path = config_directory / "iris.toml" if named is None else Path(named).expanduser()
    try:
        content, exposure = read_exposed(path, CONFIG_BYTES_MAX)
    except (FileNotFoundError, NotADirectoryError):
        if named is None:
            return _Layer({})
        raise ConfigurationError(f"the configuration file {path} does not exist. Correct config= or IRIS_CONFIG.") from None
    except OSError as exc:
        raise ConfigurationError(
            f"the configuration file {path} cannot be read: {exc.strerror}. Correct its permissions."
        ) from exc

    import tomllib  # imported only here: most nodes run without a file

    try:
        values = tomllib.loads(content.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as exc:
        raise ConfigurationError(f"{path} is not valid TOML: {exc}. Correct the file.") from exc
    for key in values:
        if _looks_secret(key):
            raise ConfigurationError(f'{path}: a secret stands where the name of a setting belongs. Write secret = "...".')
        if key not in _FILE_KEYS:
            raise ConfigurationError(f"{path}: unknown key {key!r}. {nearest_name(key, _FILE_KEYS)}")
    is_command_open = "secret_command" in values and exposure is Exposure.WRITABLE  # others could choose what is run
    if "secret" in values or "clusters" in values or is_command_open:
        check_exposure(exposure, path)
    return _Layer(values, prefix=f"{path}: ", directory=path.parent, path=path)


def _warn_of_typos(environ: Mapping[str, str]) -> None:
    """Warn of ``IRIS_*`` variables that set nothing: once each, for other products have variables of such names, too."""
    for name in sorted(environ):
        if name.startswith("IRIS_") and name not in _VARIABLES and name not in _warned:
            _warned.add(name)
            logger.warning(
                "variable_unknown",
                "the environment variable %s has no effect. %s",
                name,
                nearest_name(name, _VARIABLES),
                variable=name,
            )


def _xdg_directory(environ: Mapping[str, str], variable: str, below_home: str) -> Path:
    """Return Iris's directory below an XDG base; the XDG specification says to ignore a relative base."""
    base = environ.get(variable, "")
    if os.path.isabs(base):
        return Path(base) / "iris"
    home = environ.get("HOME", "")
    if os.path.isabs(home):
        return Path(home) / below_home / "iris"
    import pwd  # imported only where HOME says nothing: in services, containers and cron jobs

    try:
        return Path(pwd.getpwuid(os.geteuid()).pw_dir) / below_home / "iris"
    except KeyError:
        raise ConfigurationError(f"this user has no home directory. Set {variable} to a directory of yours.") from None


def _text(value: object, origin: str) -> str:
    if not isinstance(value, str):
        raise ConfigurationError(f"{origin} must be text, not {type(value).__name__}. Correct it.")
    return value


def _name(value: object, origin: str, bytes_max: int, *, may_be_empty: bool = False) -> str:
    text = _text(value, origin)
    if not text and not may_be_empty:
        raise ConfigurationError(f"{origin} is empty. Give it a name, or leave it out.")
    if not text.isprintable() or text != text.strip():  # a lone surrogate, which UTF-8 cannot say, is not printable either
        raise ConfigurationError(f"{origin} {text!r} has blanks at its ends or unprintable characters. Remove them.")
    if len(text.encode()) > bytes_max:
        raise ConfigurationError(f"{origin} is {len(text.encode())} bytes long, and {bytes_max} are allowed. Shorten it.")
    return text


def check_zone(zone: str | None, origin: str) -> str:
    """Return a zone that somebody asks for; empty if it is None.

    Raises:
        ConfigurationError: It is not one that a node could be in.
    """
    return "" if zone is None else _name(zone, origin, ZONE_BYTES_MAX)


def _tracing(value: object, origin: str) -> TracingSetting:
    if value is None:
        return None
    if hasattr(value, "get_tracer"):
        return cast("TracingSetting", value)
    return _boolean(value, origin)


def _observe(value: object, origin: str) -> Observe:
    for known in get_args(Observe):
        if value == known:
            return cast("Observe", known)
    raise ConfigurationError(f"{origin} is {value!r}. Use one of {', '.join(get_args(Observe))}.")


def _boolean(value: object, origin: str) -> bool:
    if isinstance(value, bool):
        return value
    word = value.lower() if isinstance(value, str) else ""
    if word not in _TRUE | _FALSE:
        raise ConfigurationError(f"{origin} is {value!r}, neither yes nor no. Use true or false.")
    return word in _TRUE


def _message_bytes(value: object, origin: str) -> int:
    """Accept a whole number, or the text of one: the form of the environment."""
    if isinstance(value, str) and value.isascii() and value.isdigit():
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool) or not MESSAGE_BYTES_MIN <= value <= MESSAGE_BYTES_LIMIT:
        raise ConfigurationError(
            f"{origin} is {value!r}, not a number of bytes from {MESSAGE_BYTES_MIN} to {MESSAGE_BYTES_LIMIT}. Correct it."
        )
    return value


def _addresses(value: object, origin: str, entries_max: int, advice: str) -> tuple[str, ...]:
    """Accept a sequence, or one text separated by commas: the form of the environment."""
    parts = [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value
    if not isinstance(parts, Sequence) or isinstance(parts, bytes):
        raise ConfigurationError(f"{origin} must be a list of host:port, not {type(value).__name__}. Correct it.")
    if len(parts) > entries_max:
        raise ConfigurationError(f"{origin} has {len(parts)} entries, and {entries_max} are allowed. {advice}")
    return tuple(dict.fromkeys(_text(part, origin) for part in parts))


def _advertise(value: object, origin: str, listen: str) -> tuple[str, ...]:
    advertised = _addresses(value, origin, ADDRESSES_MAX, "Each is one more to dial for who looks for a dead node.")
    host, listen_port = parse_address(listen)
    is_distant = False
    for text in advertised:
        if text == LISTENED:
            continue
        name, port = parse_advertised(text, origin)
        is_distant |= not is_loopback(name)
        if port is not None and listen_port == 0:
            raise ConfigurationError(
                f"{origin}: {text} says where connections come in, and listen={listen} takes any free port, which nothing can "
                "pass them on to. Give listen a port, or leave out the one in what is advertised."
            )
    if is_distant and is_loopback(host):
        logger.warning(
            "address_unreachable",
            "%s tells other machines to dial this node, and it listens on %s, which they cannot reach unless something on this "
            "machine passes their connections on. Listen on 0.0.0.0 and a port of your choice, for example",
            origin,
            listen,
        )
    return advertised


def _seeds(value: object, origin: str) -> tuple[str, ...]:
    seeds = _addresses(value, origin, SEEDS_MAX, "A few that answer suffice.")
    for seed in seeds:
        parse_address(seed, origin, port_min=1)
    return seeds


def _looks_secret(text: str) -> bool:
    """Tell whether a text that is about to be shown may be a secret."""
    return TEXT_PREFIX in text


def _clusters(value: object, origin: str) -> Mapping[str, Secrets]:
    if not isinstance(value, Mapping):
        raise ConfigurationError(f'{origin} must be a table of name = "secret", not {type(value).__name__}. Correct it.')
    if any(isinstance(name, str) and _looks_secret(name) for name in value):
        raise ConfigurationError(f'a secret stands where the name of a cluster belongs in {origin}. Write name = "secret".')
    return MappingProxyType(
        {
            _name(name, f"the name of a cluster in {origin}", NAME_BYTES_MAX): _as_setting(
                parse_secrets(secret, f"{origin}.{name}"), f"{origin}.{name}"
            )
            for name, secret in value.items()
        }
    )
