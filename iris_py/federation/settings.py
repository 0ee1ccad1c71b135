"""The settings of a gateway, parsed from the text of ``federation.toml`` (docs/design.md 15.13; docs/federation.md).

:func:`parse_settings` reads the tables ``[gateway]``, ``[cloud.ALIAS]``, ``[[export]]`` and ``[[import]]``, and reports all
mistakes together, with their lines.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Literal, cast

from iris_py.errors import ConfigurationError
from iris_py.federation.names import check_alias
from iris_py.federation.rules import (
    CLOUDS_MAX,
    IN_FLIGHT_DEFAULT,
    SUBSCRIPTIONS_DEFAULT,
    TUNNELS_DEFAULT,
    USES_OF,
    ExportRule,
    ImportRule,
    RuleTable,
    find_clashes,
    wildcards,
)
from iris_py.patterns.topic.names import parse_pattern
from iris_py.toml_document import Document, Table, join_problems, refuse_unfit_text, show
from iris_py.wire.addresses import parse_address
from iris_py.wire.names import nearest_name
from iris_security import parse_cloud_public_key

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from iris_py.federation.rules import Audit, Kind, When

__all__ = ["CloudSettings", "FederationSettings", "GatewaySettings", "check_identity", "check_secrets", "parse_settings"]

#: No gateway relays more requests per second: a larger value is a mistake.
REQUESTS_PER_S_MAX: Final = 1_000_000
#: The largest `in_flight` of a rule: as many requests as a neighbour may have under way at a gateway.
IN_FLIGHT_MAX: Final = 65_536
#: The largest `tunnels` of a rule: as many channels as a neighbour may have.
TUNNELS_MAX: Final = 4096
#: The largest `subscriptions` of a rule. Too small: nodes of the neighbour are refused; too large: every publication is matched
#: against all patterns.
SUBSCRIPTIONS_MAX: Final = 10_000
#: Clouds that stand in for a cluster, in order: a rank has 3 bits, and local members have rank 0.
STAND_INS_MAX: Final = 7

_CLUSTER_KEYS: Final = ("requests_per_s", "in_flight", "tunnels")
_TOPIC_KEYS: Final = ("subscriptions", "block")
_EXPORT_KEYS: Final = ("to", "cluster", "topic", "as", "allow", "bytes_per_s", "trace", "audit", *_CLUSTER_KEYS, *_TOPIC_KEYS)
_IMPORT_KEYS: Final = ("from", "cluster", "topic", "as", "when")
_SECRETS_ADVICE: Final = (
    "Write it into a file that only its user can read, and give the path of that file (identity_file for the key of the cloud; "
    "the network's secret is a setting of the node). Neighbours get the public key: `iris keys public FILE`."
)
_AUDITS: Final = ("totals", "all")
_WHENS: Final = ("absent", "full")


def read_export(document: Document, number: int, values: Mapping[str, object], aliases: Sequence[str]) -> ExportRule | None:
    """Read a table ``[[export]]``.

    Args:
        document: The document, which collects mistakes.
        number: The position of the table.
        aliases: The aliases of all neighbours.

    Returns:
        The rule; None if its names are wrong.
    """
    table = Table(document, ("export", number), "[[export]]", values, _EXPORT_KEYS)
    clouds = _read_rule_clouds(table, "to", aliases)
    names = _read_names(table)
    if names is None:
        return None
    kind, local, outside = names
    for key, other in [(key, "topic") for key in _TOPIC_KEYS] + [(key, "cluster") for key in _CLUSTER_KEYS]:
        if key in table and kind != other:
            table.complain(key, f"it is only for {other}s, but this rule is for a {kind}. Leave it out.")
    return ExportRule(
        number=number,
        kind=kind,
        outside=outside or local,
        local=local,
        clouds=clouds,
        line=table.line,
        allow=_read_uses(table, kind),
        requests_per_s=table.optional_integer("requests_per_s", 1, REQUESTS_PER_S_MAX, "requests per second"),
        in_flight=table.integer("in_flight", IN_FLIGHT_DEFAULT, 1, IN_FLIGHT_MAX, "requests"),
        bytes_per_s=table.optional_integer("bytes_per_s", 1, BYTES_PER_S_MAX, "bytes per second"),
        tunnels=table.integer("tunnels", TUNNELS_DEFAULT, 1, TUNNELS_MAX, "tunnels"),
        subscriptions=table.integer("subscriptions", SUBSCRIPTIONS_DEFAULT, 1, SUBSCRIPTIONS_MAX, "subscriptions"),
        block=table.boolean("block"),
        trace=table.boolean("trace"),
        audit=cast("Audit", table.choice("audit", _AUDITS, "totals")),
    )


def read_import(document: Document, number: int, values: Mapping[str, object], aliases: Sequence[str]) -> ImportRule | None:
    """Read a table ``[[import]]``; arguments and result are as for `read_export`."""
    table = Table(document, ("import", number), "[[import]]", values, _IMPORT_KEYS)
    clouds = _read_rule_clouds(table, "from", aliases)
    names = _read_names(table)
    if names is None:
        return None
    kind, outside, local = names
    if kind == "cluster" and local:
        if wildcards(parse_pattern(local)):
            table.complain(
                "as", f"{local!r} has a wildcard, but the gateway must join a single cluster. Write a rule for each cluster."
            )
        if len(clouds) > STAND_INS_MAX:
            table.complain(
                "from", f"{len(clouds)} clouds stand in for a cluster, but {STAND_INS_MAX} are allowed. Remove some of them."
            )
    elif "when" in table:
        table.complain("when", 'it is only for a cluster with a local name. Leave it out, or write as = "NAME" for a cluster.')
    return ImportRule(
        number=number,
        kind=kind,
        outside=outside,
        local=local,
        clouds=clouds,
        line=table.line,
        when=cast("When", table.choice("when", _WHENS, "absent")),
    )


def _read_rule_clouds(table: Table, key: str, aliases: Sequence[str]) -> tuple[str, ...]:
    advice = f'Write the aliases of clouds, as {key} = ["eu"].'
    if key not in table:
        table.complain(key, f"has no {key}. {advice}", named=False)
        return ()

    def check(alias: str) -> None:
        if alias not in aliases:
            near = nearest_name(alias, aliases) if aliases else ""
            raise ValueError(f"there is no cloud {show(alias)}. Write a table [cloud.ALIAS] for it. {near}".rstrip())

    return tuple(alias for _index, alias in table.texts(key, CLOUDS_MAX, advice, check))


def _read_names(table: Table) -> tuple[Kind, str, str] | None:
    """Return the kind, the pattern and the ``as`` pattern (empty if absent) of a rule; None if they are wrong."""
    kinds: list[Kind] = [kind for kind in USES_OF if kind in table]
    if len(kinds) != 1:
        has = "both cluster and topic" if kinds else "neither cluster nor topic"
        table.complain("topic", f'has {has}. Write one of them, as cluster = "scorers" or topic = "clicks.>".', named=False)
        return None
    kind = kinds[0]
    name = table.text(
        kind, f'Write a name or pattern, as {kind} = "{"scorers" if kind == "cluster" else "clicks.>"}".', parse_pattern
    )
    renamed = table.text("as", "Write a name or pattern, or leave it out.", parse_pattern)
    if name is None or (renamed is None and "as" in table):
        return None
    own, other = wildcards(parse_pattern(name)), wildcards(parse_pattern(renamed or name))
    if own != other:
        wanted = " ".join(own) or "none"
        table.complain(
            "as",
            f"{renamed!r} has other wildcards than {name!r}, so names cannot be translated one to one. Use the same "
            f"wildcards in the same order: {wanted}.",
        )
        return None
    return kind, name, renamed or ""


def _read_uses(table: Table, kind: Kind) -> frozenset[str]:
    fitting = USES_OF[kind]

    def check(use: str) -> None:
        if use in fitting:
            return
        other = next((each for each, uses in USES_OF.items() if use in uses), None)
        if other is not None:
            raise ValueError(f"{use!r} is only for {other}s. Use one of: {', '.join(fitting)}.")
        raise ValueError(f"there is no use {show(use)}. {nearest_name(use, fitting)}")

    if "allow" not in table:
        return frozenset(fitting[:1])
    uses = table.texts("allow", len(fitting), f"Use one or more of: {', '.join(fitting)}.", check)
    return frozenset(use for _index, use in uses)


#: Size of the settings file. Too small: 1,024 rules do not fit; too large: a file named by mistake is read into memory.
FILE_BYTES_MAX: Final = 1 << 20
#: Exports and imports together. Too small: exact rules do not fit; too large: a catalogue does not fit into its message.
RULES_MAX: Final = 1024
#: Exports of topics. Each export is a subscription of the gateway. Too small: topics have to be exported by wider patterns. Too
#: large: beyond 16 shapes of patterns under one first token, the gateway receives unwanted messages (8.2).
TOPIC_EXPORTS_MAX: Final = 128

#: Bytes of a cloud's name, which neighbours see. Too small: names do not fit; too large: a name fills log lines.
NAME_BYTES_MAX: Final = 64
#: Public keys of one neighbour: the old and the new key during a rotation.
KEYS_MAX: Final = 2
#: Addresses of one neighbour: one for each of its gateways, of which a cloud may have as many.
DIAL_MAX: Final = 16

#: Connections of a bundle: one for control and small requests, the others for bulk. Too small: bulk holds up requests; too
#: large: every connection costs a handshake, buffers and a keep-alive.
CONNECTIONS_DEFAULT: Final = 4
CONNECTIONS_MAX: Final = 8
#: Bundles to different gateways of one neighbour: with two, one may die. Too large: every gateway is linked to every other.
BUNDLES_DEFAULT: Final = 2
BUNDLES_MAX: Final = 16
#: With a loss of 1 % at 80 ms, a congestion control that reacts to loss leaves 0.22 MB/s to a connection; BBR hardly slows
#: down.
CONGESTION_DEFAULT: Final = "bbr"
CONGESTIONS: Final = ("bbr", "cubic", "")
#: The largest window of a channel, in bytes. Too small: long cloud links idle (rate = window / round trip: 16 MiB give 210 MB/s
#: at 80 ms); too large: a stalled reader holds this much of our memory.
WINDOW_BYTES_DEFAULT: Final = 16 << 20
WINDOW_BYTES_MIN: Final = 1 << 20
WINDOW_BYTES_MAX: Final = 256 << 20
#: The windows of all channels of a gateway together. Too small: many channels are slow; too large: many stalled readers fill
#: the machine's memory.
CHANNEL_BYTES_DEFAULT: Final = 1 << 30
CHANNEL_BYTES_MAX: Final = 64 << 30
#: 10 Tbit/s: a larger value is a mistake in the unit.
BYTES_PER_S_MAX: Final = 1_250_000_000_000

_GATEWAY_KEYS: Final = (
    "name",
    "identity_file",
    "listen",
    "audit_file",
    "metrics",
    "connections",
    "bundles",
    "congestion",
    "window_bytes",
    "channel_bytes",
)
_CLOUD_KEYS: Final = ("keys", "dial", "bytes_per_s", "price_per_gb")
_TOP_KEYS: Final = ("gateway", "cloud", "export", "import")


@dataclass(frozen=True, slots=True)
class GatewaySettings:
    """The table ``[gateway]``. Paths stay as written in the file."""

    name: str
    """The cloud's own name, for the logs of neighbours."""
    identity_file: str
    """The file with the private key of the cloud."""
    listen: str | None = None
    """``host:port`` for connections of neighbours; None: the gateway only dials."""
    audit_file: str | None = None
    """An additional file for audit records; None: only the log."""
    metrics: str | None = None
    """``host:port`` for Prometheus; None for no metrics."""
    connections: int = CONNECTIONS_DEFAULT
    """Connections of each bundle, 1 to 8."""
    bundles: int = BUNDLES_DEFAULT
    """Bundles to different gateways of each dialled neighbour, 1 to 16."""
    congestion: Literal["bbr", "cubic", ""] = "bbr"
    """The congestion control of connections; empty: the system's default."""
    window_bytes: int = WINDOW_BYTES_DEFAULT
    """The largest window of a channel, 1 to 256 MiB."""
    channel_bytes: int = CHANNEL_BYTES_DEFAULT
    """The windows of all channels together, in bytes, up to 64 GiB."""


