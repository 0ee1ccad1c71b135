"""The settings of a NATS door: the tables ``[nats]``, ``[nats.limits]`` and ``[users.NAME]`` of a door's file."""

from __future__ import annotations

from dataclasses import dataclass, field
from ipaddress import IPv4Network, IPv6Network, ip_network
from typing import TYPE_CHECKING, Final, TypeAlias

from iris_py.doors.nats.nkeys import decode_user_key
from iris_py.doors.nats.passwords import read_password_hash, read_token_hash
from iris_py.doors.nats.users import NatsUser, SubjectRules, check_user_rule, read_user_rules, rules_of_role
from iris_py.doors.rights import RULES_MAX, TOPIC_USES, check_subject
from iris_py.toml_document import Table, table_at
from iris_py.wire.addresses import parse_address

if TYPE_CHECKING:
    from collections.abc import Mapping

    from iris_py.doors.rights import Rights, TopicUse
    from iris_py.toml_document import Document

__all__ = ["NatsLimits", "NatsSettings", "read_nats", "read_users"]

NatsProxyNetwork: TypeAlias = IPv4Network | IPv6Network

#: The address where a NATS door listens by default: this machine alone, at the port of NATS.
LISTEN_DEFAULT: Final = "127.0.0.1:4222"
SERVER_NAME_DEFAULT: Final = "iris"
#: Users in a file. Too small: a user for each program does not fit; too large: a mistaken file takes minutes.
USERS_MAX: Final = 4096


@dataclass(frozen=True, slots=True)
class NatsLimits:
    """The limits of a NATS door."""

    connections: int = 10_000
    """Open connections."""
    connections_per_address: int = 64
    """Connections of an address before valid credentials."""
    connections_per_user: int = 1000
    """Connections of one user."""
    payload_bytes: int = 1024 * 1024
    """Bytes of a message of a client, with its headers."""
    subscriptions_per_client: int = 10_000
    """Subscriptions of one connection."""
    subscriptions: int = 200_000
    """Subscriptions of all connections."""
    patterns: int = 50_000
    """Distinct patterns of all subscriptions."""
    waiting_bytes: int = 8 * 1024 * 1024
    """Bytes that wait for one connection."""
    waiting_bytes_total: int = 256 * 1024 * 1024
    """Bytes that wait for all connections."""


@dataclass(frozen=True, slots=True)
class NatsSettings:
    """The table ``[nats]``."""

    listen: str = LISTEN_DEFAULT
    """The address to listen at, ``host:port``."""
    advertise: str = ""
    """The address that other doors tell clients; empty for the listening address."""
    server_name: str = SERVER_NAME_DEFAULT
    """The name of the server that clients are told."""
    certificate_file: str = ""
    """The certificate chain for TLS (PEM); empty without TLS."""
    key_file: str = ""
    """The private key of the certificate (PEM)."""
    client_ca_file: str = ""
    """The certificates of those who sign certificates of clients (PEM); empty to ask clients for none."""
    tls_first: bool = False
    """Whether TLS begins before ``INFO``."""
    behind_proxy: NatsProxyNetwork | None = None
    """The network of the proxies that have the certificate; None without a proxy."""
    no_user: str = ""
    """The user of clients without credentials; empty to refuse these."""
    tokens: bool = False
    """Whether tokens of `iris token new` are taken, with their rights to publish and subscribe."""
    limits: NatsLimits = field(default_factory=NatsLimits)
    """The limits."""


_FILE_KEYS: Final = ("certificate_file", "key_file")
_NATS_KEYS: Final = (
    "listen",
    "advertise",
    "server_name",
    *_FILE_KEYS,
    "client_ca_file",
    "tls_first",
    "behind_proxy",
    "no_user",
    "tokens",
    "limits",
)
_USER_KEYS: Final = ("password", "token", "nkey", "role", *TOPIC_USES)
#: The largest value of each limit, and its unit.
_LIMITS: Final[Mapping[str, tuple[int, str]]] = {
    "connections": (1_000_000, "connections"),
    "connections_per_address": (1_000_000, "connections"),
    "connections_per_user": (1_000_000, "connections"),
    "payload_bytes": (64 * 1024 * 1024, "bytes"),
    "subscriptions_per_client": (1_000_000, "subscriptions"),
    "subscriptions": (10_000_000, "subscriptions"),
    "patterns": (1_000_000, "patterns"),
    "waiting_bytes": (1024 * 1024 * 1024, "bytes"),
    "waiting_bytes_total": (64 * 1024 * 1024 * 1024, "bytes"),
}


