"""The lines on which the keys of a TOML text stand, for errors that name them: the parser of the standard library forgets them.

The text is valid, for that parser has read it before: so nothing is checked here, and strings, comments, arrays and inline
tables are only passed over.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Mapping

#: The keys from the top of the document to a value, with the place of an element in an array: ``("export", 0, "to")``.
KeyPath: TypeAlias = tuple[str | int, ...]

_BLANK: Final = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
_BARE_KEY: Final = re.compile(r"[A-Za-z0-9_-]+")
_STRING: Final = re.compile(
    r'"""(?:[^\\]|\\.)*?"{3,5}|' r"'''.*?'{3,5}|" r'"(?:[^"\\\n]|\\.)*"|' r"'[^'\n]*'",
    re.DOTALL,
)
_SIMPLE: Final = re.compile(r"[^,\]}\n#]*")


def find_lines(text: str) -> Mapping[KeyPath, int]:
    """Return the line, from 1, of each key, table and element of an array in a valid TOML text; of a table that of its header.

    Args:
        text: A document that `tomllib` can read.
    """
    return _Scanner(text).scan()


class _Scanner:
    def __init__(self, text: str) -> None:
        self._text = text
        self._position = 0
        self._line = 1
        self._counted = 0  # characters whose line ends are in `_line`
        self._lines: dict[KeyPath, int] = {}
        self._last: dict[KeyPath, int] = {}  # the last element of each array of tables

    def scan(self) -> dict[KeyPath, int]:
        table: KeyPath = ()
        while self._skip_blank():
            if self._text.startswith("[", self._position):
                table = self._read_header()
            else:
                self._read_pair(table)
        return self._lines

    def _skip_blank(self) -> bool:
        """Pass over blanks and comments; return whether something follows."""
        self._match(_BLANK)
        return self._position < len(self._text)

    def _match(self, pattern: re.Pattern[str]) -> str:
        found = pattern.match(self._text, self._position)
        assert found is not None, "the text is no valid TOML"
        self._position = found.end()
        return found.group()

    def _take(self, letters: str) -> bool:
        """Pass over some letters if they are next, and over the blanks before them."""
        self._match(_BLANK)
        if not self._text.startswith(letters, self._position):
            return False
        self._position += len(letters)
        return True

    def _note(self, path: KeyPath) -> None:
        """Note the line of the first mention of a path, and of the tables that it lies in."""
        if path in self._lines:
            return
        self._line += self._text.count("\n", self._counted, self._position)
        self._counted = self._position
        for length in range(1, len(path) + 1):
            self._lines.setdefault(path[:length], self._line)

    def _read_header(self) -> KeyPath:
        is_array = self._text.startswith("[[", self._position)
        self._position += 1 + is_array
        keys = self._read_keys()
        path: KeyPath = ()
        for number, key in enumerate(keys, 1):
            path += (key,)
            if is_array and number == len(keys):
                self._last[path] = self._last.get(path, -1) + 1
            if path in self._last:
                path += (self._last[path],)
        self._note(path)
        self._take("]]" if is_array else "]")
        return path

    def _read_keys(self) -> list[str]:
        """Read a key with dots between its parts, each bare or quoted."""
        keys = [self._read_key()]
        while self._take("."):
            keys.append(self._read_key())
        return keys

    def _read_key(self) -> str:
        self._match(_BLANK)
        if self._text[self._position] in "\"'":
            return _unquote(self._match(_STRING))
        return self._match(_BARE_KEY)

    def _read_pair(self, table: KeyPath) -> None:
        path = (*table, *self._read_keys())
        self._note(path)
        self._take("=")
        self._read_value(path)

    def _read_value(self, path: KeyPath) -> None:
        if self._take("["):
            index = 0
            while not self._take("]"):
                self._note((*path, index))
                self._read_value((*path, index))
                self._take(",")
                index += 1
        elif self._take("{"):
            while not self._take("}"):
                self._read_pair(path)
                self._take(",")
        elif self._text[self._position] in "\"'":
            self._match(_STRING)
        else:
            self._match(_SIMPLE)


def _unquote(key: str) -> str:
    """Return what a quoted key says."""
    if key.startswith("'") or "\\" not in key:
        return key[1:-1]
    import tomllib  # such keys are rare

    return next(iter(tomllib.loads(f"{key} = 0")))
