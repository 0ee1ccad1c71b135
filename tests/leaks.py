"""Finds secrets in what a test has written: log, standard output and error, of itself and of what it started."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from iris_security import AdministrationKey, Secret, SecretFormatError
from iris_security.administration import ADMINISTRATION_PREFIX

if TYPE_CHECKING:
    from collections.abc import Iterable

_TEXT = re.compile(r"iris(?:admin)?1\.[A-Za-z0-9_-]{48}")
#: The secrets that most tests use, as somebody who shows them by mistake would.
_VALUES = tuple(bytes(range(start, start + 32)) for start in (0, 32))
_SHOWN = tuple(shown for value in _VALUES for shown in (value.hex(), repr(value)[2:-1]))


def find_secrets(texts: Iterable[str]) -> list[str]:
    """Return where a secret stands in some texts: what surrounds it, without the secret itself."""
    found = []
    for text in texts:
        places = [match.span() for match in _TEXT.finditer(text) if _is_secret(match.group())]
        places += [(text.index(shown), text.index(shown) + len(shown)) for shown in _SHOWN if shown in text]
        found += [f"{text[max(0, start - 60) : start]}<secret>{text[stop : stop + 60]}" for start, stop in places]
    return found


def _is_secret(text: str) -> bool:
    try:
        AdministrationKey.parse(text) if text.startswith(ADMINISTRATION_PREFIX) else Secret.parse(text)
    except SecretFormatError:
        return False  # only the form of one
    return True
