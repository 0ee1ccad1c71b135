"""Settings: their values, where they come from, and which are refused."""

from __future__ import annotations

import json
import os
import pwd
import stat
import subprocess
import sys
import traceback
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from iris_py.config import Config, companion_config, config_path, default_secret, load_config, make_keyring, secret_paths
from iris_py.errors import ConfigurationError
from iris_py.files.secrets import read_secret_file, user_secret, write_secret_file
from iris_py.net.addresses import format_address, is_loopback, parse_address
from iris_py.settings.keys import CLUSTERS_MAX
from iris_py.wire.facts import NAME_LENGTH_MAX
from iris_security import AdministrationKey
from iris_security.keyring import GENERATIONS_MAX, Keyring
from iris_security.secret import Secret

SECRET = Secret.from_bytes(bytes(range(32)))
OTHER = Secret.from_bytes(bytes(32))
KEY = AdministrationKey(b"a" * 32)


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    return {
        "HOME": str(tmp_path / "home"),
        "XDG_CONFIG_HOME": str(tmp_path / "config"),
        "XDG_STATE_HOME": str(tmp_path / "state"),
    }


def write_file(environ: dict[str, str], text: str, mode: int = 0o600) -> Path:
    path = Path(environ["XDG_CONFIG_HOME"]) / "iris" / "iris.toml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(mode)
    return path


def refusal(**arguments: Any) -> str:
    with pytest.raises(ConfigurationError) as caught:
        load_config(**arguments)
    text = str(caught.value)
    assert SECRET.text not in text
    return text


def test_nothing_configured(environ: dict[str, str], tmp_path: Path) -> None:
    config = load_config(environ=environ)
    assert (config.network, config.secret, config.keyring) == ("default", None, None)
    assert (config.listen, config.seeds, config.zone, config.discovery) == ("127.0.0.1:0", (), "", True)
    assert config.max_message_bytes == 16 << 20
    assert config.clusters == {}
    assert config.config_directory == tmp_path / "config" / "iris"
    assert config.state_directory == tmp_path / "state" / "iris"
    assert config.is_zero_configuration
    assert not any(tmp_path.iterdir()), "loading makes nothing"


def test_arguments_before_environment_before_file(environ: dict[str, str]) -> None:
    write_file(environ, 'network = "file"\nzone = "file"\nlisten = "127.0.0.1:1"\ndiscovery = false\n')
    environ |= {"IRIS_NETWORK": "environment", "IRIS_ZONE": "environment"}
    config = load_config(network="argument", environ=environ)
    assert (config.network, config.zone, config.listen, config.discovery) == ("argument", "environment", "127.0.0.1:1", False)


def test_every_variable(environ: dict[str, str]) -> None:
    environ |= {
        "IRIS_NETWORK": "n",
        "IRIS_SECRET": f" {SECRET.text}\n",
        "IRIS_LISTEN": "0.0.0.0:4711",
        "IRIS_SEEDS": "a.example:1, [::1]:2,,a.example:1",
        "IRIS_ADVERTISE": "203.0.113.5, listen",
        "IRIS_ZONE": "eu-west/a",
        "IRIS_DISCOVERY": "Off",
        "IRIS_MAX_MESSAGE_BYTES": "33554432",
    }
    config = load_config(environ=environ)
    assert (config.network, config.secret, config.listen) == ("n", SECRET, "0.0.0.0:4711")
    assert (config.seeds, config.zone, config.discovery) == (("a.example:1", "[::1]:2"), "eu-west/a", False)
    assert config.max_message_bytes == 32 << 20
    assert config.advertise == ("203.0.113.5", "listen")
    assert not config.is_zero_configuration


def test_every_key_of_the_file(environ: dict[str, str]) -> None:
    path = write_file(
        environ,
        'network = "n"\nsecret_file = "key"\nlisten = "[::]:4711"\nseeds = ["a:1"]\nzone = "z"\ndiscovery = true\n'
        'max_message_bytes = 1024\nadvertise = ["db.example:80"]\n'
        f'[clusters]\npayroll = "{OTHER.text}"\n',
    )
    write_secret_file(path.parent / "key", SECRET)
    config = load_config(environ=environ)
    assert (config.network, config.secret, config.listen, config.seeds) == ("n", SECRET, "[::]:4711", ("a:1",))
    assert (config.max_message_bytes, config.advertise) == (1024, ("db.example:80",))
    assert config.clusters == {"payroll": OTHER}
    assert load_config(config=path, environ={"HOME": "/nowhere"}).secret == SECRET
    assert load_config(environ={"HOME": "/nowhere", "IRIS_CONFIG": str(path)}).secret == SECRET


@pytest.mark.parametrize("value", [SECRET, SECRET.text, SECRET.value])
def test_forms_of_a_secret(environ: dict[str, str], value: Secret | str | bytes) -> None:
    assert load_config(secret=value, environ=environ).secret == SECRET


def test_an_argument_overrules_all_secrets_elsewhere(environ: dict[str, str]) -> None:
    environ |= {"IRIS_SECRET": OTHER.text, "IRIS_SECRET_FILE": "/nowhere"}
    assert load_config(secret=SECRET, environ=environ).secret == SECRET
    keyring = Keyring(SECRET, network="ring")
    config = load_config(keyring=keyring, environ=environ | {"IRIS_NETWORK": "other"})
    assert (config.keyring, config.secret, config.network) == (keyring, None, "ring")


