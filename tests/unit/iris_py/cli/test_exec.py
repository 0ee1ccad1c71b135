"""Commands are looked at before anything starts."""

from __future__ import annotations

import pytest

from iris_py.cli.exec import parse_command
from iris_py.errors import ConfigurationError


def test_words() -> None:
    assert parse_command("tr a-z 'A-Z '", use_shell=False) == ("tr", "a-z", "A-Z ")
    assert parse_command("tr a-z A-Z | sort", use_shell=True) == ("/bin/sh", "-c", "tr a-z A-Z | sort")


@pytest.mark.parametrize(
    ("text", "use_shell", "words"),
    [
        ("", False, "empty"),
        ("  ", True, "empty"),
        ("tr 'a", False, "Correct its quotes"),
        ("no-such-command-anywhere", False, "no command 'no-such-command-anywhere'"),
    ],
)
def test_mistakes(text: str, use_shell: bool, words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        parse_command(text, use_shell=use_shell)
