"""Rules as the tables ``[[export]]`` and ``[[import]]`` of a file say them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast

from iris_py.federation.rules import (
    CLOUDS_MAX,
    IN_FLIGHT_DEFAULT,
    SUBSCRIPTIONS_DEFAULT,
    TUNNELS_DEFAULT,
    USES_OF,
    ExportRule,
    ImportRule,
    wildcards,
)
from iris_py.federation.tables import Table, show
from iris_py.patterns.topic.names import parse_pattern
from iris_py.wire.mistyped import nearest_name

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from iris_py.federation.rules import Audit, Kind, When
    from iris_py.federation.tables import Document

#: More is a mistake: no gateway passes so many on.
REQUESTS_PER_S_MAX: Final = 1_000_000
#: All requests of one neighbour that may be under way at a gateway.
IN_FLIGHT_MAX: Final = 65_536
#: All channels of one neighbour.
TUNNELS_MAX: Final = 4096
#: Too small: nodes of the neighbour are refused; too large: each publication is matched against all.
SUBSCRIPTIONS_MAX: Final = 10_000
#: More is a mistake in the unit: 10 Tbit/s.
BYTES_PER_S_MAX: Final = 1_250_000_000_000
#: Clouds that stand in for a cluster, one after the other: each has a rank of 3 bits, and local members have rank 0.
STAND_INS_MAX: Final = 7

_CLUSTER_KEYS: Final = ("requests_per_s", "in_flight", "tunnels")
_TOPIC_KEYS: Final = ("subscriptions", "block")
_EXPORT_KEYS: Final = ("to", "cluster", "topic", "as", "allow", "bytes_per_s", "trace", "audit", *_CLUSTER_KEYS, *_TOPIC_KEYS)
_IMPORT_KEYS: Final = ("from", "cluster", "topic", "as", "when")
_AUDITS: Final = ("totals", "all")
_WHENS: Final = ("absent", "full")


def read_export(document: Document, number: int, values: Mapping[str, object], aliases: Sequence[str]) -> ExportRule | None:
    """Read a table ``[[export]]``.

    Args:
        document: It is told of mistakes.
        number: The place of the table.
        values: Its content.
        aliases: Those of the neighbours.

    Returns:
        The rule; None if its names are wrong.
    """
    table = Table(document, ("export", number), "[[export]]", values, _EXPORT_KEYS)
    clouds = _read_clouds(table, "to", aliases)
    names = _read_names(table)
    if names is None:
        return None
    kind, local, outside = names
    for key, other in [(key, "topic") for key in _TOPIC_KEYS] + [(key, "cluster") for key in _CLUSTER_KEYS]:
        if key in table and kind != other:
            table.complain(key, f"it is for {other}s, and this rule is for a {kind}. Leave it out.")
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
    """Read a table ``[[import]]``; the arguments and what is returned are as for `read_export`."""
    table = Table(document, ("import", number), "[[import]]", values, _IMPORT_KEYS)
    clouds = _read_clouds(table, "from", aliases)
    names = _read_names(table)
    if names is None:
        return None
    kind, outside, local = names
    if kind == "cluster" and local:
        if wildcards(parse_pattern(local)):
            table.complain("as", f"{local!r} has a wildcard, and a gateway joins one cluster. Write a rule for each cluster.")
        if len(clouds) > STAND_INS_MAX:
            table.complain("from", f"{len(clouds)} clouds stand in for a cluster, and {STAND_INS_MAX} can. Leave some out.")
    elif "when" in table:
        table.complain("when", 'it is for a cluster that has a local name. Leave it out, or write as = "NAME" for a cluster.')
    return ImportRule(
        number=number,
        kind=kind,
        outside=outside,
        local=local,
        clouds=clouds,
        line=table.line,
        when=cast("When", table.choice("when", _WHENS, "absent")),
    )


def _read_clouds(table: Table, key: str, aliases: Sequence[str]) -> tuple[str, ...]:
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
    """Return the kind of a rule, its own pattern, and the one of ``as`` (empty if it is left out); None if they are wrong."""
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
            f"{renamed!r} has other wildcards than {name!r}, so a name would not be one name on the other side. Write the same "
            f"ones in the same order: {wanted}.",
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
            raise ValueError(f"{use!r} is for {other}s. Use one of: {', '.join(fitting)}.")
        raise ValueError(f"there is no use {show(use)}. {nearest_name(use, fitting)}")

    if "allow" not in table:
        return frozenset(fitting[:1])
    uses = table.texts("allow", len(fitting), f"Use one or more of: {', '.join(fitting)}.", check)
    return frozenset(use for _index, use in uses)
