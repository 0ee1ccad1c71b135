"""The difference between two settings of a gateway, for loading them anew while it runs."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Final, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from iris_py.federation.rules import ExportRule, ImportRule
    from iris_py.federation.settings import FederationSettings

    #: A rule, and the alias of the neighbour that it is for.
    ExportFor: TypeAlias = tuple[str, ExportRule]
    ImportFor: TypeAlias = tuple[str, ImportRule]

#: Keys of ``[gateway]`` that count when a gateway starts, and not when it loads its file anew.
AT_START: Final = ("identity_file", "listen", "metrics", "congestion")


@dataclass(frozen=True, slots=True)
class Changes:
    """The difference between two settings.

    A rule is the same one if it has the same kind and the same names outside; what else it says may change.
    """

    gateway: tuple[str, ...] = ()
    """The keys of ``[gateway]`` that have changed."""
    clouds_added: tuple[str, ...] = ()
    """New aliases."""
    clouds_removed: tuple[str, ...] = ()
    """Aliases that are gone: all links to these neighbours end."""
    clouds_changed: tuple[str, ...] = ()
    """Aliases whose addresses, limit or price have changed."""
    keys_added: tuple[tuple[str, bytes], ...] = ()
    """New keys of neighbours that were there, with their aliases."""
    keys_removed: tuple[tuple[str, bytes], ...] = ()
    """Keys that are gone of neighbours that stay: links whose other side has shown such a key end."""
    exports_added: tuple[ExportFor, ...] = ()
    """Exports that are new."""
    exports_removed: tuple[ExportFor, ...] = ()
    """Exports that are gone, each as the old rule."""
    exports_changed: tuple[ExportFor, ...] = ()
    """Exports of other uses, limits or local names, each as the new rule."""
    imports_added: tuple[ImportFor, ...] = ()
    """Imports that are new."""
    imports_removed: tuple[ImportFor, ...] = ()
    """Imports that are gone, each as the old rule."""
    imports_changed: tuple[ImportFor, ...] = ()
    """Imports under another local name, or in another order of clouds, each as the new rule."""

    def __bool__(self) -> bool:
        return any(getattr(self, each.name) for each in fields(self))

    @property
    def needs_restart(self) -> tuple[str, ...]:
        """The keys of ``[gateway]`` that have changed and count at the next start only."""
        return tuple(key for key in self.gateway if key in AT_START)

    def summary(self) -> dict[str, object]:
        """Return what has changed as JSON has it, without keys: for the log and the audit."""
        summary: dict[str, object] = {
            "gateway": list(self.gateway),
            "clouds_added": list(self.clouds_added),
            "clouds_removed": list(self.clouds_removed),
            "clouds_changed": list(self.clouds_changed),
            "keys_added": [alias for alias, _key in self.keys_added],
            "keys_removed": [alias for alias, _key in self.keys_removed],
            "exports_added": _names(self.exports_added),
            "exports_removed": _names(self.exports_removed),
            "exports_changed": _names(self.exports_changed),
            "imports_added": _names(self.imports_added),
            "imports_removed": _names(self.imports_removed),
            "imports_changed": _names(self.imports_changed),
        }
        return {key: value for key, value in summary.items() if value}


def diff(old: FederationSettings, new: FederationSettings) -> Changes:
    """Return what is different in new settings."""
    stayed = [alias for alias in new.clouds if alias in old.clouds]
    keys = [(alias, old.clouds[alias].keys, new.clouds[alias].keys) for alias in stayed]
    exports, old_exports = _exports_by_name(new), _exports_by_name(old)
    imports, old_imports = _imports_by_name(new), _imports_by_name(old)
    return Changes(
        gateway=tuple(
            each.name for each in fields(new.gateway) if getattr(old.gateway, each.name) != getattr(new.gateway, each.name)
        ),
        clouds_added=tuple(alias for alias in new.clouds if alias not in old.clouds),
        clouds_removed=tuple(alias for alias in old.clouds if alias not in new.clouds),
        clouds_changed=tuple(
            alias for alias in stayed if replace(old.clouds[alias], keys=()) != replace(new.clouds[alias], keys=())
        ),
        keys_added=tuple((alias, key) for alias, before, after in keys for key in after if key not in before),
        keys_removed=tuple((alias, key) for alias, before, after in keys for key in before if key not in after),
        exports_added=tuple((key[0], rule) for key, rule in exports.items() if key not in old_exports),
        exports_removed=tuple((key[0], rule) for key, rule in old_exports.items() if key not in exports),
        exports_changed=tuple(
            (key[0], rule)
            for key, rule in exports.items()
            if key in old_exports and _plain_export(rule) != _plain_export(old_exports[key])
        ),
        imports_added=tuple((key[0], rule) for key, rule in imports.items() if key not in old_imports),
        imports_removed=tuple((key[0], rule) for key, rule in old_imports.items() if key not in imports),
        imports_changed=tuple(
            (key[0], rule)
            for key, rule in imports.items()
            if key in old_imports and replace(rule, number=0) != replace(old_imports[key], number=0)
        ),
    )


def _plain_export(rule: ExportRule) -> ExportRule:
    """Return an export without what does not matter to one of its neighbours: its place, and who else may use it."""
    return replace(rule, number=0, clouds=())


def _exports_by_name(settings: FederationSettings) -> Mapping[tuple[str, str, str], ExportRule]:
    return {(alias, rule.kind, rule.outside): rule for alias in settings.clouds for rule in settings.exports_to(alias)}


def _imports_by_name(settings: FederationSettings) -> Mapping[tuple[str, str, str], ImportRule]:
    return {(alias, rule.kind, rule.outside): rule for alias in settings.clouds for rule in settings.imports_from(alias)}


def _names(rules: Sequence[tuple[str, ExportRule]] | Sequence[tuple[str, ImportRule]]) -> list[str]:
    return [f"{rule.outside}@{alias}" for alias, rule in rules]
