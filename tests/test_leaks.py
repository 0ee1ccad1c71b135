"""Tests of tests/leaks.py, and of what all tests write."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pytest

from iris_security import Keyring, Secret
from tests.leaks import find_secrets

if TYPE_CHECKING:
    from pathlib import Path

SECRET = Secret(bytes(range(32)))


@pytest.mark.parametrize("shown", [SECRET.text, SECRET.value.hex(), repr(SECRET.value)], ids=["text", "hex", "bytes"])
def test_a_secret_is_found_and_not_shown_again(shown: str) -> None:
    (found,) = find_secrets(["nothing here", f"before {shown} behind"])
    assert found.replace("b'", "").replace("'", "") == "before <secret> behind"


def test_only_the_form_of_a_secret_is_none() -> None:
    assert (
        find_secrets([SECRET.text[:-1] + ("A" if SECRET.text[-1] != "A" else "B"), repr(SECRET), repr(Keyring(SECRET))]) == []
    )


@pytest.mark.shows_secrets
def test_a_test_that_logs_a_secret_fails(pytester: pytest.Pytester) -> None:
    pytester.makeconftest("from tests.conftest import pytest_runtest_makereport")
    pytester.makepyfile(f"import logging\ndef test_it(): logging.getLogger('iris').warning('it is %s', {SECRET.text!r})")
    result = pytester.runpytest_inprocess("-p", "no:cacheprovider")
    result.assert_outcomes(passed=1, errors=1)
    result.stdout.fnmatch_lines(["*a secret was written*"])


def test_the_log_of_a_node_that_fails_with_its_secret_shows_none(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    path = tmp_path / "secret"
    path.write_text(SECRET.text)
    caplog.set_level(logging.DEBUG)
    logging.getLogger("iris_py").error("cannot use %r of %s", Keyring(SECRET, clusters={"a": SECRET}), path)
    assert find_secrets([caplog.text]) == []