def test_a_config_replaces_environment_and_file(environ: dict[str, str], tmp_path: Path) -> None:
    write_file(environ, 'zone = "file"\n')
    given = Config(network="n", secret=SECRET, state_directory=tmp_path / "s", config_directory=tmp_path / "c")
    loaded = load_config(config=given, environ=environ | {"IRIS_NETWORK": "environment"})
    assert loaded == given
    assert load_config(config=given, listen="0.0.0.0:1", environ=environ) == replace(given, listen="0.0.0.0:1")
    assert "Config.listen" in refusal(config=replace(given, listen="nonsense"))


def test_a_secret_is_in_no_repr(environ: dict[str, str]) -> None:
    config = load_config(secret=SECRET, environ=environ)
    assert SECRET.text not in repr(config)
    assert repr(SECRET.value) not in repr(config)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"network": ""}, "network is empty"),
        ({"network": " a"}, "blanks"),
        ({"network": "a\0"}, "unprintable"),
        ({"network": "\udc80"}, "unprintable"),
        ({"network": "ä" * 128}, "256 bytes"),
        ({"secret": SECRET.text[:-1]}, "iris keys new"),
        ({"secret": b"short"}, "iris keys new"),
        ({"secret": 5}, "not int"),
        ({"keyring": SECRET}, "must be a Keyring, not Secret"),
        ({"secret": SECRET, "keyring": Keyring(SECRET)}, "keyring and secret are both given"),
        ({"network": "a", "keyring": Keyring(SECRET, network="b")}, "contradicts the keyring"),
        ({"listen": "127.0.0.1"}, "not host:port"),
        ({"listen": ":4711"}, "not host:port"),
        ({"listen": "::1:4711"}, "[::1]:4711"),
        ({"listen": "127.0.0.1:65536"}, "0 to 65535"),
        ({"listen": "127.0.0.1:-1"}, "0 to 65535"),
        ({"listen": "[abc]:1"}, "no IPv6"),
        ({"listen": "a b:1"}, "no valid host"),
        ({"listen": "0.0.0.0:4711"}, "iris keys new"),
        ({"listen": "box.example:4711"}, "iris keys new"),
        ({"seeds": ["a:0"]}, "1 to 65535"),
        ({"seeds": ["a"]}, "not host:port"),
        ({"seeds": [1]}, "seeds must be text"),
        ({"seeds": b"a:1"}, "list of host:port"),
        ({"seeds": 7}, "list of host:port"),
        ({"seeds": [f"a:{n}" for n in range(1, 258)]}, "257 entries"),
        ({"advertise": "0.0.0.0"}, "advertise '0.0.0.0' means every address"),
        ({"advertise": [7]}, "advertise must be text"),
        ({"advertise": [f"a{n}" for n in range(9)]}, "9 entries, and 8 are allowed"),
        ({"advertise": ["203.0.113.5:4711"]}, "listen=127.0.0.1:0 takes any free port"),
        ({"zone": "x" * 65}, "65 bytes"),
        ({"name": "x" * 65}, "1 to 64 printable ASCII characters"),
        ({"name": "b\u00fcro"}, "not a valid name of a node"),
        ({"name": " a"}, "without blanks at the ends"),
        ({"name": "a\x1b[31m"}, "not a valid name of a node"),
        ({"name": 7}, "name must be text"),
        ({"discovery": "maybe"}, "neither yes nor no"),
        ({"busy_poll": 0.1}, "busy_poll is 0.1, neither yes nor no"),
        ({"max_message_bytes": 1023}, "max_message_bytes is 1023, not a number of bytes from 1024 to 67108864"),
        ({"max_message_bytes": (64 << 20) + 1}, "not a number of bytes"),
        ({"max_message_bytes": True}, "not a number of bytes"),
        ({"max_message_bytes": "16 MiB"}, "not a number of bytes"),
        ({"config": "/nowhere/iris.toml"}, "does not exist"),
    ],
)
def test_wrong_arguments(environ: dict[str, str], arguments: dict[str, Any], words: str) -> None:
    assert words in refusal(environ=environ, **arguments)


@pytest.mark.parametrize(
    ("variables", "words"),
    [
        ({"IRIS_SECRET": ""}, "IRIS_SECRET is set but empty"),
        ({"IRIS_SECRET_FILE": " "}, "IRIS_SECRET_FILE is set but empty"),
        ({"IRIS_SECRET": SECRET.text, "IRIS_SECRET_FILE": "/f"}, "IRIS_SECRET and IRIS_SECRET_FILE are both given"),
        ({"IRIS_SECRET_FILE": "/nowhere/key"}, "IRIS_SECRET_FILE: /nowhere/key cannot be read"),
        ({"IRIS_DISCOVERY": "2"}, "IRIS_DISCOVERY"),
        ({"IRIS_LISTEN": "x"}, "IRIS_LISTEN"),
        ({"IRIS_CONFIG": "/nowhere/iris.toml"}, "IRIS_CONFIG"),
    ],
)
def test_wrong_variables(environ: dict[str, str], variables: dict[str, str], words: str) -> None:
    assert words in refusal(environ=environ | variables)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("netwrok = 'a'", "unknown key 'netwrok'. Did you mean 'network'?"),
        ("colour = 'a'", "unknown key 'colour'. Use one of: network, "),
        ("network = 5", "iris.toml: network must be text, not int"),
        ("seeds = 5", "seeds must be a list"),
        ("clusters = 5", "clusters must be a table"),
        ("[clusters]\na = 'x'", "clusters.a is not a secret"),
        ("[clusters]\n'' = 'x'", "is empty"),
        ("network = ", "not valid TOML"),
        pytest.param("#" * ((1 << 20) + 1), "larger than", id="more than a MiB"),
    ],
)
def test_wrong_files(environ: dict[str, str], text: str, words: str) -> None:
    path = write_file(environ, text)
    message = refusal(environ=environ)
    assert words in message
    assert str(path) in message


