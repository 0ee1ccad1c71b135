"""The settings of a door, parsed from the text of its file (docs/design.md 17).

:func:`parse_settings` reads the tables of all doors: ``[web]``, ``[nats]``, ``[roles.NAME]``, ``[users.NAME]`` and
``[histories]``. It reports all mistakes together, with their lines.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from ipaddress import IPv4Network, IPv6Network, ip_network
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, TypeAlias
from urllib.parse import urlsplit

from iris_py.doors.nats.settings import NatsSettings, read_nats, read_users
from iris_py.doors.rights import CLUSTER_USES, RULES_MAX, TOPIC_USES, Rights, check_rule
from iris_py.patterns.topic.names import parse_pattern
from iris_py.toml_document import Document, Table, refuse_unfit_text, table_at
from iris_py.wire.addresses import parse_address

if TYPE_CHECKING:
    from collections.abc import Mapping

    from iris_py.doors.nats.users import NatsUser

__all__ = ["FILE_BYTES_MAX", "DoorSettings", "HistorySettings", "WebLimits", "WebSettings", "parse_settings"]

ProxyNetwork: TypeAlias = IPv4Network | IPv6Network

#: The largest file. Larger than any file that people write; too large: memory for a wrong path.
FILE_BYTES_MAX: Final = 1024 * 1024
#: The address where a door listens by default: this machine alone.
LISTEN_DEFAULT: Final = "127.0.0.1:7480"
#: Roles in a file. Too small: a role for each team does not fit; too large: a mistaken file takes minutes.
ROLES_MAX: Final = 256
#: Histories in a file, and their messages and bytes. Too small: pages cannot resume; too large: memory of the door.
HISTORIES_MAX: Final = 64
HISTORY_MESSAGES_DEFAULT: Final = 10_000
HISTORY_MESSAGES_MAX: Final = 1_000_000
HISTORY_BYTES_DEFAULT: Final = 16 * 1024 * 1024
#: Bytes of all histories together; those with ``last`` count twice, since they keep as many bytes again.
HISTORY_BYTES_MAX: Final = 64 * 1024 * 1024
HISTORY_S_DEFAULT: Final = 60
HISTORY_S_MAX: Final = 24 * 3600
#: Origins of pages that may use the door. Each request compares with them.
ORIGINS_MAX: Final = 64


@dataclass(frozen=True, slots=True)
class WebLimits:
    """The limits of a web door. Beyond them clients get the problem ``too-many``."""

    connections: int = 10_000
    """Open connections."""
    connections_per_address: int = 1000
    """Connections of an address without a valid token so far. Too small: a crowd behind an address, which comes back together
    after the end of a door, is refused; too large: a stranger takes the places of all clients."""
    connections_per_subject: int = 100
    """Event streams of a subject at a time."""
    operations_per_s: int = 50
    """Operations of a subject a second."""
    burst: int = 100
    """Operations of a subject at once, after a pause."""
    body_bytes: int = 1024 * 1024
    """Bytes of the body of a request."""
    patterns: int = 4096
    """Distinct patterns of all event streams."""
    window_messages: int = 256
    """Waiting messages of an event stream."""
    window_bytes: int = 1024 * 1024
    """Waiting bytes of an event stream."""


@dataclass(frozen=True, slots=True)
class WebSettings:
    """The table ``[web]``."""

    listen: str = LISTEN_DEFAULT
    """The address to listen at, ``host:port``."""
    public_url: str = ""
    """The address under which clients reach the door, as ``https://app.example/iris``; empty for the listening address."""
    origins: tuple[str, ...] = ()
    """Origins of pages that may use the door, besides its own."""
    certificate_file: str = ""
    """The certificate chain for TLS (PEM); empty without TLS."""
    key_file: str = ""
    """The private key of the certificate (PEM)."""
    behind_proxy: ProxyNetwork | None = None
    """The network of the proxies with forwarded addresses that count; None without a proxy."""
    limits: WebLimits = field(default_factory=WebLimits)
    """The limits."""


@dataclass(frozen=True, slots=True)
class HistorySettings:
    """One history: the last messages of a pattern, kept by the door."""

    pattern: str
    """The pattern."""
    seconds: int = HISTORY_S_DEFAULT
    """The age of the oldest message kept (seconds)."""
    messages: int = HISTORY_MESSAGES_DEFAULT
    """The number of messages kept."""
    bytes: int = HISTORY_BYTES_DEFAULT
    """The bytes of the payloads kept."""
    last: bool = False
    """Whether the newest message of each topic is kept besides."""

    @property
    def bytes_max(self) -> int:
        """The bytes of all payloads: the newest messages of topics take as many again."""
        return self.bytes * (2 if self.last else 1)