@dataclass(frozen=True, slots=True)
class CloudSettings:
    """A table ``[cloud.<alias>]``."""

    alias: str
    """The neighbour's name in the local cloud."""
    keys: tuple[bytes, ...]
    """The neighbour's public key, or two keys during a rotation."""
    dial: tuple[str, ...] = ()
    """``host:port`` of the neighbour's gateways; empty: only the neighbour dials."""
    bytes_per_s: int | None = None
    """Bytes per second and direction to the neighbour; 0: nothing passes; None: no limit."""
    price_per_gb: float | None = None
    """Price of 10^9 bytes to the neighbour, in any currency; None: unknown."""
    key_lines: tuple[int, ...] = field(default=(), compare=False)
    """The line of each key in the file."""


@dataclass(frozen=True, slots=True)
class FederationSettings:
    """A complete and consistent ``federation.toml``."""

    path: str
    """The file name for errors."""
    gateway: GatewaySettings
    clouds: Mapping[str, CloudSettings]
    """The neighbours by alias, in the order of the file."""
    exports: tuple[ExportRule, ...]
    """The exports in the order of the file, numbered by position."""
    imports: tuple[ImportRule, ...]
    """The imports in the order of the file, numbered by position."""

    def exports_to(self, alias: str) -> tuple[ExportRule, ...]:
        """Return the exports to a neighbour, in the order of the file."""
        return tuple(rule for rule in self.exports if alias in rule.clouds)

    def imports_from(self, alias: str) -> tuple[ImportRule, ...]:
        """Return the imports from a neighbour, in the order of the file."""
        return tuple(rule for rule in self.imports if alias in rule.clouds)

    def export_table(self, alias: str, kind: Kind) -> RuleTable[ExportRule]:
        """Return a new table of the exports of one kind to a neighbour."""
        return RuleTable(rule for rule in self.exports_to(alias) if rule.kind == kind)

    def import_table(self, alias: str, kind: Kind) -> RuleTable[ImportRule]:
        """Return a new table of the imports of one kind from a neighbour."""
        return RuleTable(rule for rule in self.imports_from(alias) if rule.kind == kind)

    def exported_clusters(self) -> tuple[ExportRule, ...]:
        """Return the exports of clusters; `check_secrets` refuses clusters with their own secret."""
        return tuple(rule for rule in self.exports if rule.kind == "cluster")