def test_empty_variables_count_as_unset(environ: dict[str, str]) -> None:
    names = ("NETWORK", "LISTEN", "SEEDS", "ZONE", "DISCOVERY", "CONFIG")
    assert load_config(environ=environ | {f"IRIS_{name}": "" for name in names}) == load_config(environ=environ)


def test_a_file_with_a_secret_is_not_for_others_to_write(environ: dict[str, str]) -> None:
    path = write_file(environ, f'secret = "{SECRET.text}"', mode=0o602)
    assert f"other users can write {path}" in refusal(environ=environ)
    path.chmod(0o640)
    assert load_config(environ=environ).secret == SECRET
    write_file(environ, 'network = "public"', mode=0o666)
    assert load_config(environ=environ).network == "public"


def test_a_file_with_a_secret_that_others_can_read_is_warned_of(
    environ: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    path = write_file(environ, f'secret = "{SECRET.text}"', mode=0o644)
    assert load_config(environ=environ).secret == SECRET
    (record,) = caplog.records
    assert record.levelname == "WARNING"
    assert record.getMessage() == f"every user of this machine can read the secret in {path}. Run: chmod 600 {path}"
    caplog.clear()
    write_file(environ, 'network = "public"', mode=0o644)
    assert load_config(environ=environ).network == "public"


def test_relative_xdg_directories_are_ignored(environ: dict[str, str], tmp_path: Path) -> None:
    config = load_config(environ=environ | {"XDG_STATE_HOME": "state", "XDG_CONFIG_HOME": ""})
    assert config.state_directory == tmp_path / "home/.local/state/iris"
    assert config.config_directory == tmp_path / "home/.config/iris"


def test_per_user_secret_is_made_once_and_private(tmp_path: Path) -> None:
    directory = tmp_path / "a" / "iris"
    secret = user_secret(directory)
    assert user_secret(directory) == secret
    assert user_secret(tmp_path / "b") != secret
    assert stat.S_IMODE((directory / "secret").stat().st_mode) == 0o600
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    assert os.listdir(directory) == ["secret"]


_START_TOGETHER = """
import pathlib, sys
from iris_py.files.secrets import user_secret
print("ready", flush=True)
sys.stdin.readline()
print(user_secret(pathlib.Path(sys.argv[1])).text)
"""


def test_processes_that_start_at_once_share_one_secret(tmp_path: Path) -> None:
    command = [sys.executable, "-c", _START_TOGETHER, str(tmp_path / "iris")]
    processes = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(6)]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    assert len({process.communicate()[0] for process in processes}) == 1
    assert [process.returncode for process in processes] == [0] * 6
    assert os.listdir(tmp_path / "iris") == ["secret"]


@pytest.mark.parametrize("mode", [0o640, 0o620, 0o610, 0o604, 0o602, 0o601])
def test_per_user_secret_open_to_others_is_refused(tmp_path: Path, mode: int) -> None:
    user_secret(tmp_path)
    path = tmp_path / "secret"
    path.chmod(mode)
    with pytest.raises(ConfigurationError, match=f"Run: chmod 600 {path}"):
        user_secret(tmp_path)


@pytest.mark.parametrize("mode", [0o770, 0o720, 0o702])
def test_directory_that_others_may_write_is_refused(tmp_path: Path, mode: int) -> None:
    tmp_path.chmod(mode)
    with pytest.raises(ConfigurationError, match="chmod go-w"):
        user_secret(tmp_path)


def test_directory_that_others_may_only_read_is_used(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    assert user_secret(tmp_path) == user_secret(tmp_path)


def test_secret_of_another_user_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    user_secret(tmp_path)
    uid = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: uid + 1)
    with pytest.raises(ConfigurationError, match="another user"):
        user_secret(tmp_path)


@pytest.mark.parametrize("content", ["", "iris1.x\n", f"{SECRET.text}\n{OTHER.text}\n", "x" * 2000, "\xff\xfe"])
def test_damaged_secret_is_refused_and_kept(tmp_path: Path, content: str) -> None:
    path = tmp_path / "secret"
    path.write_text(content)
    path.chmod(0o600)
    with pytest.raises(ConfigurationError, match=str(path)) as caught:
        user_secret(tmp_path)
    assert SECRET.text not in str(caught.value)
    assert path.read_text() == content


def test_secret_in_place_of_which_there_is_something_else(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "secret", 0o600)
    with pytest.raises(ConfigurationError, match="not a regular file"):
        user_secret(tmp_path)
    (tmp_path / "plain").touch()
    with pytest.raises(ConfigurationError, match="IRIS_SECRET"):
        user_secret(tmp_path / "plain")


def test_file_system_without_hard_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **_settings: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    with pytest.raises(ConfigurationError, match="set IRIS_SECRET"):
        user_secret(tmp_path)
    assert os.listdir(tmp_path) == []