@dataclass(frozen=True, slots=True)
class DoorSettings:
    """The content of a door's file."""

    path: str = ""
    """The file name for errors; empty without a file."""
    web: WebSettings = field(default_factory=WebSettings)
    roles: Mapping[str, Rights] = field(default_factory=lambda: MappingProxyType({}))
    """The roles, by name."""
    histories: Mapping[str, HistorySettings] = field(default_factory=lambda: MappingProxyType({}))
    """The histories, by pattern."""
    nats: NatsSettings = field(default_factory=NatsSettings)
    users: Mapping[str, NatsUser] = field(default_factory=lambda: MappingProxyType({}))
    """The users of the NATS door, by name."""


#: The largest value of each limit, and its unit.
_LIMITS: Final[Mapping[str, tuple[int, str]]] = {
    "connections": (1_000_000, "connections"),
    "connections_per_address": (1_000_000, "connections"),
    "connections_per_subject": (1_000_000, "connections"),
    "operations_per_s": (100_000, "operations"),
    "burst": (100_000, "operations"),
    "body_bytes": (64 * 1024 * 1024, "bytes"),
    "patterns": (65_536, "patterns"),
    "window_messages": (65_536, "messages"),
    "window_bytes": (64 * 1024 * 1024, "bytes"),
}
_SECRETS_ADVICE: Final = (
    "The network's secret is a setting of the node (IRIS_SECRET_FILE), and tokens of clients are made by `iris token new`."
)
_TOP_KEYS: Final = ("web", "nats", "roles", "users", "histories")
_WEB_KEYS: Final = ("listen", "public_url", "origins", "certificate_file", "key_file", "behind_proxy", "limits")
_ROLE_KEYS: Final = (*CLUSTER_USES, *TOPIC_USES, "observe", "remote_errors")
_HISTORY_KEYS: Final = ("seconds", "messages", "bytes", "last")


def parse_settings(text: str, path: str) -> DoorSettings:
    """Parse the settings of a door.

    Args:
        text: The content of the file.
        path: The file name for errors.

    Raises:
        ConfigurationError: The file has mistakes. The text has a line for each mistake, beginning with ``path:line: ``, with
            advice on the correction.
    """
    refuse_unfit_text(text, path, FILE_BYTES_MAX, _SECRETS_ADVICE)
    document = Document(text, path)
    Table(document, (), "the file", document.values, _TOP_KEYS)
    roles = _read_roles(document)
    users = read_users(document, roles)
    settings = DoorSettings(
        path=path,
        web=_read_web(document),
        roles=MappingProxyType(roles),
        histories=MappingProxyType(_read_histories(document)),
        nats=read_nats(document, users),
        users=MappingProxyType(users),
    )
    document.check()
    return settings


def check_origin(origin: str) -> None:
    """Check the origin of a page (RFC 6454, section 6.2).

    Raises:
        ValueError: It is no origin; the text suggests a correction.
    """
    parts = urlsplit(origin)
    if parts.scheme not in ("http", "https") or not parts.netloc or f"{parts.scheme}://{parts.netloc}" != origin:
        raise ValueError(
            "an origin is a scheme, a host and perhaps a port, without a path. Write it like 'https://app.example'"
        )
    if "*" in origin or "@" in origin:
        raise ValueError("an origin has no wildcard and no user. Write each origin by itself, like 'https://app.example'")


def check_url(url: str) -> None:
    """Check the public address of a door.

    Raises:
        ValueError: It is no address of HTTP; the text suggests a correction.
    """
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment or "@" in parts.netloc:
        raise ValueError("it is no address of HTTP. Write it like 'https://app.example/iris'")


