"""The per-user secret is in the directory that was checked, and is no link; files of operators may be links."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from iris_py.config import load_config
from iris_py.errors import ConfigurationError
from iris_py.files.secrets import read_secret_file, user_secret, write_secret_file
from iris_security import Secret

if TYPE_CHECKING:
    from collections.abc import Callable

SECRET = Secret(bytes(range(32)))


def test_the_per_user_secret_is_not_read_through_a_link(tmp_path: Path) -> None:
    write_secret_file(tmp_path / "elsewhere", SECRET)
    directory = tmp_path / "iris"
    directory.mkdir(mode=0o700)
    (directory / "secret").symlink_to(tmp_path / "elsewhere")

    with pytest.raises(ConfigurationError, match=r"secret is a symbolic link, .*Remove the link, or set IRIS_SECRET_FILE"):
        user_secret(directory)
    (tmp_path / "elsewhere").unlink()
    with pytest.raises(ConfigurationError, match="is a symbolic link"):
        user_secret(directory)  # and none is made where it leads to
    assert not (tmp_path / "elsewhere").exists()


def test_the_directory_may_be_a_link_to_one_of_the_user(tmp_path: Path) -> None:
    (tmp_path / "dotfiles").mkdir(mode=0o700)
    (tmp_path / "iris").symlink_to(tmp_path / "dotfiles")
    assert user_secret(tmp_path / "iris") == user_secret(tmp_path / "dotfiles")


def test_a_secret_that_an_operator_names_may_be_a_link(tmp_path: Path) -> None:
    """As Kubernetes mounts it."""
    (tmp_path / "..data").mkdir()
    write_secret_file(tmp_path / "..data" / "secret", SECRET)
    (tmp_path / "secret").symlink_to("..data/secret")
    assert read_secret_file(tmp_path / "secret", "secret_file") == (SECRET,)


@pytest.mark.parametrize(
    ("mode", "is_own"),
    [(0o400, True), (0o440, False)],
    ids=["of the user of the service", "of root, with an entry for the user"],
)
def test_a_credential_of_systemd_is_taken_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, mode: int, is_own: bool
) -> None:
    """A unit says IRIS_SECRET_FILE=%d/secret. The entry of the access control list shows as the rights of the group."""
    credentials = tmp_path / "credentials"
    credentials.mkdir()
    write_secret_file(credentials / "secret", SECRET)
    (credentials / "secret").chmod(mode)
    credentials.chmod(0o550)
    if not is_own:
        monkeypatch.setattr(os, "geteuid", lambda: (credentials / "secret").stat().st_uid + 1)
    environ = {"CREDENTIALS_DIRECTORY": str(credentials), "HOME": str(tmp_path)}
    environ["IRIS_SECRET_FILE"] = f"{environ['CREDENTIALS_DIRECTORY']}/secret"
    assert load_config(environ=environ).secret == SECRET
    assert not caplog.records


@pytest.mark.parametrize("is_there", [True, False], ids=["read", "made"])
def test_the_secret_is_in_the_directory_that_was_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_there: bool
) -> None:
    """Somebody puts another directory into its place, which he may write, too."""
    directory, gone, theirs = tmp_path / "iris", tmp_path / "gone", tmp_path / "theirs"
    theirs.mkdir()
    theirs.chmod(0o777)
    write_secret_file(theirs / "secret", SECRET)
    directory.mkdir(mode=0o700)
    ours = user_secret(directory) if is_there else None
    swapped: list[str] = []

    def swap_after(name: str) -> Callable[..., Any]:
        call = getattr(os, name)

        def look(path: str | Path, *arguments: Any, **settings: Any) -> Any:
            result = call(path, *arguments, **settings)
            if path == directory and not swapped:
                swapped.append(name)
                directory.rename(gone)
                theirs.rename(directory)
            return result

        return look

    monkeypatch.setattr(Path, "mkdir", lambda _path, **_settings: None)  # it is there
    for name in ("open", "stat"):
        monkeypatch.setattr(os, name, swap_after(name))
    found = user_secret(directory)
    assert found != SECRET
    assert swapped
    if ours is not None:
        assert found == ours
    assert read_secret_file(gone / "secret", "the checked one") == (found,)
    assert sorted(os.listdir(gone)) == os.listdir(directory) == ["secret"]
