"""Tests of tests/leaks.py and tests/process_leaks.py, and of what all tests write."""

from __future__ import annotations

import gc
import logging
import os
import re
import subprocess
import sys
from base64 import b64encode, urlsafe_b64encode
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import iris_py
from iris_py.errors import ConfigurationError
from iris_py.logs import EventLogger
from iris_py.metrics import StatusServer
from iris_security import AdministrationKey, CloudKey, Keyring, Secret
from tests import conftest
from tests.leaks import SaidWatch, find_secrets
from tests.process_leaks import ProcessWatch

if TYPE_CHECKING:
    from collections.abc import Iterator

SECRET = Secret(bytes(range(32)))
KEY = AdministrationKey(b"a" * 32)


@pytest.mark.parametrize(
    "shown",
    [
        SECRET.text,
        SECRET.value.hex(),
        repr(SECRET.value),
        b64encode(SECRET.value).decode(),
        urlsafe_b64encode(SECRET.value).decode(),
        KEY.text,
        CloudKey(b"c" * 32).text,
    ],
    ids=["text", "hex", "bytes", "base64", "base64 of addresses", "key", "identity"],
)
def test_a_secret_is_found_and_not_shown_again(shown: str) -> None:
    (found,) = find_secrets(["nothing here", f"before {shown} behind"])
    assert re.fullmatch(r"before (b')?<secret>('|.{1,2}=?)? behind", found), "of base64 the last letters may be left"


@pytest.fixture
def said() -> Iterator[SaidWatch]:
    """The watch of all tests, without what this one has made it find."""
    yield conftest._said
    conftest._said.take()


@pytest.mark.shows_secrets
def test_what_is_said_and_kept_by_nobody_is_found(said: SaidWatch, capsys: pytest.CaptureFixture[str]) -> None:
    said.take()
    logger = EventLogger("iris_py.test")
    logger.warning("seed_unreached", "nothing here", seed="a:1")
    assert said.take() == []
    logger.warning("seed_unreached", "it is silent", reason=SECRET.text)
    logger.warning("seed_unreached", "it is %s", SECRET.value.hex())
    ConfigurationError(f"{SECRET.text} is wrong. Write another one.")
    print(SECRET.text)
    capsys.readouterr()
    found = said.take()
    where = [each.partition(":")[0] for each in found]
    assert where.count("a record of the log") == 2
    assert {*where} == {"a record of the log", "an error", "the output of a command"}
    assert find_secrets(found) == []


def test_no_object_of_a_node_shows_a_secret_to_whoever_prints_it() -> None:
    before = gc.get_objects()  # what other tests have left may show bytes like those of the secret, and has no secret to hide
    others = set(map(id, before))

    async def main() -> list[str]:
        clusters = {"a": SECRET}
        async with (
            iris_py.connect(secret=SECRET, clusters=clusters, listen="127.0.0.1:0", discovery=False) as node,
            node.join("a", echo),
            node.subscribe("t"),
        ):
            await node.request("a", b"")
            status = StatusServer()
            status.show(node)
            text = (await status._metrics()).decode()
            status.abort()
            packages = ("iris_py", "iris_overlay", "iris_security")
            own = [each for each in gc.get_objects() if id(each) not in others]
            shown = [repr(each) for each in own if str(type(each).__module__).startswith(packages)]
            assert len(shown) > 100
            return find_secrets([*shown, text])

    assert iris_py.run(main()) == []


async def echo(request: iris_py.Request) -> bytes:
    return request.payload


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
    result.stdout.fnmatch_lines(["*a secret was written or shown*"])