def _read_web(document: Document) -> WebSettings:
    values = table_at(document, ("web",), document.values.get("web"), "[web]")
    table = Table(document, ("web",), "[web]", values, _WEB_KEYS)
    listen = table.text("listen", "Write it like '127.0.0.1:7480'.", parse_address)
    public_url = table.text("public_url", "Write it like 'https://app.example/iris'.", check_url)
    origins = table.texts("origins", ORIGINS_MAX, "Write it like ['https://app.example'].", check_origin)
    certificate = table.text("certificate_file", "Give the path of a PEM file with the certificate chain.")
    key = table.text("key_file", "Give the path of a PEM file with the private key.")
    for given, missing in (("certificate_file", "key_file"), ("key_file", "certificate_file")):
        if given in table and missing not in table:
            table.complain(given, f"TLS also needs {missing}. Give both, or none.")
    limits = _read_limits(document, values.get("limits"))
    proxy = table.text("behind_proxy", "Write the network of the proxies, like '10.0.0.0/8'.", ip_network)
    return WebSettings(
        listen=listen or LISTEN_DEFAULT,
        public_url=public_url or "",
        origins=tuple(origin for _index, origin in origins),
        certificate_file=certificate or "",
        key_file=key or "",
        behind_proxy=None if proxy is None else ip_network(proxy),
        limits=limits,
    )


def _read_limits(document: Document, values: object) -> WebLimits:
    where = ("web", "limits")
    table = Table(document, where, "[web.limits]", table_at(document, where, values, "[web.limits]"), tuple(_LIMITS))
    defaults = WebLimits()
    return WebLimits(
        **{key: table.integer(key, getattr(defaults, key), 1, most, unit) for key, (most, unit) in _LIMITS.items()}
    )


def _read_roles(document: Document) -> dict[str, Rights]:
    roles: dict[str, Rights] = {}
    given = table_at(document, ("roles",), document.values.get("roles"), "[roles]")
    if len(given) > ROLES_MAX:
        document.complain(("roles",), f"there are {len(given)} roles, and {ROLES_MAX} are allowed. Use {{sub}} in rules.")
    for name, values in list(given.items())[:ROLES_MAX]:
        where = ("roles", name)
        title = f"[roles.{name}]"
        table = Table(document, where, title, table_at(document, where, values, title), _ROLE_KEYS)
        rules: dict[str, tuple[str, ...]] = {}
        for use in (*CLUSTER_USES, *TOPIC_USES):
            found = table.texts(
                use,
                RULES_MAX,
                "Write it like ['quotes'].",
                lambda rule, use=use: check_rule(use, rule),
            )
            rules[use] = tuple(rule for _index, rule in found)
        roles[name] = Rights(
            request=rules["request"],
            survey=rules["survey"],
            broadcast=rules["broadcast"],
            publish=rules["publish"],
            subscribe=rules["subscribe"],
            observe=table.boolean("observe"),
            remote_errors=table.boolean("remote_errors"),
        )
    return roles


def _read_histories(document: Document) -> dict[str, HistorySettings]:
    histories: dict[str, HistorySettings] = {}
    given = table_at(document, ("histories",), document.values.get("histories"), "[histories]")
    if len(given) > HISTORIES_MAX:
        document.complain(("histories",), f"there are {len(given)} histories, and {HISTORIES_MAX} are allowed.")
    for pattern, values in list(given.items())[:HISTORIES_MAX]:
        where = ("histories", pattern)
        try:
            parse_pattern(pattern)
        except ValueError as exc:
            document.complain(where, f"[histories] {exc}")
            continue
        title = f"[histories] {pattern!r}"
        if not isinstance(values, dict):
            document.complain(where, f'{title}: it is a table. Write it like "{pattern}" = {{ seconds = 60 }}.')
            continue
        table = Table(document, where, title, values, _HISTORY_KEYS)
        histories[pattern] = HistorySettings(
            pattern=pattern,
            seconds=table.integer("seconds", HISTORY_S_DEFAULT, 1, HISTORY_S_MAX, "seconds"),
            messages=table.integer("messages", HISTORY_MESSAGES_DEFAULT, 1, HISTORY_MESSAGES_MAX, "messages"),
            bytes=table.integer("bytes", HISTORY_BYTES_DEFAULT, 1, HISTORY_BYTES_MAX, "bytes"),
            last=table.boolean("last"),
        )
    total = sum(each.bytes_max for each in histories.values())
    if total > HISTORY_BYTES_MAX:
        document.complain(
            ("histories",),
            f"[histories] keep up to {total} bytes together, and {HISTORY_BYTES_MAX} are allowed; a history without 'bytes' "
            f"keeps {HISTORY_BYTES_DEFAULT}, and one with 'last' as many again. Give each one fewer bytes.",
        )
    return histories