def read_nats(document: Document, users: Mapping[str, NatsUser]) -> NatsSettings:
    """Read the table ``[nats]``, and report its mistakes to the document.

    Args:
        document: The document of a door's file.
        users: The users in the file.
    """
    values = table_at(document, ("nats",), document.values.get("nats"), "[nats]")
    table = Table(document, ("nats",), "[nats]", values, _NATS_KEYS)
    listen = table.text("listen", "Write it like '127.0.0.1:4222'.", parse_address)
    advertise = table.text("advertise", "Write it like 'door1.example:4222'.", lambda text: parse_address(text, port_min=1))
    server_name = table.text("server_name", "Write it like 'iris'.", check_subject)
    certificate = table.text("certificate_file", "Give the path of a PEM file with the certificate chain.")
    key = table.text("key_file", "Give the path of a PEM file with the private key.")
    for given, missing in (_FILE_KEYS, reversed(_FILE_KEYS)):
        if given in table and missing not in table:
            table.complain(given, f"TLS also needs {missing}. Give both, or none.")
    client_ca = table.text("client_ca_file", "Give the path of a PEM file with certificates.")
    for name in ("client_ca_file", "tls_first"):
        if name in table and "certificate_file" not in table:
            table.complain(name, "TLS needs certificate_file and key_file. Give both, or leave this out.")
    proxy = table.text("behind_proxy", "Write the network of the proxies, like '10.0.0.0/8'.", ip_network)
    no_user = table.text("no_user", "Write the name of a user.") or ""
    if no_user and no_user not in users:
        table.complain("no_user", f"there is no user {no_user!r}. Add a table [users.{no_user}].")
    where = ("nats", "limits")
    limits = Table(
        document, where, "[nats.limits]", table_at(document, where, values.get("limits"), "[nats.limits]"), [*_LIMITS]
    )
    defaults = NatsLimits()
    return NatsSettings(
        listen=listen or LISTEN_DEFAULT,
        advertise=advertise or "",
        server_name=server_name or SERVER_NAME_DEFAULT,
        certificate_file=certificate or "",
        key_file=key or "",
        client_ca_file=client_ca or "",
        tls_first=table.boolean("tls_first"),
        behind_proxy=None if proxy is None else ip_network(proxy),
        no_user=no_user,
        tokens=table.boolean("tokens"),
        limits=NatsLimits(
            **{name: limits.integer(name, getattr(defaults, name), 1, most, unit) for name, (most, unit) in _LIMITS.items()}
        ),
    )


def read_users(document: Document, roles: Mapping[str, Rights]) -> dict[str, NatsUser]:
    """Read the tables ``[users.NAME]``, and report their mistakes to the document.

    Args:
        document: The document of a door's file.
        roles: The roles in the file.
    """
    users: dict[str, NatsUser] = {}
    shown: dict[str, str] = {}  # the user of each token and nkey, which have no name beside them
    given = table_at(document, ("users",), document.values.get("users"), "[users]")
    if len(given) > USERS_MAX:
        document.complain(("users",), f"there are {len(given)} users, and {USERS_MAX} are allowed. Let programs share one.")
    for name, values in list(given.items())[:USERS_MAX]:
        where = ("users", name)
        title = f"[users.{name}]"
        try:
            check_subject(name)
        except ValueError as exc:
            document.complain(where, f"{title} {exc}")
            continue
        table = Table(document, where, title, table_at(document, where, values, title), _USER_KEYS)
        user = _read_user(table, name, roles)
        for key, credential in (("token", user.token), ("nkey", user.nkey.hex())):
            other = shown.setdefault(credential, name) if credential else name
            if other != name:
                table.complain(key, f"the user {other!r} has the same. Give each user its own.")
        users[name] = user
    return users


def _read_user(table: Table, name: str, roles: Mapping[str, Rights]) -> NatsUser:
    password = table.text("password", "Make it with `iris door password`.", read_password_hash)
    token = table.text("token", "Make it with `iris door password --token`.", read_token_hash)
    nkey = table.text("nkey", "Give the public half, which begins with 'U'.", decode_user_key)
    role = table.text("role", "Write the name of a table [roles.NAME].")
    if role is not None and role not in roles:
        table.complain("role", f"there is no role {role!r}. Add a table [roles.{role}].")
    rules: dict[TopicUse, SubjectRules] = {}
    for use in TOPIC_USES:
        if role is not None and use in table:
            table.complain(use, "the user has a role. Give rules to the role, or to the user without a role.")
        found = table.texts(use, RULES_MAX, "Write it like ['orders.>'].", lambda rule, use=use: check_user_rule(use, rule))
        own = read_user_rules(rule for _index, rule in found)
        rules[use] = own if role is None or role not in roles else rules_of_role(roles[role], use, name)
    return NatsUser(
        name,
        publish=rules["publish"],
        subscribe=rules["subscribe"],
        password=None if password is None else read_password_hash(password),
        token=token or "",
        nkey=b"" if nkey is None else decode_user_key(nkey),
        remote_errors=role is not None and role in roles and roles[role].remote_errors,
    )