def parse_settings(text: str, path: str) -> FederationSettings:
    """Parse the settings of a gateway.

    Args:
        text: The content of the file.
        path: The file name for errors.

    Raises:
        ConfigurationError: The file has mistakes. The text has a line for each mistake, beginning with ``path:line: ``, with
            advice on the correction.
    """
    refuse_unfit_text(text, path, FILE_BYTES_MAX, _SECRETS_ADVICE)
    document = Document(text, path)
    top = Table(document, (), "the file", document.values, _TOP_KEYS)
    gateway = _read_gateway(document)
    clouds = _read_clouds(document)
    # Rules name neighbours in the file, even a neighbour whose own table has mistakes.
    aliases = tuple(_mapping_at(document, "cloud"))
    exports = [
        read_export(document, number, values, aliases) for number, values in enumerate(_rules_at(document, top, "export"))
    ]
    imports = [
        read_import(document, number, values, aliases) for number, values in enumerate(_rules_at(document, top, "import"))
    ]
    settings = FederationSettings(
        path=path,
        gateway=gateway,
        clouds=MappingProxyType(clouds),
        exports=tuple(rule for rule in exports if rule is not None),
        imports=tuple(rule for rule in imports if rule is not None),
    )
    _check_counts(document, len(exports), len(imports), settings)
    _check_clashes(document, settings)
    document.check()
    return settings


