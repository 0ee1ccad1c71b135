"""TOML tables with typed accessors that collect all mistakes, and report them together with their lines.

A `Document` parses the text, a `Table` reads the values of one table. The standard parser does not keep line numbers, so
`find_lines` scans the text for keys again. The scanner reads only text that the parser has accepted, checks nothing, and skips
over strings, comments, arrays and inline tables.
"""

from __future__ import annotations

import math
import re
import tomllib
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias

from iris_py.errors import ConfigurationError
from iris_py.wire.names import nearest_name
from iris_security.text_form import holds_secret

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

#: The path of keys and array positions to a value: ``("export", 0, "to")``.
KeyPath: TypeAlias = tuple[str | int, ...]

_BLANK: Final = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
_BARE_KEY: Final = re.compile(r"[A-Za-z0-9_-]+")
_STRING: Final = re.compile(
    r'"""(?:[^\\]|\\.)*?"{3,5}|' r"'''.*?'{3,5}|" r'"(?:[^"\\\n]|\\.)*"|' r"'[^'\n]*'",
    re.DOTALL,
)
_SIMPLE: Final = re.compile(r"[^,\]}\n#]*")


def find_lines(text: str) -> Mapping[KeyPath, int]:
    """Return the line, from 1, of each key, table and array element in a valid TOML text; for a table, its header's line.

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
        """Skip blanks and comments; return whether text follows."""
        self._match(_BLANK)
        return self._position < len(self._text)

    def _match(self, pattern: re.Pattern[str]) -> str:
        found = pattern.match(self._text, self._position)
        assert found is not None, "the text is not valid TOML"
        self._position = found.end()
        return found.group()

    def _take(self, letters: str) -> bool:
        """Skip blanks, then the given letters if they follow; return True if they did."""
        self._match(_BLANK)
        if not self._text.startswith(letters, self._position):
            return False
        self._position += len(letters)
        return True

    def _note(self, path: KeyPath) -> None:
        """Note the line of the first mention of a path and of its parent tables."""
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
        """Read a dotted key with bare or quoted parts."""
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
    """Return the text of a quoted key."""
    if key.startswith("'") or "\\" not in key:
        return key[1:-1]
    import tomllib  # such keys are rare

    return next(iter(tomllib.loads(f"{key} = 0")))


#: Mistakes reported for one file. Too small: an operator corrects some and meets more; too large: the list is too long to read.
PROBLEMS_MAX: Final = 100
#: Characters shown of a wrong value. Too small: the value is not recognised; too large: a pasted file fills the terminal.
SHOWN_CHARACTERS_MAX: Final = 60

_PLACE: Final = re.compile(r" \(at (?:line (\d+), column \d+|end of document)\)$")


def refuse_unfit_text(text: str, path: str, bytes_max: int, advice: str) -> None:
    """Refuse a settings file that is too large or contains a secret, before an error quotes the text.

    Args:
        text: The content of the file.
        path: The file name for errors.
        bytes_max: The largest size.
        advice: The right places for secrets, as sentences.

    Raises:
        ConfigurationError: The file is refused.
    """
    size = len(text.encode(errors="surrogatepass"))
    if size > bytes_max:
        raise ConfigurationError(f"{path}:1: the file has {size} bytes, and {bytes_max} are allowed. Join rules by patterns.")
    line = next((number for number, each in enumerate(text.split("\n"), 1) if holds_secret(each)), None)
    if line is not None:
        raise ConfigurationError(f"{path}:{line}: this line contains a secret. {advice}")


class TextCheck(Protocol):
    """A function that refuses a text with a `ValueError` or `ConfigurationError`, whose text says how to correct the value."""

    def __call__(self, text: str, /) -> object:
        """Return normally for a valid text; the result is ignored."""


class Document:
    """A TOML text, and the mistakes found so far.

    Args:
        path: The file name for errors.

    Raises:
        ConfigurationError: The text is no TOML.

    Attributes:
        values: The parsed content.
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
            self._problems[line, f"this is not TOML: {_PLACE.sub('', str(exc))}. Correct the line, or the one before it."] = (
                None
            )
        except RecursionError:
            self._problems[1, "its values are nested too deeply. Write plain tables and lists."] = None
        self.check()

    def line_of(self, where: KeyPath) -> int:
        """Return the line of a key or table, or of its nearest parent in the text."""
        while where and where not in self._lines:
            where = where[:-1]
        return self._lines.get(where, 1)

    def complain(self, where: KeyPath, text: str) -> None:
        """Report a mistake at a path."""
        self.complain_at(self.line_of(where), text)

    def complain_at(self, line: int, text: str) -> None:
        """Report a mistake in a line."""
        self._problems[line, text] = None

    def check(self) -> None:
        """Raise an error with all mistakes so far.

        Raises:
            ConfigurationError: The document has mistakes. The text has a line for each mistake, in the order of the file.
        """
        if self._problems:
            raise ConfigurationError(join_problems(self._path, list(self._problems)))


def join_problems(path: str, problems: Sequence[tuple[int, str]]) -> str:
    """Return a text with a line for each mistake in a file.

    Args:
        problems: The line and a sentence for each mistake.
    """
    found = [f"{path}:{line}: {text}" for line, text in sorted(problems)]
    if len(found) > PROBLEMS_MAX:
        found[PROBLEMS_MAX:] = [f"{path}: {len(found) - PROBLEMS_MAX} more mistakes. Correct these first."]
    return "\n".join(found)