def test_the_log_of_a_node_that_fails_with_its_secret_shows_none(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    path = tmp_path / "secret"
    path.write_text(SECRET.text)
    caplog.set_level(logging.DEBUG)
    logging.getLogger("iris_py").error("cannot use %r of %s", Keyring(SECRET, clusters={"a": SECRET}), path)
    assert find_secrets([caplog.text]) == []


# -- processes

SHOWS = pytest.mark.shows_secrets
WAITS = "import sys; print(flush=True); sys.stdin.read()"
#: Starts Python with the arguments that it is given, and the environment that stands before them.
STARTS = "import os, subprocess, sys; subprocess.run(sys.argv[2:], env=os.environ | eval(sys.argv[1]))"
#: As it is written where no whole secret may stand.
SPLIT = f"{SECRET.text[:20]!r} + {SECRET.text[20:]!r}"


@pytest.fixture
def watch() -> Iterator[ProcessWatch]:
    """A watch of this test alone."""
    watch = ProcessWatch()
    sys.addaudithook(watch.audit)
    yield watch
    watch.is_on = False


def found_by(watch: ProcessWatch, command: list[str], **environment: str) -> list[str]:
    """Run a command; return what was found when it, and what it has started, was running."""
    with subprocess.Popen(
        command, env={**os.environ, **environment}, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "\n"
        watch.look()
    return watch.take()


@SHOWS
def test_a_secret_on_a_command_line_is_found(watch: ProcessWatch) -> None:
    found = found_by(watch, [sys.executable, "-c", WAITS, SECRET.text])
    assert found
    assert all(each.startswith("the command line: ") and each.rstrip().endswith("<secret>") for each in found)
    assert find_secrets(found) == []


@SHOWS
def test_a_secret_on_the_command_line_of_what_a_process_starts_is_found(watch: ProcessWatch) -> None:
    starts = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {WAITS!r}, {SPLIT}])"
    (found,) = found_by(watch, [sys.executable, "-c", starts])
    assert found.startswith("the command line: ")


@SHOWS
def test_a_secret_in_another_variable_is_found(watch: ProcessWatch) -> None:
    found = found_by(watch, [sys.executable, "-c", WAITS], OTHER=SECRET.text)
    assert found
    assert all(each.startswith("the environment of ") and "OTHER=<secret>" in each for each in found)


def test_a_secret_that_the_user_has_put_into_the_environment_is_inherited(watch: ProcessWatch) -> None:
    command = [sys.executable, "-c", STARTS, "{}", sys.executable, "-c", WAITS]
    assert found_by(watch, command, IRIS_SECRET=SECRET.text) == []


@SHOWS
@pytest.mark.parametrize("has_another", [False, True])
def test_a_secret_that_a_process_puts_into_the_environment_of_another_is_found(watch: ProcessWatch, has_another: bool) -> None:
    command = [sys.executable, "-c", STARTS, f"{{'IRIS_SECRET': {SPLIT}}}", sys.executable, "-c", WAITS]
    environment = {"IRIS_SECRET": Secret(bytes(range(9, 41))).text} if has_another else {}
    (found,) = found_by(watch, command, **environment)
    assert found.startswith("the environment of ")
    assert find_secrets([found]) == []


@SHOWS
def test_a_secret_that_iris_puts_into_an_environment_is_found_and_one_that_the_test_puts_there_is_none(
    watch: ProcessWatch,
) -> None:
    program, environment = "subprocess.run(['true'], env=environment)", {**os.environ, "IRIS_SECRET": SECRET.text}
    of_iris = compile(program, str(Path(__file__).parents[1] / "iris_py" / "cli" / "x.py"), "exec")
    names = {"subprocess": subprocess, "environment": environment}
    exec(of_iris, names)
    (found,) = watch.take()
    assert found.startswith("the environment of true")
    subprocess.run(["true"], env=environment, check=True)
    assert watch.take() == []
    exec(of_iris, names)
    assert watch.take() == [], "what the user has put there is passed on"


@SHOWS
def test_a_test_that_starts_a_process_with_a_secret_fails(pytester: pytest.Pytester) -> None:
    names = "pytest_runtest_makereport, pytest_runtest_teardown"
    pytester.makeconftest(f"from tests.conftest import {names}")
    pytester.makepyfile(f"import subprocess\ndef test_it(): subprocess.run(['true', {SECRET.text!r}])")
    result = pytester.runpytest_inprocess("-p", "no:cacheprovider")
    result.assert_outcomes(passed=1, errors=1)
    result.stdout.fnmatch_lines(["*the command line: true <secret>*"])