def check_identity(settings: FederationSettings, own_public: bytes) -> None:
    """Refuse a neighbour with the local cloud's own key: the key identifies the cloud.

    Args:
        own_public: The public key of the local cloud.

    Raises:
        ConfigurationError: A neighbour has the key.
    """
    problems = [
        (
            line,
            f"[cloud.{cloud.alias}] keys: this is the key of this cloud itself (identity_file). Ask {cloud.alias!r} for its "
            "own, and let every cloud make one with `iris keys identity`.",
        )
        for cloud in settings.clouds.values()
        for key, line in zip(cloud.keys, cloud.key_lines, strict=True)
        if key == own_public
    ]
    _raise_if_any(settings, problems)


def check_secrets(settings: FederationSettings, own_secrets: Collection[str]) -> None:
    """Refuse exports of clusters with a cluster secret: the network must not read their messages.

    Args:
        own_secrets: The names of the clusters whose secrets the gateway's node holds.

    Raises:
        ConfigurationError: An export names such a cluster.
    """
    problems = [
        (
            rule.line,
            f"[[export]] cluster: {rule.local!r} exports {name!r}, which has its own secret, but gateways read the payloads "
            "that they forward. Seal the payloads in the program (iris_py.Sealed) under a name without a cluster secret, or "
            "do not give the secret to this node.",
        )
        for rule in settings.exported_clusters()
        for name in sorted(own_secrets)
        if rule.to_outside(name) is not None
    ]
    _raise_if_any(settings, problems)


