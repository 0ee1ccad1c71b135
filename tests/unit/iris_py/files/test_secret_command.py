"""A secret that a command prints: how it is run, what it may print, and what is said of one that fails."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import traceback
from pathlib import Path
from typing import Any

import pytest

from iris_py.errors import ConfigurationError
from iris_py.files.secret_command import check_command, run_secret_command, split_command
from iris_py.files.secrets import SECRET_FILE_BYTES_MAX
from iris_security.secret import Secret

SECRET, OTHER = (Secret(bytes(range(start, start + 32))) for start in (0, 32))
LONG_S = 60.0


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A file with what the command prints: a secret, unless a test writes something else."""
    path = tmp_path / "printed"
    path.write_text(SECRET.text)
    return path


def shell(text: str, path: Path) -> list[str]:
    """Return a command that runs a text in a shell, where ``$1`` is the file."""
    return ["/bin/sh", "-c", text, "sh", str(path)]


def refusal(command: list[str], timeout_s: float = LONG_S) -> str:
    """Run a command that has no secret to offer; return what is said of it, in which nothing of a secret may stand."""
    with pytest.raises(ConfigurationError) as caught:
        run_secret_command(command, "here", timeout_s)
    shown = "".join(traceback.format_exception(caught.value)) + repr(vars(caught.value))
    assert SECRET.text[6:20] not in shown
    assert str(caught.value).startswith("here: ")
    return str(caught.value)


# -- what it prints


@pytest.mark.parametrize(
    ("printed", "secrets"),
    [
        (SECRET.text, (SECRET,)),
        (f"\n# of the network\n  {SECRET.text}\r\n", (SECRET,)),
        (f"{OTHER.text}\n{SECRET.text}\n", (OTHER, SECRET)),
    ],
)
def test_it_prints_what_a_secret_file_holds(path: Path, printed: str, secrets: tuple[Secret, ...]) -> None:
    path.write_text(printed)
    assert run_secret_command(["cat", str(path)], "here", LONG_S) == secrets


@pytest.mark.parametrize("printed", ["", "# nothing\n", "no secret", SECRET.text + "x", f"{SECRET.text} {OTHER.text}"])
def test_another_output_is_refused_and_not_shown(path: Path, printed: str) -> None:
    path.write_text(printed)
    text = refusal(["cat", str(path)])
    assert re.match(r"here: the output of cat (holds no|is not a) secret", text)
    assert "no secret" not in text.replace("holds no secret", "")


def test_the_output_is_bounded(path: Path) -> None:
    comment = "#" + "x" * (SECRET_FILE_BYTES_MAX - len(SECRET.text) - 2) + "\n"
    path.write_text(comment + SECRET.text)
    assert len(path.read_bytes()) == SECRET_FILE_BYTES_MAX
    assert run_secret_command(["cat", str(path)], "here", LONG_S) == (SECRET,)
    path.write_text("#" + comment + SECRET.text)
    assert "printed more than 1024 bytes" in refusal(["cat", str(path)])
    assert "printed more than 1024 bytes" in refusal(shell("while cat $1; do :; done", path))


# -- how it is run


def test_no_shell_sees_the_command(tmp_path: Path) -> None:
    words = ["$(touch a)", ";touch b", "`touch c`", "> d", "*"]
    program = "import sys; assert sys.argv[1:] == " + repr(words) + f"; print({SECRET.text[:9]!r} + {SECRET.text[9:]!r})"
    assert run_secret_command([sys.executable, "-c", program, *words], "here", LONG_S) == (SECRET,)
    assert list(tmp_path.iterdir()) == []