def table_at(document: Document, where: KeyPath, values: object, title: str) -> Mapping[str, object]:
    """Return a table of the document; an empty one if it is absent, or wrong and reported."""
    if values is None:
        return {}
    if not isinstance(values, dict):
        document.complain(where, f"{title} is a table. Write {title} on a line of its own, and its keys below it.")
        return {}
    return values


class Table:
    """One table of a document, with known keys.

    Args:
        document: The document, which collects mistakes.
        where: The path of the table.
        title: The table's name for errors, such as ``[gateway]``.
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
        """The first line of the table."""
        return self._document.line_of(self._where)

    def line_of(self, key: str, index: int | None = None) -> int:
        """Return the line of a key, or of one element of its list."""
        return self._document.line_of((*self._where, key) if index is None else (*self._where, key, index))

    def complain(self, key: str, text: str, *, index: int | None = None, named: bool = True) -> None:
        """Report a mistake in the value of a key.

        Args:
            text: The mistake and its correction.
            index: The wrong element of a list.
            named: Whether the error names the key before the text.
        """
        self._document.complain_at(self.line_of(key, index), f"{self._title} {f'{key}: ' if named else ''}{text}")

    def text(self, key: str, advice: str, check: TextCheck | None = None) -> str | None:
        """Return a text; None if the key is absent or wrong.

        Args:
            advice: The correction, as a sentence.
            check: Refuses wrong texts.
        """
        if key not in self._values:
            return None
        value = self._values[key]
        if not isinstance(value, str) or not value:
            self.complain(key, f"it must be text, not {show(value)}. {advice}")
            return None
        return value if self._passes(key, value, check) else None

    def required_text(self, key: str, advice: str, check: TextCheck | None = None) -> str:
        """Return a text as `text` does, but report an absent key as a mistake; empty after a mistake."""
        if key not in self._values:
            self.complain(key, f"has no {key}. {advice}", named=False)
        return self.text(key, advice, check) or ""

    def texts(self, key: str, count_max: int, advice: str, check: TextCheck | None = None) -> list[tuple[int, str]]:
        """Return a list of distinct texts.

        Args:
            count_max: The largest number of texts.
            advice: The correction, as a sentence.
            check: Refuses wrong texts.

        Returns:
            The valid texts with their positions; empty if the list is absent.
        """
        value = self._values.get(key, [])
        if not isinstance(value, list):
            self.complain(key, f"it must be a list of texts, not {show(value)}. {advice}")
            return []
        if key in self._values and not value:
            self.complain(key, f"it is an empty list. {advice}")
        if len(value) > count_max:
            self.complain(key, f"it has {len(value)} entries, and {count_max} are allowed. {advice}")
        found: dict[str, int] = {}
        for index, one in enumerate(value[:count_max]):
            if not isinstance(one, str) or not one:
                self.complain(key, f"an entry must be text, not {show(one)}. {advice}", index=index)
            elif one in found:
                self.complain(key, f"{show(one)} is given twice. Leave one out.", index=index)
            elif self._passes(key, one, check, index):
                found[one] = index
        return [(index, one) for one, index in found.items()]

    def integer(self, key: str, default: int, least: int, most: int, unit: str) -> int:
        """Return a whole number.

        Args:
            default: The value for an absent or wrong key.
            least: The smallest allowed number.
            most: The largest allowed number.
            unit: The counted things, for the error.
        """
        value = self.optional_integer(key, least, most, unit)
        return default if value is None else value

    def optional_integer(self, key: str, least: int, most: int, unit: str) -> int | None:
        """Return a whole number as `integer` does; None if the key is absent or wrong."""
        value = self._values.get(key)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            self.complain(key, f"it must be a whole number of {unit} from {least:_} to {most:_}, not {show(value)}.")
            return None
        return value

    def amount(self, key: str, unit: str) -> float | None:
        """Return a non-negative number; None if the key is absent or wrong."""
        value = self._values.get(key)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value < 0:
            self.complain(key, f"it must be {unit}, 0 or more, not {show(value)}. Write it like 0.05.")
            return None
        return float(value)

    def boolean(self, key: str) -> bool:
        """Return a boolean; False if the key is absent or wrong."""
        value = self._values.get(key, False)
        if not isinstance(value, bool):
            self.complain(key, f"it must be true or false, without quotes, not {show(value)}.")
            return False
        return value

    def choice(self, key: str, choices: Sequence[str], default: str) -> str:
        """Return one of several texts; the default if the key is absent or wrong."""
        value = self._values.get(key, default)
        if not isinstance(value, str) or value not in choices:
            near = nearest_name(value, choices) if isinstance(value, str) and value else ""
            self.complain(key, f"it must be one of {', '.join(map(show, choices))}, not {show(value)}. {near}".rstrip())
            return default
        return value

    def _passes(self, key: str, value: str, check: TextCheck | None, index: int | None = None) -> bool:
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
    """Return a value as shown in errors."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict | list):
        return "a table" if isinstance(value, dict) else "a list"
    text = repr(value) if isinstance(value, str) else str(value)
    return text if len(text) <= SHOWN_CHARACTERS_MAX else f"{text[:SHOWN_CHARACTERS_MAX]}..."
