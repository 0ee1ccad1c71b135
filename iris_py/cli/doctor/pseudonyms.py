"""Pseudonyms in place of names in a bundle.

Names are those of clusters, topics, networks, clouds, zones, nodes, hosts and users, and addresses and paths.

A name has the same pseudonym everywhere in one bundle, also within sentences: a hash under a key that is made for the bundle
and not kept, so names cannot be guessed and verified. Names are known from their fields; in sentences, quoted words, addresses,
host names and paths count as names, too.
"""

from __future__ import annotations

import hashlib
import ipaddress
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

from iris_py.cli.config import SettingLine
from iris_py.cli.doctor.plain_objects import fields_of
from iris_py.cli.doctor.redaction import read_file_values, strings_of
from iris_py.cli.doctor.surroundings_recorder import SeenLine
from iris_py.doctor.examination import CHECKS
from iris_py.settings.table import ARGUMENTS, SETTINGS, VARIABLES

if TYPE_CHECKING:
    from iris_py.cli.settings import Settings

__all__ = ["Pseudonyms", "names_in", "names_in_settings"]

_KEY_BYTES: Final = 32
#: Digits of a pseudonym. Too small: two names may coincide; too large: sentences become unreadable.
_DIGITS: Final = 8
#: The shortest part that counts as a name of its own, such as the host in `web-1/orders.py`. Too small: common words become
#: pseudonyms; too large: a short host name stays visible on its own.
_PART_CHARACTERS_MIN: Final = 3
#: Maximum number of parts of a name matched together within a word. Too small: a topic of more levels stays within longer
#: words; too large: long words of other nodes take long.
_PARTS_MAX: Final = 64
#: Maximum number of cached rewritten texts, because answers repeat most texts. Beyond it the oldest is rewritten again.
_TEXTS_MAX: Final = 4096

#: Words common to all installations, which are not replaced.
_COMMON: Final = frozenset({"iris", "default", "localhost", "lo", "root"})
#: Words that are not replaced when they are quoted.
_WORDS: Final = frozenset({*ARGUMENTS, *VARIABLES, *VARIABLES.values(), *(check.name for check in CHECKS), *_COMMON})
#: Paths common to all installations, which are not replaced.
_COMMON_PATH: Final = re.compile(r"/(?:proc|sys|dev)(?:/|$)|/(?:metrics|healthz|readyz)$")

#: Fields whose texts are names.
_NAME_FIELDS: Final = frozenset(
    {
        *("address", "node_address", "listen", "advertise", "seeds", "strangers", "host"),
        *("name", "id_name", "node_name", "zone", "node_zone", "network", "user"),
        *("cluster", "pattern", "alias", "local", "outside"),
        *("file", "path", "directory", "config_directory", "state_directory"),
    }
)
#: Fields with mappings whose keys are names.
_MAP_FIELDS: Final = frozenset({"clusters", "clouds", "far_requests", "topics"})
#: Settings whose values are names: texts, paths, addresses and clusters. The key of the administrator is no name.
_NAME_SETTINGS: Final = {"config"} | {
    setting.name
    for setting in SETTINGS
    if setting.shape in ("text", "path", "addresses", "secrets") and setting.name != "administrator"
}
#: Options whose values are names.
_NAME_OPTIONS: Final = _NAME_SETTINGS | {"context"}
#: Questions of checks to the surroundings whose answers are names.
_NAME_QUESTIONS: Final = frozenset({"resolve", "told"})
_CONTROL_GROUP: Final = "the control group "

_SIMPLE: Final = re.compile(r"[\w.@:/*+-]+")
_PORT: Final = re.compile(r"\[?(?P<host>[^\[\]\s]+?)\]?:(?P<port>\d{1,5})")
_BRACKETED: Final = re.compile(r"(?P<host>\[[0-9A-Fa-f:.%\w]+\])(?P<port>:\d{1,5})?")
_TIME: Final = re.compile(r"(?:\d{4}-\d\d-\d\d(?:T|$))?(?:\d\d:\d\d(?::\d\d)?(?:\.\d+)?(?:Z|[+-]\d\d:?\d\d)?)?")
_IPV4: Final = re.compile(r"(?<![\w.])\d{1,3}(?:\.\d{1,3}){3}(?![\w.])")
_HOST: Final = re.compile(r"(?!\d+\.)[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)+\.[A-Za-z]{2,}")
_PUBLIC_KEY: Final = re.compile(r"iris(?:public|id)1\.[\w-]+")
_PATH_WITHIN: Final = re.compile(r"(?<![\w.~/*-])~?/(?=[\w.])")
_SEPARATORS: Final = re.compile(r"([/@:._*+-]+)")
_WORD: Final = (
    r"(?<!\w)'(?P<quoted>[^'\n]{1,300})'(?!\w)"
    r'|(?<!\w)"(?P<quoted2>[^"\n]{1,300})"(?!\w)'
    # A node's name after its id or its address.
    r"|(?<=\b[0-9a-f]{8} \()(?P<named>[^()\n]+)(?=\))"
    r"|(?:(?<=:\d{4} \()|(?<=:\d{5} \())(?P<named2>[^()\s]+)(?=\))"
    r"|(?P<token>[^\s'\",;()=<>{}|`]+)"
)