def test_it_gets_no_input_and_the_environment(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VAULT_TOKEN", "token")
    assert run_secret_command(shell('test -z "$(cat)" && test $VAULT_TOKEN = token && cat $1', path), "here", LONG_S) == (
        SECRET,
    )


def test_much_on_standard_error_holds_nothing_up(path: Path) -> None:
    assert run_secret_command(shell("head -c 1000000 /dev/zero >&2; cat $1", path), "here", LONG_S) == (SECRET,)


def test_a_helper_that_it_leaves_behind_holds_nothing_up(path: Path, tmp_path: Path) -> None:
    """As the agent of GnuPG: it keeps running, here even with standard error."""
    kept = tmp_path / "pid"
    try:
        assert run_secret_command(shell(f"sleep 1000 >/dev/null & echo $! > {kept}; cat $1", path), "here", LONG_S) == (SECRET,)
        os.kill(int(kept.read_text()), 0)
    finally:
        os.kill(int(kept.read_text()), signal.SIGKILL)


@pytest.mark.parametrize("text", ["exec sleep 1000", "cat $1; exec sleep 1000", "cat $1; exec sleep 1000 >&- 2>&-"])
def test_one_that_takes_too_long_is_killed(path: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    started: list[int] = []

    class Noted(subprocess.Popen[bytes]):
        """A process whose number is known, also if it had no time to say it."""

        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            started.append(self.pid)

    monkeypatch.setattr(subprocess, "Popen", Noted)
    assert "was killed, because it had not ended after 1 s" in refusal(shell(text, path), 1.0)
    (pid,) = started
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


# -- what is said of one that fails


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("cat $1; exit 3", "/bin/sh ended with exit status 3. Run it in a terminal"),
        ("cat $1; echo first >&2; echo 'no\tsuch entry.' >&2; exit 1", "/bin/sh ended with exit status 1: no?such entry. Run"),
        ("cat $1; kill -9 $$", "/bin/sh was killed by SIGKILL. Run it"),
        (
            "cat $1 >&2; exit 1",
            "ended with exit status 1: its last line on standard error is not shown, because it contains a secret. Run",
        ),
        ("cat $1; head -c 30 $1 >&2; exit 1", "its last line on standard error is not shown"),
    ],
)
def test_one_that_fails_is_told_with_its_last_line_and_without_its_output(path: Path, text: str, says: str) -> None:
    assert says in refusal(shell(text, path))


def test_what_it_has_printed_is_not_shown_if_it_repeats_it(path: Path) -> None:
    path.write_text("hunter2-hunter2")
    text = refusal(shell("cat $1; echo cannot parse $(cat $1) >&2; exit 1", path))
    assert "hunter2" not in text
    assert "its last line on standard error is not shown, because it contains a part of its output" in text


def test_a_long_line_is_cut_off(path: Path) -> None:
    assert len(refusal(shell("printf '%010000d' 7 >&2; exit 1", path))) < 400


def test_its_arguments_are_not_shown(tmp_path: Path) -> None:
    assert "token-1" not in refusal(["false", "token-1"])
    assert refusal([str(tmp_path / "none"), "token-1"]) == (
        f"here: {tmp_path}/none cannot be run: No such file or directory. Correct the command."
    )


# -- how it is written


def test_words_are_split_as_a_shell_does() -> None:
    assert split_command("pass show 'my iris'", "here") == ("pass", "show", "my iris")
    assert split_command("vault kv get -field=secret \"a b\" '$X'", "here") == (
        "vault",
        "kv",
        "get",
        "-field=secret",
        "a b",
        "$X",
    )


def test_a_path_of_the_program_starts_where_it_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/x")
    base = Path("/etc/iris")
    assert check_command(["bin/get", "a/b"], "here", base) == ("/etc/iris/bin/get", "a/b")
    assert check_command(["/bin/get"], "here", base) == ("/bin/get",)
    assert check_command(["~/get", "~"], "here", base) == ("/home/x/get", "~")
    assert check_command(["pass"], "here", base) == ("pass",)
    assert check_command(["bin/get"], "here") == ("bin/get",)


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ("pass show iris", "here must be a list of strings"),
        (b"pass", "here must be a list of strings"),
        (7, "here must be a list of strings"),
        (["pass", 7], "here must be a list of strings"),
        ([], "here names no command"),
        ([" ", "x"], "here names no command"),
        (["pass", "a\0b"], "here names no command"),
        (["echo", SECRET.text], "here is a secret"),
        ([SECRET.text], "here is a secret"),
    ],
)
def test_what_is_no_command_is_refused(value: Any, says: str) -> None:
    with pytest.raises(ConfigurationError, match=says) as caught:
        check_command(value, "here")
    assert SECRET.text not in str(caught.value)


@pytest.mark.parametrize("text", ["pass 'show", "", "''", SECRET.text, f"echo {SECRET.text}"])
def test_text_that_is_no_command_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match=r"^here ") as caught:
        split_command(text, "here")
    assert SECRET.text not in str(caught.value)