def _raise_if_any(settings: FederationSettings, problems: list[tuple[int, str]]) -> None:
    if problems:
        raise ConfigurationError(join_problems(settings.path, problems))


def _mapping_at(document: Document, key: str) -> Mapping[str, object]:
    """Return a table of the document; an empty table if the value is absent or not a table."""
    value = document.values.get(key, {})
    return value if isinstance(value, dict) else {}


def _read_gateway(document: Document) -> GatewaySettings:
    where = ("gateway",)
    if not isinstance(document.values.get("gateway", {}), dict):
        document.complain(where, "gateway is a table. Write [gateway], and its keys below it.")
        return GatewaySettings("", "")
    if "gateway" not in document.values:
        document.complain(where, 'there is no table [gateway]. Write [gateway], name = "us" and identity_file = "us.identity".')
        return GatewaySettings("", "")
    table = Table(document, where, "[gateway]", _mapping_at(document, "gateway"), _GATEWAY_KEYS)
    window_bytes = table.integer("window_bytes", WINDOW_BYTES_DEFAULT, WINDOW_BYTES_MIN, WINDOW_BYTES_MAX, "bytes")
    channel_bytes = table.integer("channel_bytes", CHANNEL_BYTES_DEFAULT, WINDOW_BYTES_MIN, CHANNEL_BYTES_MAX, "bytes")
    if channel_bytes < window_bytes:
        table.complain(
            "channel_bytes" if "channel_bytes" in table else "window_bytes",
            f"the windows of all channels together ({channel_bytes:_} bytes) are smaller than the window of one channel "
            f"({window_bytes:_}). Raise channel_bytes, or lower window_bytes.",
        )
    return GatewaySettings(
        name=table.required_text("name", 'Write the name of this cloud, as name = "us".', _check_name),
        identity_file=table.required_text(
            "identity_file", 'Write identity_file = "us.identity"; `iris keys identity -o us.identity` makes the file.'
        ),
        listen=table.text("listen", 'Write it like "0.0.0.0:7450", or leave it out to dial only.', _check_listen),
        audit_file=table.text("audit_file", "Write the path of a file, or leave it out for no audit."),
        metrics=table.text("metrics", 'Write it like "127.0.0.1:9464", or leave it out for no metrics.', _check_listen),
        connections=table.integer("connections", CONNECTIONS_DEFAULT, 1, CONNECTIONS_MAX, "connections"),
        bundles=table.integer("bundles", BUNDLES_DEFAULT, 1, BUNDLES_MAX, "bundles"),
        congestion=cast('Literal["bbr", "cubic", ""]', table.choice("congestion", CONGESTIONS, CONGESTION_DEFAULT)),
        window_bytes=window_bytes,
        channel_bytes=channel_bytes,
    )


def _check_name(text: str) -> None:
    if len(text.encode()) > NAME_BYTES_MAX or not text.isprintable():
        raise ValueError(f"{show(text)} is not a valid name. Use 1 to {NAME_BYTES_MAX} bytes of printable characters.")


def _check_listen(text: str) -> object:
    return parse_address(text, "the address")


def _check_dial(text: str) -> object:
    return parse_address(text, "the address", port_min=1)


def _read_clouds(document: Document) -> dict[str, CloudSettings]:
    gateway = _mapping_at(document, "gateway")
    is_only_dialling = bool(gateway) and "listen" not in gateway
    if not isinstance(document.values.get("cloud", {}), dict):
        document.complain(("cloud",), "cloud is a table of tables. Write [cloud.eu], and its keys below it.")
    clouds: dict[str, CloudSettings] = {}
    owners: dict[bytes, str] = {}
    tables = _mapping_at(document, "cloud")
    if len(tables) > CLOUDS_MAX:
        document.complain(
            ("cloud",),
            f"there are {len(tables)} clouds, and {CLOUDS_MAX} are allowed. Remove clouds that are not used.",
        )
    for alias, values in tables.items():
        try:
            check_alias(alias)
        except ValueError as exc:
            document.complain(("cloud", alias), f"[cloud.{show(alias)}] {exc}")
            continue
        if not isinstance(values, dict):
            document.complain(
                ("cloud", alias), f"cloud.{alias} is a table, not {show(values)}. Write [cloud.{alias}], and its keys below it."
            )
            continue
        table = Table(document, ("cloud", alias), f"[cloud.{alias}]", values, _CLOUD_KEYS)
        clouds[alias] = _read_cloud(table, alias, owners)
        if is_only_dialling and "dial" not in table:
            document.complain(
                ("cloud", alias),
                f"[cloud.{alias}] has no dial, and [gateway] has no listen, so there can be no connection. Write "
                f'dial = ["gw.{alias}.example.org:7450"] here, or listen = "0.0.0.0:7450" there.',
            )
    return clouds