class Pseudonyms:
    """Replaces names in texts by pseudonyms; call the object with a text.

    Args:
        names: The known names.
        key: The key that determines the pseudonyms; by default random bytes that are not kept.
    """

    def __init__(self, names: Iterable[str], key: bytes | None = None) -> None:
        self._key = os.urandom(_KEY_BYTES) if key is None else key
        known = {part.casefold() for name in names for part in _parts_of(name.strip())}
        self._known = {name for name in known if name not in _COMMON and any(map(str.isalnum, name))}
        self._parts_max = min(_PARTS_MAX, max((len(_SEPARATORS.split(name)) for name in self._known), default=1))
        odd = sorted((name for name in self._known if not _SIMPLE.fullmatch(name)), key=len, reverse=True)
        first = "".join(rf"(?<!\w){re.escape(name)}(?!\w)|" for name in odd)
        self._scanner = re.compile((f"(?P<odd>{first.rstrip('|')})|" if odd else "(?P<odd>(?!))|") + _WORD, re.IGNORECASE)
        self._rewrite = lru_cache(_TEXTS_MAX)(self._rewrite_text)

    def __call__(self, text: str) -> str:
        """Return a text with names replaced."""
        if text.casefold() in self._known:
            return self._mask(text)
        return self._rewrite(text)

    def _rewrite_text(self, text: str) -> str:
        text = self._scanner.sub(self._replace, text)
        # An address within a word of another kind, as in a range.
        return _IPV4.sub(lambda found: self._mask_host(found[0]) if _is_address(found[0]) else found[0], text)

    def _replace(self, match: re.Match[str]) -> str:
        kind, text = match.lastgroup or "", match[0]
        if kind.startswith("quoted"):
            content = match[kind]
            is_word = content in _WORDS or not any(map(str.isalnum, content)) or content.startswith("sport = ")
            return text if is_word else f"{text[0]}{self._mask(content)}{text[0]}"
        if kind == "odd" or kind.startswith("named"):
            return self._mask(text)
        if (found := _BRACKETED.match(text)) is not None and _is_address(found["host"]):
            return f"[{self._mask_host(found['host'])}]{found['port'] or ''}{text[found.end() :]}"
        core = text.strip("[].,:!?")
        start = text.index(core)
        return text[:start] + self._mask_word(core) + text[start + len(core) :]

    def _mask_word(self, token: str) -> str:
        """Return a word of a sentence with names replaced."""
        if token.casefold() in self._known or _PUBLIC_KEY.fullmatch(token) or _HOST.fullmatch(token):
            return self._mask(token)
        if token.startswith(("/", "~/")):
            return self._mask_path(token)
        if _is_address(token):
            return self._mask_host(token)
        if not token or _TIME.fullmatch(token):
            return token
        if _PORT.fullmatch(token) is not None:
            return self._mask(token)
        if (path := _PATH_WITHIN.search(token)) is not None:
            return self._mask_word(token[: path.start()]) + self._mask_path(token[path.start() :])
        if "@" in token.strip("@") and not token.isupper():
            return self._mask(token)
        return self._mask_known(token)

    def _mask_known(self, token: str) -> str:
        """Return a word with the longest known names replaced."""
        parts = _SEPARATORS.split(token)
        shown, begin = [], 0
        while begin < len(parts):
            ends = range(min(len(parts), begin + self._parts_max), begin, -1)
            end = next((end for end in ends if "".join(parts[begin:end]).casefold() in self._known), 0)
            shown.append(self._mask("".join(parts[begin:end])) if end else parts[begin])
            begin = end or begin + 1
        return "".join(shown)

    def _mask(self, name: str) -> str:
        """Return the pseudonym of a name, made of pseudonyms of its parts, so related names look related."""
        if name.startswith(("/", "~/")):
            return self._mask_path(name)
        if _is_address(name):
            return self._mask_host(name)
        if (found := _BRACKETED.fullmatch(name)) is not None and _is_address(found["host"]):
            return f"[{self._mask_host(found['host'])}]{found['port'] or ''}"
        if (found := _PORT.fullmatch(name)) is not None:
            host = found["host"]
            return f"{self._mask_host(host) if _is_address(host) else self._mask_parts(host)}:{found['port']}"
        return self._mask_parts(name)

    def _mask_parts(self, name: str) -> str:
        parts = re.split(r"([/@.:])", name)
        return "".join(self._pseudonym("name", part) if _is_own(part) else part for part in parts)

    def _mask_path(self, path: str) -> str:
        place = re.search(r"(?::\d+)?[.,:]*$", path)
        line = "" if place is None else place[0]
        path = path.removesuffix(line) if line else path
        if _COMMON_PATH.match(path) or not path.strip("~/"):
            return path + line
        suffix = Path(path).suffix
        return f"/{self._pseudonym('path', path)}{suffix if suffix in ('.toml', '.py', '.gz') else ''}{line}"

    def _mask_host(self, text: str) -> str:
        address, slash, prefix = text.strip("[]").partition("/")
        host = ipaddress.ip_address(address)
        if host.is_loopback or host.is_unspecified or host.is_multicast:
            return f"{address}{slash}{prefix}"
        return f"{self._pseudonym('host', str(host))}{slash}{prefix}"

    def _pseudonym(self, kind: str, name: str) -> str:
        digest = hashlib.blake2b(name.casefold().encode(errors="surrogateescape"), key=self._key, digest_size=_DIGITS // 2)
        return f"{kind}-{digest.hexdigest()}"


def names_in(value: object, field: str = "") -> Iterator[str]:
    """Return the names in a value, found by the names of its fields, at any depth.

    Args:
        value: A struct, a dataclass, or a collection of them.
        field: The name of the field that contains the value; empty for none.
    """
    if isinstance(value, str):
        if field == "threads_of":
            yield value.removeprefix(_CONTROL_GROUP) if value.startswith(_CONTROL_GROUP) else ""
        elif field in _NAME_FIELDS:
            yield value
    elif isinstance(value, Path):
        yield str(value)
    elif isinstance(value, SettingLine):
        if value.name in _NAME_SETTINGS and value.value is not None:
            yield from value.value if isinstance(value.value, list) else [str(value.value)]
    elif isinstance(value, SeenLine):
        yield from value.about
        yield from names_in(value.answer, "name" if value.question in _NAME_QUESTIONS else "")
    elif isinstance(value, Mapping):
        for key, each in value.items():
            if field in _MAP_FIELDS:
                yield str(key)
            yield from names_in(each, str(key))
    elif isinstance(value, list | tuple | set | frozenset):
        for each in value:
            yield from names_in(each, field)
    elif (fields := fields_of(value)) is not None:
        for name, each in fields.items():
            yield from names_in(each, name)


def names_in_settings(settings: Settings, environ: Mapping[str, str] = os.environ) -> Iterator[str]:
    """Return the names in options, variables and the configuration file, even if some are invalid. The call blocks."""
    options = {**settings.given, "config": settings.config, "context": settings.context}
    for value in (value for name, value in options.items() if name in _NAME_OPTIONS and value is not None):
        yield from value if isinstance(value, list) else [str(value)]
    for name, variable in VARIABLES.items():
        if name in _NAME_SETTINGS and (text := environ.get(variable)):
            yield from (text, *text.split(","))
    for key, value in read_file_values(settings, environ).items():
        if key == "clusters" and isinstance(value, dict):
            yield from map(str, value)
        elif key in _NAME_SETTINGS or key not in ARGUMENTS:
            yield from strings_of(value)
    for name in ("HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME"):
        yield environ.get(name, "")
    home = environ.get("HOME", "")
    yield from (Path(home).name, environ.get("USER", ""), environ.get("LOGNAME", ""))


def _parts_of(name: str) -> Iterator[str]:
    """Return a name and the names within: a host without its port, an enclosing zone, a node's host."""
    yield name
    if (found := _PORT.fullmatch(name)) is not None:
        name = found["host"]
        yield name
    if name.startswith(("/", "~")) or _is_address(name):
        return
    for separator in "/@":
        parts = name.split(separator)
        yield from (part for part in parts if len(part) >= _PART_CHARACTERS_MIN)
        yield from (separator.join(parts[:count]) for count in range(2, len(parts)))
    first = name.partition(".")[0]
    if _HOST.fullmatch(name) and len(first) >= _PART_CHARACTERS_MIN:
        yield first


def _is_own(part: str) -> bool:
    """Return whether the user chose this part of a name. Words common to all installations were not chosen."""
    return any(map(str.isalnum, part)) and part.casefold() not in _COMMON


def _is_address(text: str) -> bool:
    """Return whether a text is an IPv4 or IPv6 address, perhaps with a prefix length."""
    try:
        ipaddress.ip_interface(text.strip("[]"))
    except ValueError:
        return False
    return "." in text or ":" in text