def test_secret_file(tmp_path: Path) -> None:
    path = tmp_path / "key"
    write_secret_file(path, SECRET)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert read_secret_file(path, "origin") == (SECRET,)
    with pytest.raises(ConfigurationError, match="exists already"):
        write_secret_file(path, OTHER)
    with pytest.raises(ConfigurationError, match="cannot be written"):
        write_secret_file(tmp_path / "no" / "key", OTHER)
    path.write_text(f"# of the test network\n\n{SECRET.text}\n")
    assert read_secret_file(path, "origin") == (SECRET,)
    for mode in (0o602, 0o620, 0o666):
        path.chmod(mode)
        with pytest.raises(ConfigurationError, match=f"origin: other users can write {path}, .* chmod 600"):
            read_secret_file(path, "origin")


@pytest.mark.parametrize("mode", [0o440, 0o444, 0o644, 0o666])
@pytest.mark.parametrize("is_own", [False, True], ids=["of another", "own"])
def test_secret_on_a_read_only_mount(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, mode: int, is_own: bool
) -> None:
    """Docker and Kubernetes provide secrets so. Nobody can write there, and nobody can follow an advice about the mode."""
    path = tmp_path / "key"
    write_secret_file(path, SECRET)
    path.chmod(mode)
    monkeypatch.setattr(os, "fstatvfs", lambda _descriptor: SimpleNamespace(f_flag=os.ST_RDONLY | os.ST_NODEV))
    if not is_own:
        monkeypatch.setattr(os, "geteuid", lambda: path.stat().st_uid + 1)
    assert read_secret_file(path, "origin") == (SECRET,)
    assert [record.levelname for record in caplog.records] == ["WARNING"] * (is_own and mode != 0o440)


@pytest.mark.parametrize("mode", [0o444, 0o604])
def test_secret_that_others_can_read_is_warned_of(tmp_path: Path, caplog: pytest.LogCaptureFixture, mode: int) -> None:
    path = tmp_path / "key"
    write_secret_file(path, SECRET)
    path.chmod(mode)
    assert read_secret_file(path, "origin") == (SECRET,)
    assert f"origin: every user of this machine can read the secret in {path}" in caplog.text
    assert SECRET.text not in caplog.text


def without_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Let the system say that the user's home is here; return where the per-user secret then is."""
    monkeypatch.setattr(pwd, "getpwuid", lambda _uid: SimpleNamespace(pw_dir=str(tmp_path)))
    return tmp_path / ".config/iris/secret"


