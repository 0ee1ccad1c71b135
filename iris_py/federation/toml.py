"""Tables of a configuration file: their values are taken out one by one, and all that is wrong with them is told together.

The lines on which the keys of a TOML text stand, for errors that name them: the parser of the standard library forgets them.

The text is valid, for that parser has read it before: so nothing is checked here, and strings, comments, arrays and inline
tables are only passed over.
"""

from __future__ import annotations

import math
import re
import tomllib
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias

from iris_py.errors import ConfigurationError
from iris_py.wire.mistyped import nearest_name

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

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


#: Mistakes that are told of one file. Too small: an operator corrects, and meets the rest; too large: nobody reads so many.
PROBLEMS_MAX: Final = 100
#: Characters of a wrong value that are shown. Too small: it is not recognised; too large: a pasted file fills the terminal.
SHOWN_CHARACTERS_MAX: Final = 60

_PLACE: Final = re.compile(r" \(at (?:line (\d+), column \d+|end of document)\)$")


class Check(Protocol):
    """A function that refuses a text by a `ValueError` or `ConfigurationError`, whose text says what to write."""

    def __call__(self, text: str, /) -> object:
        """Return whatever it makes of the text."""


class Document:
    """A TOML text, and what was found wrong with it so far.

    Args:
        text: The text.
        path: How errors call the file.

    Raises:
        ConfigurationError: The text is no TOML.

    Attributes:
        values: What it says.
    """

    def __init__(self, text: str, path: str) -> None:
        self._path = path
        self._problems: dict[tuple[int, str], None] = {}
        self.values: dict[str, object] = {}
        try:
            self.values = tomllib.loads(text)
            self._lines: Mapping[KeyPath, int] = find_lines(text)
        except tomllib.TOMLDecodeError as exc:
            place = _PLACE.search(str(exc))
            line = int(place[1]) if place and place[1] else text.count("\n") + 1
            self._problems[line, f"this is no TOML: {_PLACE.sub('', str(exc))}. Correct the line, or the one before it."] = None
        except RecursionError:
            self._problems[1, "its values are nested too deeply. Write plain tables and lists."] = None
        self.check()

    def line_of(self, where: KeyPath) -> int:
        """Return the line of a key or table, or of the next one around it that the text has."""
        while where and where not in self._lines:
            where = where[:-1]
        return self._lines.get(where, 1)

    def complain(self, where: KeyPath, text: str) -> None:
        """Note that something is wrong at a place."""
        self.complain_at(self.line_of(where), text)

    def complain_at(self, line: int, text: str) -> None:
        """Note that something is wrong in a line."""
        self._problems[line, text] = None

    def check(self) -> None:
        """End with everything that was found wrong.

        Raises:
            ConfigurationError: Something was. Its text has a line for each mistake, in the order of the file.
        """
        if self._problems:
            raise ConfigurationError(join_problems(self._path, list(self._problems)))


def join_problems(path: str, problems: Sequence[tuple[int, str]]) -> str:
    """Return a text with a line for each mistake in a file.

    Args:
        path: How the file is called.
        problems: For each mistake its line in the file, and a sentence.
    """
    found = [f"{path}:{line}: {text}" for line, text in sorted(problems)]
    if len(found) > PROBLEMS_MAX:
        found[PROBLEMS_MAX:] = [f"{path}: {len(found) - PROBLEMS_MAX} more mistakes. Correct these first."]
    return "\n".join(found)


