"""Finds secrets in what a test has written: log, standard output and error, of itself and of what it started."""

from __future__ import annotations

import logging
import re
from base64 import b64encode, urlsafe_b64encode
from typing import TYPE_CHECKING, Any

import pytest

from iris_py.errors import IrisError
from iris_security import AdministrationKey, CloudKey, Secret, SecretFormatError
from iris_security.cloud_key import PRIVATE_PREFIX
from iris_security.text_form import ADMINISTRATION_PREFIX

if TYPE_CHECKING:
    from collections.abc import Iterable

_TEXT = re.compile(r"iris(?:admin|idp)?1\.[A-Za-z0-9_-]{48}")
#: The secrets that most tests use, as somebody who shows them by mistake would.
_VALUES = tuple(bytes(range(start, start + 32)) for start in (0, 32))
#: As texts, which begin with ``iris1.``, they are found above: only whole ones, for a mistyped one is shown on purpose.
_SHOWN = re.compile(
    "|".join(
        dict.fromkeys(
            pattern
            for value in _VALUES
            for pattern in (
                re.escape(value.hex()),
                re.escape(repr(value)[2:-1]),
                *(rf"(?<!1\.){re.escape(encode(value).decode().rstrip('='))}" for encode in (b64encode, urlsafe_b64encode)),
            )
        )
    )
)


def find_secrets(texts: Iterable[str]) -> list[str]:
    """Return where a secret stands in some texts: what surrounds it, without the secret itself."""
    found = []
    for text in texts:
        places = [match.span() for match in _TEXT.finditer(text) if _is_secret(match.group())]
        places += [match.span() for match in _SHOWN.finditer(text)]
        found += [f"{text[max(0, start - 60) : start]}<secret>{text[stop : stop + 60]}" for start, stop in places]
    return found


class SaidWatch:
    """Looks at what pytest does not report of a test that passes: records of the log that no handler keeps, with their facts,
    the texts of errors, and what the test has read of its own output.

    Attributes:
        is_on: Whether it looks.
    """

    def __init__(self) -> None:
        self.is_on = True
        self._found: dict[str, None] = {}

    def install(self) -> None:
        """Look from now on, until the process ends."""
        make_record, make_error, read = logging.Logger.makeRecord, IrisError.__init__, pytest.CaptureFixture.readouterr

        def watched_record(logger: logging.Logger, *arguments: Any, **options: Any) -> logging.LogRecord:
            record = make_record(logger, *arguments, **options)
            if record.name.startswith(("iris_", "spark_connector")):
                self.look("a record of the log", f"{record.getMessage()} {getattr(record, 'iris', '')}")
            return record

        def watched_error(error: IrisError, *arguments: object, **options: object) -> None:
            make_error(error, *arguments, **options)
            self.look("an error", f"{error} {error!r}")

        def watched_read(capture: Any) -> Any:
            said = read(capture)
            self.look("the output of a command", f"{said.out} {said.err}")
            return said

        logging.Logger.makeRecord = watched_record  # type: ignore[assignment]
        IrisError.__init__ = watched_error  # type: ignore[assignment]
        pytest.CaptureFixture.readouterr = watched_read  # type: ignore[assignment, method-assign]

    def look(self, where: str, text: str) -> None:
        """Look at a text."""
        if self.is_on:
            self._found |= dict.fromkeys(f"{where}: {found}" for found in find_secrets([text]))

    def take(self) -> list[str]:
        """Return where secrets were found since the last time, without the secrets."""
        found, self._found = self._found, {}
        return list(found)


def _is_secret(text: str) -> bool:
    parsers = {ADMINISTRATION_PREFIX: AdministrationKey.parse, PRIVATE_PREFIX: CloudKey.parse}
    parse = next((parse for prefix, parse in parsers.items() if text.startswith(prefix)), Secret.parse)
    try:
        parse(text)
    except SecretFormatError:
        return False  # only the form of one
    return True