@pytest.mark.parametrize(
    "environ", [{}, {"HOME": ""}, {"HOME": ".", "XDG_CONFIG_HOME": "config"}], ids=["none", "empty", "relative"]
)
def test_without_a_home_no_new_network_is_made(
    environ: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = without_home(tmp_path, monkeypatch)
    config = load_config(environ=environ)
    with pytest.raises(ConfigurationError, match=rf"HOME is not set and there is no secret at {path}\. .* IRIS_SECRET_FILE"):
        default_secret(config, environ)
    assert not path.exists()
    # What the user has is used all the same, and so is a directory that the program names.
    known = user_secret(path.parent)
    assert default_secret(load_config(environ=environ), environ) == known
    assert default_secret(Config(config_directory=tmp_path / "own"), environ) != known


def test_with_a_home_the_secret_is_made(environ: dict[str, str]) -> None:
    config = load_config(environ=environ)
    assert default_secret(config, environ) == default_secret(config, environ)
    del environ["HOME"]
    assert default_secret(config, environ) == default_secret(config, environ)


@pytest.mark.parametrize("home", [None, "", "relative"], ids=["unknown user", "empty", "relative"])
def test_a_user_without_home_needs_a_secret_and_nothing_else(monkeypatch: pytest.MonkeyPatch, home: str | None) -> None:
    def look_up(uid: int) -> SimpleNamespace:
        if home is None:
            raise KeyError(uid)
        return SimpleNamespace(pw_dir=home)

    monkeypatch.setattr(pwd, "getpwuid", look_up)
    for name in ("HOME", "XDG_STATE_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)
    config = load_config(secret=SECRET, environ={})
    assert (config.state_directory, config.config_directory) == (None, None)
    assert config == load_config(config=Config(secret=SECRET), environ={})
    assert make_keyring(config).primary == Keyring(SECRET).primary
    assert secret_paths(environ={}) == ()
    assert config_path(environ={}) is None
    with pytest.raises(
        ConfigurationError, match=r"no secret is set, and this user has no home directory for one\. Set IRIS_SECRET"
    ):
        default_secret(load_config(environ={}), {})


def test_a_home_of_another_user_is_as_none(environ: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """The image of a container says HOME=/root, and its process runs under another number."""
    path = write_file(environ, 'zone = "file"\n')

    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("iris_py.settings.layers.read_exposed", refuse)
    assert "cannot be read: Permission denied" in refusal(environ=environ), "the file itself is meant to be read"
    monkeypatch.setattr(os, "access", lambda tried, mode: (tried, mode) != (path.parent, os.X_OK))
    assert load_config(secret=SECRET, environ=environ).zone == ""
    assert "cannot be read: Permission denied" in refusal(config=path, environ=environ), "somebody has named it"


@pytest.mark.parametrize("setting", ["secret_file", "clusters_directory", "config", "secret_command"])
def test_a_path_in_a_home_that_is_unknown_is_refused(monkeypatch: pytest.MonkeyPatch, setting: str) -> None:
    monkeypatch.delenv("HOME", raising=False)
    value = "~nobody-of-this-name/x"
    for way, origin in (
        ({setting: [value] if setting == "secret_command" else value}, setting),
        ({"environ": {f"IRIS_{setting.upper()}": value}}, f"IRIS_{setting.upper()}"),
    ):
        text = refusal(**({"environ": {}} | way))
        assert text == (
            f"{origin}: {value} begins with ~nobody-of-this-name, and that home directory is unknown here. "
            "Write the whole path, or set HOME."
        )


def test_variables_that_set_nothing_are_warned_of_once(environ: dict[str, str], caplog: pytest.LogCaptureFixture) -> None:
    environ |= {"IRIS_SEED": "a:1", "IRIS_COLOUR_OF_TEST": "x", "NOT_IRIS_SEED": "b:1", "IRIS_ZONE": "z"}
    for _ in range(2):
        assert load_config(environ=environ).zone == "z"
    messages = [record.getMessage() for record in caplog.records]
    assert len(messages) == 2
    assert messages[0].startswith("the environment variable IRIS_COLOUR_OF_TEST has no effect. Use one of: IRIS_NETWORK, ")
    assert messages[1] == "the environment variable IRIS_SEED has no effect. Did you mean 'IRIS_SEEDS'?"


@pytest.mark.parametrize(
    ("text", "host", "port"), [("127.0.0.1:0", "127.0.0.1", 0), ("[::1]:5", "::1", 5), ("a-b.c:65535", "a-b.c", 65535)]
)
def test_addresses(text: str, host: str, port: int) -> None:
    assert parse_address(text) == (host, port)
    assert format_address(host, port) == text


@pytest.mark.parametrize(
    "text", ["a:٣", "a:+1", "a: 1", "a:1_0", "a:000001", "a", "", ":", "[::1]", "a:b:1", "[1.2.3.4]:1", "a/b:1"]
)
def test_no_addresses(text: str) -> None:
    with pytest.raises(ConfigurationError):
        parse_address(text)


def test_loopback() -> None:
    assert all(map(is_loopback, ["127.0.0.1", "127.9.9.9", "::1", "localhost", "LocalHost"]))
    assert not any(map(is_loopback, ["0.0.0.0", "::", "10.0.0.1", "localhost.example.org"]))


def test_an_argument_that_is_no_setting() -> None:
    with pytest.raises(TypeError, match=r"there is no setting 'zoen'\. Did you mean 'zone'\?"):
        load_config(zoen="eu")
    with pytest.raises(TypeError, match="'environment'"):
        load_config(environment={})


@pytest.mark.parametrize("kind", [str, Path])
def test_a_secret_file_and_secrets_of_clusters_as_arguments(tmp_path: Path, kind: type) -> None:
    path = tmp_path / "secret"
    path.write_text(OTHER.text + "\n")
    path.chmod(0o600)
    config = load_config(secret_file=kind(path), clusters={"payroll": SECRET.text, "bank": OTHER}, environ={})
    assert config.secret == OTHER
    assert config.clusters == {"payroll": SECRET, "bank": OTHER}
    with pytest.raises(ConfigurationError, match="secret and secret_file are both given"):
        load_config(secret_file=kind(path), secret=SECRET, environ={})
    with pytest.raises(ConfigurationError, match="secret_file"):
        load_config(secret_file=kind(tmp_path / "nothing"), environ={})
    with pytest.raises(ConfigurationError, match=r"clusters\.payroll"):
        load_config(clusters={"payroll": "x"}, environ={})
    with pytest.raises(ConfigurationError, match="clusters and keyring are both given"):
        load_config(clusters={"payroll": SECRET}, keyring=Keyring(SECRET, network="n"), environ={})


@pytest.mark.parametrize("content", ['"{0}" = "payments"\n', '[clusters]\n"{0}" = "payments"\n'], ids=["setting", "cluster"])
def test_a_secret_where_a_name_belongs_is_not_shown(tmp_path: Path, content: str) -> None:
    path = tmp_path / "iris.toml"
    path.write_text(content.format(SECRET.text))
    path.chmod(0o600)
    with pytest.raises(ConfigurationError, match="a secret is given in place of the name of a") as caught:
        load_config(config=path, environ={})
    assert SECRET.text not in str(caught.value)
    with pytest.raises(ConfigurationError) as given:
        load_config(secret=OTHER, clusters={SECRET.text: "payments"}, environ={})
    assert SECRET.text not in str(given.value)


@pytest.mark.parametrize("path", ["{}", "{}\n", "/run/secrets/{}", "~/{}", "./{}.txt"])
@pytest.mark.parametrize("setting", ["secret_file", "clusters_directory"])
@pytest.mark.parametrize("shown", [SECRET.text, SECRET.text[:-20]], ids=["whole", "cut off"])
def test_a_secret_where_a_path_belongs_is_refused_and_not_shown(tmp_path: Path, path: str, setting: str, shown: str) -> None:
    given = path.format(shown)
    toml = tmp_path / "iris.toml"
    toml.write_text(f"{setting} = {json.dumps(given)}\n")
    variable = f"IRIS_{setting.upper()}"
    ways: dict[str, dict[str, Any]] = {
        setting: {setting: given, "environ": {}},
        f" {setting}": {setting: Path(given), "environ": {}},
        variable: {"environ": {variable: given}},
        f"{toml}: {setting}": {"config": toml, "environ": {}},
    }
    for origin, arguments in ways.items():
        with pytest.raises(ConfigurationError) as caught:
            load_config(**arguments)
        assert str(caught.value).startswith(f"{origin.strip()} is a secret, not the path of a file.")
        assert SECRET.text[:20] not in "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize("way", [{"config": SECRET.text, "environ": {}}, {"environ": {"IRIS_CONFIG": SECRET.text}}])
def test_a_secret_in_place_of_the_configuration_file_is_refused_and_not_shown(way: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match="is a secret, not the path of a file") as caught:
        load_config(**way)
    assert SECRET.text not in "".join(traceback.format_exception(caught.value))


def test_a_file_may_be_named_as_a_secret_begins(tmp_path: Path) -> None:
    path = tmp_path / "iris1.production" / "secret"
    path.parent.mkdir()
    write_secret_file(path, SECRET)
    assert load_config(secret_file=path, environ={}).secret == SECRET


# -- a command that prints the secret


def test_a_command_may_stand_wherever_a_secret_may(tmp_path: Path, environ: dict[str, str]) -> None:
    command = ("pass", "show", "my iris")
    assert load_config(secret_command=list(command), environ=environ).secret_command == command
    assert load_config(environ={**environ, "IRIS_SECRET_COMMAND": "pass show 'my iris'"}).secret_command == command
    path = write_file(environ, 'secret_command = ["pass", "show", "my iris"]\n')
    config = load_config(environ=environ)
    assert config.secret_command == command
    assert (config.secret, config.keyring, config.is_zero_configuration) == (None, None, False)
    assert load_config(config=config, environ={}) == config
    assert load_config(environ=environ, listen="0.0.0.0:0").listen == "0.0.0.0:0"
    path.write_text('secret_command = ["./get", "./x"]\n')
    assert load_config(environ=environ).secret_command == (f"{path.parent}/get", "./x")


def test_of_sources_the_first_counts_and_two_of_one_rank_are_refused(tmp_path: Path, environ: dict[str, str]) -> None:
    write_file(environ, f'secret = "{OTHER.text}"\n')
    named = {**environ, "IRIS_SECRET_COMMAND": "pass show iris"}
    assert load_config(environ=named).secret is None
    assert load_config(environ=named, secret=SECRET).secret_command is None
    assert load_config(environ={**environ, "IRIS_SECRET": SECRET.text}, secret_command=["x"]).secret is None
    both = "are both given, but only one is allowed"
    assert f"IRIS_SECRET and IRIS_SECRET_COMMAND {both}" in refusal(environ={**named, "IRIS_SECRET": SECRET.text})
    assert f"IRIS_SECRET_FILE and IRIS_SECRET_COMMAND {both}" in refusal(environ={**named, "IRIS_SECRET_FILE": "/x"})
    for name, value in {"secret": SECRET, "secret_file": "/x", "keyring": Keyring(SECRET)}.items():
        assert f"{name} and secret_command {both}" in refusal(secret_command=["x"], environ=environ, **{name: value})
    write_file(environ, 'secret_file = "x"\nsecret_command = ["x"]\n')
    assert f"iris.toml: secret_command {both}" in refusal(environ=environ)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('secret_command = "pass show iris"', "iris.toml: secret_command must be a list of strings, such as"),
        ("secret_command = []", "iris.toml: secret_command names no command"),
        ("secret_command = [1]", "iris.toml: secret_command must be a list of strings"),
    ],
)
def test_what_is_no_command_is_refused(environ: dict[str, str], text: str, says: str) -> None:
    write_file(environ, text)
    assert says in refusal(environ=environ)


def test_a_command_of_the_environment_is_split_and_not_empty(environ: dict[str, str]) -> None:
    assert "IRIS_SECRET_COMMAND is set but empty" in refusal(environ={**environ, "IRIS_SECRET_COMMAND": " "})
    assert "IRIS_SECRET_COMMAND cannot be split" in refusal(environ={**environ, "IRIS_SECRET_COMMAND": "a 'b"})
    assert "must be a list of strings" in refusal(secret_command="pass show iris", environ=environ)


def test_others_must_not_be_able_to_write_a_file_that_names_a_command(
    environ: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    write_file(environ, 'secret_command = ["x"]\n', 0o644)
    load_config(environ=environ)
    assert caplog.text == "", "there is no secret in it that somebody could read"
    write_file(environ, 'secret_command = ["x"]\n', 0o666)
    assert "other users can write" in refusal(environ=environ)


def test_a_command_is_run_when_keys_are_made_and_not_before(tmp_path: Path, environ: dict[str, str]) -> None:
    path = tmp_path / "printed"
    config = load_config(secret_command=["cat", str(path)], environ=environ)
    with pytest.raises(ConfigurationError, match=r"secret_command: cat ended with exit status 1: cat: .*printed: No such file"):
        make_keyring(config)
    path.write_text(f"{SECRET.text}\n{OTHER.text}\n")
    assert [keys.key_id for keys in make_keyring(config).generations] == [
        Keyring(each).primary.key_id for each in (SECRET, OTHER)
    ]
    path.write_text(f"{SECRET.text}\n" * (GENERATIONS_MAX + 1))
    with pytest.raises(ConfigurationError, match="the output of secret_command has 5 generations"):
        make_keyring(config)


# -- generations, and the secrets of clusters


@pytest.mark.parametrize(
    "value", [f"{SECRET.text} {OTHER.text}", f"{SECRET.text},{OTHER.text}\n", [SECRET, OTHER.text], (SECRET.value, OTHER)]
)
def test_a_secret_may_have_generations(value: Any) -> None:
    config = load_config(secret=value, clusters={"payroll": value}, environ={})
    assert config.secret == (SECRET, OTHER)
    keyring = make_keyring(config)
    assert keyring.primary == Keyring(SECRET).primary
    assert [keys.key_id for keys in keyring.generations] == [Keyring(SECRET).primary.key_id, Keyring(OTHER).primary.key_id]
    assert len(keyring.own_secrets["payroll"]) == 2


def test_a_file_has_a_line_for_each_generation(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    path.write_text(f"# of June\n{SECRET.text}\n\n{OTHER.text}\n")
    path.chmod(0o600)
    assert load_config(environ={"IRIS_SECRET_FILE": str(path)}).secret == (SECRET, OTHER)


@pytest.mark.parametrize(("value", "says"), [([], "an empty list"), ([SECRET, "x"], "is not a secret"), ([1], "not int")])
def test_bad_generations(value: Any, says: str) -> None:
    with pytest.raises(ConfigurationError, match=says):
        load_config(secret=value, environ={})


def test_too_many_generations() -> None:
    many = [Secret(bytes([number]) * 32) for number in range(GENERATIONS_MAX + 1)]
    for settings in ({"secret": many}, {"clusters": {"payroll": many}}):
        with pytest.raises(ConfigurationError, match="Retire the oldest"):
            load_config(environ={}, **settings)


def test_secrets_of_clusters_come_from_all_sources_and_the_first_counts(tmp_path: Path) -> None:
    directory = tmp_path / "clusters"
    directory.mkdir()
    for name, secret in (("bank", SECRET), ("mail", SECRET)):
        (directory / name).write_text(secret.text)
        (directory / name).chmod(0o600)
    (directory / "..data").mkdir()  # as Kubernetes has it
    path = tmp_path / "iris.toml"
    path.write_text(f'[clusters]\nbank = "{OTHER.text}"\npayroll = "{SECRET.text}"\nwiki = "{SECRET.text}"\n')
    path.chmod(0o600)
    environ = {"HOME": "/nowhere", "IRIS_CONFIG": str(path), "IRIS_CLUSTERS_DIRECTORY": str(directory)}
    config = load_config(environ=environ, clusters={"payroll": OTHER})
    assert config.clusters == {"bank": SECRET, "mail": SECRET, "payroll": OTHER, "wiki": SECRET}


def test_a_function_finds_secrets_of_clusters_before_the_others(tmp_path: Path) -> None:
    path = tmp_path / "iris.toml"
    path.write_text(f'[clusters]\nbank = "{OTHER.text}"\npayroll = "{OTHER.text}"\n')
    path.chmod(0o600)
    config = load_config(config=path, secret=SECRET, clusters={"bank": SECRET.text}.get, environ={"HOME": "/nowhere"})
    keyring = make_keyring(config)
    assert keyring.cluster("bank") == Keyring(OTHER, clusters={"bank": SECRET}).cluster("bank")
    assert keyring.cluster("payroll") == Keyring(SECRET, clusters={"payroll": OTHER}).cluster("payroll")
    assert keyring.cluster("wiki") == Keyring(SECRET).cluster("wiki")
    bad = make_keyring(load_config(secret=SECRET, clusters=lambda _name: "no secret", environ={}))
    with pytest.raises(ConfigurationError, match="the result of clusters= for 'bank' is not a secret"):
        bad.cluster("bank")


def test_a_directory_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"clusters_directory: .* cannot be read"):
        load_config(clusters_directory=tmp_path / "nothing", environ={})
    (tmp_path / SECRET.text).write_text("bank")
    with pytest.raises(ConfigurationError, match="has a secret as its name") as caught:
        load_config(clusters_directory=tmp_path, environ={})
    assert SECRET.text not in str(caught.value)
    (tmp_path / SECRET.text).unlink()
    for number in range(CLUSTERS_MAX + 1):
        (tmp_path / str(number)).touch()
    with pytest.raises(ConfigurationError, match="Check that it is the right directory"):
        load_config(clusters_directory=str(tmp_path), environ={})


@pytest.mark.parametrize("environ", [{"IRIS_STRICT": "yes"}, {}])
def test_strict_makes_a_cluster_without_a_secret_of_its_own_an_error(environ: dict[str, str]) -> None:
    config = load_config(secret=SECRET, clusters={"bank": OTHER}, environ=environ, strict=None if environ else True)
    keyring = make_keyring(config)
    keyring.cluster("bank")
    assert keyring.realm().group_id
    with pytest.raises(ValueError, match="the cluster 'wiki' has no cluster secret here"):
        keyring.cluster("wiki")
    with pytest.raises(ConfigurationError, match="strict and keyring are both given"):
        load_config(keyring=keyring, strict=True, environ={})


@pytest.mark.parametrize("environ", [{}, {"IRIS_ADMINISTRATOR": KEY.administrator_text}])
def test_the_administrator_is_in_the_keyring(environ: dict[str, str]) -> None:
    config = load_config(secret=SECRET, environ=environ, administrator=None if environ else KEY.administrator_text)
    assert make_keyring(config).administrator == KEY.administrator
    assert make_keyring(load_config(secret=SECRET, environ={})).administrator is None


@pytest.mark.parametrize("wrong", ["", "irispublic1.short", KEY.text, SECRET.text, 7])
def test_what_is_no_administrator_is_refused_and_not_shown(wrong: object) -> None:
    with pytest.raises(ConfigurationError, match="administrator") as caught:
        load_config(secret=SECRET, administrator=wrong, environ={})
    assert KEY.text not in str(caught.value)
    assert SECRET.text not in str(caught.value)


def test_a_keyring_brings_its_own_administrator() -> None:
    keyring = Keyring(Secret(bytes(32)), administrator=KEY.administrator)
    assert make_keyring(load_config(keyring=keyring, environ={})).administrator == KEY.administrator
    with pytest.raises(ConfigurationError, match="administrator and keyring are both given"):
        load_config(keyring=keyring, administrator=KEY.administrator_text, environ={})
    with pytest.raises(ValueError, match="32 bytes"):
        Keyring(Secret(bytes(32)), administrator=b"short")


@pytest.mark.parametrize(
    ("listen", "advertise", "is_told"),
    [
        ("127.0.0.1:4711", ["203.0.113.5"], True),
        ("[::1]:4711", ["listen", "db.example"], True),
        ("127.0.0.1:4711", ["127.0.0.1:4712", "listen"], False),
        ("0.0.0.0:4711", ["203.0.113.5"], False),
    ],
)
def test_what_others_are_told_and_cannot_reach_is_warned_of(
    environ: dict[str, str], caplog: pytest.LogCaptureFixture, listen: str, advertise: list[str], is_told: bool
) -> None:
    load_config(secret=SECRET, listen=listen, advertise=advertise, environ=environ)
    assert [record.getMessage() for record in caplog.records if "which they cannot reach" in record.getMessage()] == (
        [caplog.messages[0]] if is_told else []
    )


def test_the_files_with_secrets_are_those_that_a_node_reads(environ: dict[str, str], tmp_path: Path) -> None:
    own = tmp_path / "config" / "iris" / "secret"
    assert secret_paths(environ=environ) == ()
    own.parent.mkdir(parents=True)
    own.write_text(SECRET.text)
    assert secret_paths(environ=environ) == (own,)
    named, clusters = tmp_path / "named", tmp_path / "clusters"
    clusters.mkdir()
    for path in (named, clusters / "databases", clusters / ".hidden"):
        path.write_text(OTHER.text)
    assert secret_paths(environ=environ, secret_file=named, secret=None) == (named,)
    assert secret_paths(environ=environ | {"IRIS_SECRET": OTHER.text}) == ()
    assert secret_paths(environ=environ | {"IRIS_SECRET_FILE": str(tmp_path / "missing")}) == ()
    found = secret_paths(environ=environ | {"IRIS_CLUSTERS_DIRECTORY": str(clusters)})
    assert found == (own, clusters / "databases")
    file = write_file(environ, 'secret_file = "relative"\n[clusters]\nbooks = "no secret, and not looked at"\n')
    (file.parent / "relative").write_text(SECRET.text)
    assert secret_paths(environ=environ) == (file.parent / "relative", file)


def test_a_port_of_the_environment_or_the_file_is_for_every_program(environ: dict[str, str]) -> None:
    assert not load_config(environ=environ).is_port_shared
    write_file(environ, f'secret = "{SECRET.text}"\nlisten = "0.0.0.0:4711"\n')
    config = load_config(environ=environ)
    assert config.is_port_shared
    assert load_config(environ=environ | {"IRIS_LISTEN": "0.0.0.0:4712"}).is_port_shared
    assert not load_config(environ=environ, listen="0.0.0.0:4711").is_port_shared
    assert load_config(config=config, zone="z").is_port_shared
    assert not load_config(config=config, listen="0.0.0.0:4711").is_port_shared
    assert not load_config(config=Config(listen="0.0.0.0:4711", secret=SECRET)).is_port_shared


def test_who_leaves_a_shared_port_to_others_takes_any(environ: dict[str, str]) -> None:
    environ["IRIS_SECRET"] = SECRET.text
    environ["IRIS_ADVERTISE"] = "203.0.113.5:4711,198.51.100.7,listen"
    shared = load_config(environ=environ | {"IRIS_LISTEN": "[::]:4711"}).without_shared_port()
    assert (shared.listen, shared.advertise, shared.is_port_shared) == ("[::]:0", ("198.51.100.7", "listen"), False)
    own = load_config(environ=environ, listen="[::]:4711")
    assert own.without_shared_port() is own


def test_a_second_node_is_like_the_first_one_but_takes_any_port() -> None:
    config = Config(listen="[::1]:4711", is_port_shared=True, advertise=("203.0.113.5:4711",), zone="eu", name="door")
    made = companion_config(config, "[::1]:4712", "-histories")
    assert (made.listen, made.is_port_shared, made.advertise) == ("[::1]:0", False, ())
    assert made.zone == "eu"


@pytest.mark.parametrize(
    ("first", "second"),
    [("door", "door-histories"), ("", ""), ("d" * NAME_LENGTH_MAX, "d" * (NAME_LENGTH_MAX - 10) + "-histories")],
)
def test_lists_of_nodes_tell_the_nodes_of_a_process_apart(first: str, second: str) -> None:
    assert companion_config(Config(name=first), "127.0.0.1:4711", "-histories").name == second


@pytest.mark.parametrize(
    ("listened", "dialled"), [("[::1]:4712", "[::1]:4712"), ("[::]:1", "[::1]:1"), ("0.0.0.0:1", "127.0.0.1:1")]
)
def test_the_first_node_is_a_seed_of_the_second(listened: str, dialled: str) -> None:
    many = tuple(f"192.0.2.1:{port}" for port in range(1, 65))
    assert companion_config(Config(seeds=("192.0.2.1:9",)), listened, "").seeds == (dialled, "192.0.2.1:9")
    assert companion_config(Config(seeds=many), listened, "").seeds == (dialled, *many[:-1])