class Table:
    """One table of a document, whose keys are known.

    Args:
        document: It is told of mistakes.
        where: The place of the table.
        title: The table as errors name it, such as ``[gateway]``.
        values: Its content.
        known: The keys that it may have.
    """

    def __init__(
        self, document: Document, where: KeyPath, title: str, values: Mapping[str, object], known: Sequence[str]
    ) -> None:
        self._document = document
        self._where = where
        self._title = title
        self._values = values
        for key in values:
            if key not in known:
                self.complain(key, f"has no key {show(key)}. {nearest_name(key, known)}", named=False)

    def __contains__(self, key: str) -> bool:
        return key in self._values

    @property
    def line(self) -> int:
        """The line that the table begins in."""
        return self._document.line_of(self._where)

    def line_of(self, key: str, index: int | None = None) -> int:
        """Return the line of a key, or of one element of its list."""
        return self._document.line_of((*self._where, key) if index is None else (*self._where, key, index))

    def complain(self, key: str, text: str, *, index: int | None = None, named: bool = True) -> None:
        """Note that something is wrong with the value of a key.

        Args:
            key: The key.
            text: What is wrong, and what to write.
            index: The element of its list that it is about.
            named: Whether the key is to be named before the text.
        """
        self._document.complain_at(self.line_of(key, index), f"{self._title} {f'{key}: ' if named else ''}{text}")

    def text(self, key: str, advice: str, check: Check | None = None) -> str | None:
        """Take a text; None if it is left out or wrong.

        Args:
            key: Its key.
            advice: What to write, as a sentence.
            check: Refuses texts that are wrong.
        """
        if key not in self._values:
            return None
        value = self._values[key]
        if not isinstance(value, str) or not value:
            self.complain(key, f"it is a text, not {show(value)}. {advice}")
            return None
        return value if self._passes(key, value, check) else None

    def required_text(self, key: str, advice: str, check: Check | None = None) -> str:
        """Take a text as `text` does; that it is left out is a mistake. It is empty if there was one."""
        if key not in self._values:
            self.complain(key, f"has no {key}. {advice}", named=False)
        return self.text(key, advice, check) or ""

    def texts(self, key: str, count_max: int, advice: str, check: Check | None = None) -> list[tuple[int, str]]:
        """Take a list of different texts.

        Args:
            key: Its key.
            count_max: The most that it may have.
            advice: What to write, as a sentence.
            check: Refuses texts that are wrong.

        Returns:
            Those that are right, each with its place in the list; nothing if the list is left out.
        """
        value = self._values.get(key, [])
        if not isinstance(value, list):
            self.complain(key, f"it is a list of texts, not {show(value)}. {advice}")
            return []
        if key in self._values and not value:
            self.complain(key, f"it is an empty list. {advice}")
        if len(value) > count_max:
            self.complain(key, f"it has {len(value)} entries, and {count_max} are allowed. {advice}")
        found: dict[str, int] = {}
        for index, one in enumerate(value[:count_max]):
            if not isinstance(one, str) or not one:
                self.complain(key, f"an entry is a text, not {show(one)}. {advice}", index=index)
            elif one in found:
                self.complain(key, f"{show(one)} is there twice. Leave one out.", index=index)
            elif self._passes(key, one, check, index):
                found[one] = index
        return [(index, one) for one, index in found.items()]

    def integer(self, key: str, default: int, least: int, most: int, unit: str) -> int:
        """Take a whole number.

        Args:
            key: Its key.
            default: What counts if it is left out or wrong.
            least: The smallest one allowed.
            most: The largest one.
            unit: Things that it counts, for the error.
        """
        value = self.optional_integer(key, least, most, unit)
        return default if value is None else value

    def optional_integer(self, key: str, least: int, most: int, unit: str) -> int | None:
        """Take a whole number as `integer` does; None if it is left out or wrong."""
        value = self._values.get(key)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            self.complain(key, f"it is a whole number of {unit} from {least:_} to {most:_}, not {show(value)}.")
            return None
        return value

    def amount(self, key: str, unit: str) -> float | None:
        """Take a number that is not negative; None if it is left out or wrong."""
        value = self._values.get(key)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value < 0:
            self.complain(key, f"it is {unit}, 0 or more, not {show(value)}. Write it like 0.05.")
            return None
        return float(value)

    def boolean(self, key: str) -> bool:
        """Take a truth value; false if it is left out or wrong."""
        value = self._values.get(key, False)
        if not isinstance(value, bool):
            self.complain(key, f"it is true or false, without quotes, not {show(value)}.")
            return False
        return value

    def choice(self, key: str, choices: Sequence[str], default: str) -> str:
        """Take one of several texts; the default if it is left out or wrong."""
        value = self._values.get(key, default)
        if not isinstance(value, str) or value not in choices:
            near = nearest_name(value, choices) if isinstance(value, str) and value else ""
            self.complain(key, f"it is one of {', '.join(map(show, choices))}, not {show(value)}. {near}".rstrip())
            return default
        return value

    def _passes(self, key: str, value: str, check: Check | None, index: int | None = None) -> bool:
        if check is None:
            return True
        try:
            check(value)
        except (ValueError, ConfigurationError) as exc:
            text = str(exc)
            self.complain(key, text if text.endswith((".", "?")) else text + ".", index=index)
            return False
        return True


def show(value: object) -> str:
    """Return a value of a file as an error shows it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict | list):
        return "a table" if isinstance(value, dict) else "a list"
    text = repr(value) if isinstance(value, str) else str(value)
    return text if len(text) <= SHOWN_CHARACTERS_MAX else f"{text[:SHOWN_CHARACTERS_MAX]}..."