def _read_cloud(table: Table, alias: str, owners: dict[bytes, str]) -> CloudSettings:
    """Read one neighbour; `owners` has the aliases of all keys so far."""
    advice = 'Write keys = ["irisid1..."] with the output of `iris keys public FILE` there.'
    if "keys" not in table:
        table.complain("keys", f"has no keys. {advice}", named=False)
    keys: dict[bytes, int] = {}
    for index, text in table.texts("keys", KEYS_MAX, advice, parse_cloud_public_key):
        key = parse_cloud_public_key(text)
        owner = owners.setdefault(key, alias)
        if key in keys:
            table.complain("keys", "this key is given twice. Leave one out.", index=index)
        elif owner != alias:
            table.complain(
                "keys", f"this key is also in [cloud.{owner}], but a cloud has one alias. Remove one of the two.", index=index
            )
        keys[key] = table.line_of("keys", index)
    return CloudSettings(
        alias=alias,
        keys=tuple(keys),
        key_lines=tuple(keys.values()),
        dial=tuple(
            text
            for _index, text in table.texts(
                "dial", DIAL_MAX, 'Write dial = ["gw.eu.example.org:7450"], or leave it out if they dial.', _check_dial
            )
        ),
        bytes_per_s=table.optional_integer("bytes_per_s", 0, BYTES_PER_S_MAX, "bytes per second"),
        price_per_gb=table.amount("price_per_gb", "the price of 10^9 bytes"),
    )


def _rules_at(document: Document, top: Table, key: str) -> list[Mapping[str, object]]:
    """Return the tables of an array of tables, without any elements of other types."""
    value = document.values.get(key, [])
    if isinstance(value, dict) or not isinstance(value, list):
        top.complain(key, f"{key} is an array of tables. Write [[{key}]] with two brackets, once for each rule.", named=False)
        return []
    for index, one in enumerate(value):
        if not isinstance(one, dict):
            document.complain((key, index), f"{key} is an array of tables, not {show(one)}. Write [[{key}]] for each rule.")
    return [one for one in value if isinstance(one, dict)]


def _check_counts(document: Document, export_count: int, import_count: int, settings: FederationSettings) -> None:
    if export_count + import_count > RULES_MAX:
        last = ("import", RULES_MAX - export_count) if export_count <= RULES_MAX else ("export", RULES_MAX)
        document.complain(
            last, f"there are {export_count + import_count} rules, and {RULES_MAX} are allowed. Join some of them by patterns."
        )
    topics = [rule for rule in settings.exports if rule.kind == "topic"]
    if len(topics) > TOPIC_EXPORTS_MAX:
        document.complain_at(
            topics[TOPIC_EXPORTS_MAX].line,
            f"there are {len(topics)} exports of topics, and {TOPIC_EXPORTS_MAX} are allowed. Join some of them by patterns.",
        )


def _check_clashes(document: Document, settings: FederationSettings) -> None:
    """Report pairs of rules without a more specific one."""
    if len(settings.exports) + len(settings.imports) > RULES_MAX:
        return  # comparing all pairs may take long
    for table, clashes in (("export", find_clashes(settings.exports)), ("import", find_clashes(settings.imports))):
        for first, second in clashes:
            clouds = ", ".join(cloud for cloud in second.clouds if cloud in first.clouds)
            document.complain_at(
                second.line,
                f"[[{table}]] {second.outside!r} and {first.outside!r} (line {first.line}) are for the same {second.kind}s "
                f"of {clouds}, and neither is more specific. Remove one, or make one more specific.",
            )
    stood_in: dict[str, ImportRule] = {}
    for rule in settings.imports:
        if rule.kind == "cluster" and rule.local and (first_one := stood_in.setdefault(rule.local, rule)) is not rule:
            document.complain_at(
                rule.line,
                f"[[import]] as: line {first_one.line} already assigns other clouds to the cluster {rule.local!r}. Write one "
                "rule with all clouds in from, in their order, or use another name.",
            )
