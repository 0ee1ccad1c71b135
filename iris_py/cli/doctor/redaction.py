"""Removal of secrets from a bundle: the known secrets in settings, files and variables, and texts with the form of a secret."""

from __future__ import annotations

import os
import re
import shlex
import tomllib
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from iris_py.config import config_path, secret_paths
from iris_py.errors import ConfigurationError
from iris_py.files.secrets import read_exposed
from iris_py.settings.keys import CLUSTERS_MAX, read_clusters_directory
from iris_py.settings.layers import CONFIG_BYTES_MAX, config_directory
from iris_py.settings.table import FILE_KEYS, SETTINGS, VARIABLES
from iris_security.text_form import ADMINISTRATION_PREFIX, CLOUD_PREFIX, SECRET_PREFIX

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from iris_py.cli.settings import Settings

__all__ = ["REDACTED", "Redaction", "known_secrets", "read_file_values", "strings_of"]

#: The text in place of a secret.
REDACTED: Final = "[redacted]"
#: The shortest value that counts as a secret (characters). Too small: common words are removed from texts; too large: a short
#: password stays.
SECRET_CHARACTERS_MIN: Final = 6
#: The settings of the file that hold secrets, or words of a command that may be secrets.
_SECRET_KEYS: Final = {setting.name for setting in SETTINGS if setting.shape in ("secret", "secrets", "command")}
#: Variables of any program whose names suggest a secret: an error of a secret command may show the value.
_SECRET_VARIABLE: Final = re.compile(r"SECRET|TOKEN|PASSW|CREDENTIAL|PRIVATE|API_?KEY|ACCESS_?KEY|AUTH", re.IGNORECASE)
_PREFIXES: Final = "|".join(map(re.escape, (SECRET_PREFIX, ADMINISTRATION_PREFIX, CLOUD_PREFIX)))
#: Repetitions are bounded, because other nodes choose some of the texts, and a search must not take quadratic time.
_PATTERNS: Final = (
    (re.compile(rf"(?:{_PREFIXES})[A-Za-z0-9_-]+"), REDACTED),
    (
        re.compile(r"(?<![^\s'\"/,(\[=])[^\s'\"/,@(\[=:]{1,128}:[^\s'\"/,@]{1,512}@(?=[\w\[])"),
        f"{REDACTED}@",
    ),  # user:password@host
    (
        re.compile(r"(?i)\b([\w-]{0,64}(?:password|passwd|token|secret|api[_-]?key|credential)s?)=[^\s'\",;&]+"),
        rf"\1={REDACTED}",
    ),
    (re.compile(r"(?i)\b(bearer|basic) [A-Za-z0-9._~+/=-]{8,}"), rf"\1 {REDACTED}"),
)


class Redaction:
    """Removes secrets from texts; call the object with a text.

    Args:
        secrets: The secrets that this machine knows.
    """

    def __init__(self, secrets: Iterable[str]) -> None:
        ordered = sorted({each for each in secrets if len(each) >= SECRET_CHARACTERS_MIN}, key=len, reverse=True)
        self._known = re.compile("|".join(map(re.escape, ordered))) if ordered else None

    def __call__(self, text: str) -> str:
        """Return a text with `REDACTED` in place of secrets."""
        if self._known is not None:
            text = self._known.sub(REDACTED, text)
        for pattern, replacement in _PATTERNS:
            text = pattern.sub(replacement, text)
        return text


def known_secrets(settings: Settings, environ: Mapping[str, str] = os.environ) -> set[str]:
    """Return the secrets in local settings, files and variables, even from invalid settings. The call blocks.

    A secret command is not run, because its output is never shown.
    """
    found: set[str] = set()
    for name, text in environ.items():
        is_unknown = name.startswith("IRIS_") and name not in VARIABLES.values()
        if name == "IRIS_SECRET_COMMAND":
            found.update(_words_of_command(_split(text)))
        elif is_unknown or (_SECRET_VARIABLE.search(name) and not name.endswith("_FILE")):
            found.update(_texts_of(text))
    if "secret_command" in settings.given:
        found.update(_words_of_command(_split(str(settings.given["secret_command"]))))
    for key, value in read_file_values(settings, environ).items():
        if key == "secret_command":
            words = value if isinstance(value, list) else _split(str(value))
            found.update(_words_of_command([str(word) for word in words]))
        elif key in _SECRET_KEYS or key not in FILE_KEYS:
            found.update(part for each in strings_of(value) for part in _texts_of(each))
    for path in _paths_of(settings, environ):
        with suppress(OSError, ConfigurationError):
            lines = read_exposed(path, CONFIG_BYTES_MAX)[0].decode(errors="replace").splitlines()
            found.update(part for line in lines if not line.lstrip().startswith("#") for part in _texts_of(line))
    return found


def read_file_values(settings: Settings, environ: Mapping[str, str] = os.environ) -> Mapping[str, object]:
    """Return the unchecked content of the configuration file; empty if the file cannot be read. The call blocks."""
    with suppress(OSError, ConfigurationError, ValueError):
        path = config_path(settings.config_file(), environ)
        if path is not None:
            return tomllib.loads(read_exposed(path, CONFIG_BYTES_MAX)[0].decode())
    return {}


def strings_of(value: object) -> Iterator[str]:
    """Return all strings in a value of the configuration file, at any depth."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for each in value.values():
            yield from strings_of(each)
    elif isinstance(value, list):
        for each in value:
            yield from strings_of(each)


def _paths_of(settings: Settings, environ: Mapping[str, str]) -> set[Path]:
    """Return the paths of the files with secrets, even if other settings are invalid."""
    found = {Path(str(each)) for each in (settings.given.get("secret_file"), environ.get("IRIS_SECRET_FILE")) if each}
    if (own := config_directory(environ)) is not None:
        found.add(own / "secret")
    if directory := environ.get("IRIS_CLUSTERS_DIRECTORY"):
        with suppress(OSError):
            found.update(read_clusters_directory(Path(directory))[:CLUSTERS_MAX])
    with suppress(OSError, ConfigurationError):
        found.update(secret_paths(**settings.connect_arguments(), environ=environ))
    with suppress(ConfigurationError):
        found.discard(config_path(settings.config_file(), environ) or Path())  # its values are examined one by one
    return found


def _texts_of(value: str) -> Iterator[str]:
    """Return a value as a whole, and each secret in the value."""
    yield value.strip()
    yield from value.replace(",", " ").split()


def _words_of_command(words: Iterable[str]) -> Iterator[str]:
    """Return the arguments of a command, and the values in options such as ``--key=VALUE``."""
    for word in list(words)[1:]:
        yield word
        yield word.partition("=")[2]


def _split(command: str) -> list[str]:
    try:
        return shlex.split(command)
    except ValueError:  # unbalanced quotes
        return command.split()
