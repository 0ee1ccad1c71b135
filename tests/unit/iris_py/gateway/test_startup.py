"""The files of a gateway: who may read and write them, and what is in them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from iris_py.errors import ConfigurationError
from iris_py.gateway.startup import read_identity, read_settings
from iris_security import CloudKey

if TYPE_CHECKING:
    from pathlib import Path

KEY = CloudKey(b"b" * 32)
SETTINGS = '[gateway]\nname = "us"\nidentity_file = "us.identity"\n'


def write(path: Path, content: str | bytes, mode: int) -> Path:
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    path.chmod(mode)
    return path


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o644])
def test_settings_may_be_read_by_all(tmp_path: Path, mode: int) -> None:
    settings = read_settings(write(tmp_path / "federation.toml", SETTINGS, mode))
    assert (settings.path, settings.gateway.name) == ("federation.toml", "us")


@pytest.mark.parametrize(
    ("content", "mode", "words"),
    [
        (SETTINGS, 0o666, r"other users can write .*federation.toml, and so change the exports. Run: chmod go-w "),
        (SETTINGS, 0o660, "other users can write"),
        (b"[gateway]\n# \xff\n", 0o600, r"^federation\.toml:2: this is not UTF-8\. Save the file as UTF-8\.$"),
        ("[gateway]\n", 0o600, r"^federation\.toml:1: \[gateway\] has no identity_file"),
        ("#" * ((1 << 20) + 1), 0o600, "is larger than 1048576 bytes"),
    ],
)
def test_settings_that_are_refused(tmp_path: Path, content: str | bytes, mode: int, words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        read_settings(write(tmp_path / "federation.toml", content, mode))


def test_settings_that_are_no_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"no\.toml cannot be read: No such file or directory. Correct the path"):
        read_settings(tmp_path / "no.toml")
    with pytest.raises(ConfigurationError, match="is not a regular file"):
        read_settings(tmp_path)


def test_an_identity_is_where_the_settings_say(tmp_path: Path) -> None:
    (tmp_path / "keys").mkdir()
    write(tmp_path / "keys" / "us.identity", f"# of the cloud us\n\n {KEY.text} \n", 0o640)
    path = tmp_path / "federation.toml"
    for identity in ("keys/us.identity", str(tmp_path / "keys" / "us.identity")):
        assert read_identity(read_settings(write(path, SETTINGS.replace("us.identity", identity), 0o600)), path) == KEY


def test_an_identity_in_the_home_of_the_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    write(tmp_path / "us.identity", KEY.text, 0o600)
    (tmp_path / "etc").mkdir()
    path = write(tmp_path / "etc" / "federation.toml", SETTINGS.replace("us.identity", "~/us.identity"), 0o600)
    assert read_identity(read_settings(path), path) == KEY


@pytest.mark.parametrize(
    ("content", "mode", "words"),
    [
        (KEY.text, 0o622, "identity_file: other users can write .*us.identity, and so choose the secret. Run: chmod 600 "),
        ("", 0o600, "identity_file: .*us.identity holds 0 lines"),
        (KEY.public_text, 0o600, "identity_file: .* this is the public half of the key of a cloud"),
        (KEY.text[:-1], 0o600, "identity_file: .* has 48 characters"),
        (None, 0, "identity_file: .*us.identity cannot be read: No such file or directory. Correct the path"),
    ],
)
def test_an_identity_that_is_refused(tmp_path: Path, content: str | None, mode: int, words: str) -> None:
    if content is not None:
        write(tmp_path / "us.identity", content, mode)
    path = write(tmp_path / "federation.toml", SETTINGS, 0o600)
    with pytest.raises(ConfigurationError, match=words) as caught:
        read_identity(read_settings(path), path)
    assert KEY.text[10:30] not in str(caught.value)


def test_an_identity_that_all_can_read_is_used_with_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    write(tmp_path / "us.identity", KEY.text, 0o644)
    path = write(tmp_path / "federation.toml", SETTINGS, 0o600)
    assert read_identity(read_settings(path), path) == KEY
    assert "every user of this machine can read the secret in" in caplog.text
