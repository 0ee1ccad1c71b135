"""The precedence of sources: for every setting of the table, each pair of sources that can give it."""

from __future__ import annotations

import inspect
import json
from dataclasses import dataclass, fields
from itertools import combinations
from typing import TYPE_CHECKING, Any, Final

import pytest

import iris_py
import iris_py.sync
from iris_py.config import Config, find_origins, load_config
from iris_py.errors import ConfigurationError
from iris_py.files.secrets import parse_secrets
from iris_py.settings.table import ARGUMENTS, KEYS_CHOICE, SETTINGS, Setting, variable_of
from iris_security import AdministrationKey
from iris_security.keyring import Keyring
from iris_security.secret import Secret
from spark_connector import Network

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

UPPER, LOWER, THIRD = (Secret(bytes([number]) * 32) for number in (1, 2, 3))
ADMINISTRATORS = [AdministrationKey(bytes([number]) * 32).administrator_text for number in (1, 2)]
#: The sources, the one that counts first at the beginning.
SOURCES: Final = ("argument", "config", "variable", "file")
#: Clusters whose secrets are looked up: of both sources, of the upper one alone, of the lower one alone.
CLUSTERS: Final = ("both", "above", "below")


def secret_file(folder: Path, secret: Secret) -> str:
    path = folder / f"secret-{secret.value[0]}"
    path.write_text(secret.text)
    path.chmod(0o600)
    return str(path)


def directory(folder: Path, secrets: dict[str, Secret]) -> str:
    path = folder / f"clusters-{secrets['both'].value[0]}"
    path.mkdir(exist_ok=True)
    for name, secret in secrets.items():
        (path / name).write_text(secret.text)
        (path / name).chmod(0o600)
    return str(path)


def table(secrets: dict[str, Secret]) -> dict[str, str]:
    return {name: secret.text for name, secret in secrets.items()}


@dataclass(frozen=True)
class Way:
    """A way to give a setting: two values of it, which neither each other nor the default is equal to."""

    setting: Setting
    name: str
    field: str
    """The field of `Config` that it decides."""
    make: Callable[[Path], tuple[Any, Any]]
    """Returns the values of the upper and of the lower source."""
    sources: tuple[str, ...]

    def __str__(self) -> str:
        return self.name


def plain(upper: Any, lower: Any) -> Callable[[Path], tuple[Any, Any]]:
    return lambda _folder: (upper, lower)


ABOVE, BELOW = {"both": UPPER, "above": UPPER}, {"both": LOWER, "below": LOWER}
#: A new setting has to say here how it is given. Some have several forms.
VALUES: Final[dict[str, dict[str, Callable[[Path], tuple[Any, Any]]]]] = {
    "network": {"": plain("upper", "lower")},
    "secret": {"": plain(UPPER.text, LOWER.text)},
    "secret_file": {"": lambda folder: (secret_file(folder, UPPER), secret_file(folder, LOWER))},
    "secret_command": {"": plain(["upper"], ["lower"])},
    "keyring": {"": plain(Keyring(UPPER), Keyring(LOWER))},
    "listen": {"": plain("127.0.0.1:7001", "127.0.0.1:7002")},
    "advertise": {"": plain(["127.0.0.5"], ["127.0.0.6"])},
    "seeds": {"": plain(["127.0.0.1:1"], ["127.0.0.1:2"]), "-none": plain([], ["127.0.0.1:2"])},
    "zone": {"": plain("upper", "lower"), "-none": plain("", "lower")},
    "name": {"": plain("upper/a.py", "lower/b.py"), "-none": plain("", "lower/b.py")},
    "discovery": {"": plain(True, False), "-no": plain(False, True)},
    "max_message_bytes": {"": plain(2048, 4096)},
    "tracing": {"": plain(True, False), "-no": plain(False, True)},
    "observe": {"": plain("none", "counts")},
    "busy_poll": {"": plain(True, False), "-no": plain(False, True)},
    "clusters": {
        "": plain(table(ABOVE), table(BELOW)),
        "-function": plain(table(ABOVE).get, table(BELOW).get),
    },
    "clusters_directory": {"": lambda folder: (directory(folder, ABOVE), directory(folder, BELOW))},
    "strict": {"": plain(True, False), "-no": plain(False, True)},
    "administrator": {"": plain(*ADMINISTRATORS)},
}


def sources_of(setting: Setting, form: str) -> tuple[str, ...]:
    is_field = setting.name in {each.name for each in fields(Config)}
    can = {"argument": True, "config": is_field, "variable": setting.is_variable, "file": setting.is_key}
    no_text = form == "-function" or form == "-none"
    return tuple(source for source in SOURCES if can[source] and not (no_text and source in ("variable", "file")))


def ways() -> Iterator[Way]:
    for setting in SETTINGS:
        field = {"secret_file": "secret", "clusters_directory": "clusters"}.get(setting.name, setting.name)
        for form, make in VALUES[setting.name].items():
            yield Way(setting, setting.name + form, field, make, sources_of(setting, form))


WAYS: Final = tuple(ways())


def question(way: Way) -> str:
    """Return the question that a setting answers: those of one question are alternatives."""
    return "keys" if way.setting.name in KEYS_CHOICE else way.field


def pairs() -> Iterator[Any]:
    for upper_source, lower_source in combinations(SOURCES, 2):
        for upper in WAYS:
            for lower in WAYS:
                is_other_form = upper.setting == lower.setting and upper != lower and upper.field != "clusters"
                if question(upper) != question(lower) or is_other_form:
                    continue
                if upper_source in upper.sources and lower_source in lower.sources:
                    mark = f"{upper} {upper_source} over {lower} {lower_source}"
                    yield pytest.param(upper, upper_source, lower, lower_source, id=mark)


def as_toml(key: str, value: object) -> str:
    if isinstance(value, dict):
        return f"[{key}]\n" + "".join(f"{name} = {json.dumps(each)}\n" for name, each in value.items())
    return f"{key} = {json.dumps(value)}\n"


def as_text(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return ",".join(value) if isinstance(value, list) else str(value)


def as_field(way: Way, value: object) -> object:
    if way.setting.name == "secret":
        return Secret.parse(str(value))
    if way.setting.name == "clusters" and isinstance(value, dict):
        return {name: Secret.parse(text) for name, text in value.items()}
    return tuple(value) if isinstance(value, list) else value


def loading(folder: Path, given: dict[str, list[tuple[Way, object]]]) -> dict[str, Any]:
    """Return the arguments of `load_config` that give these values by these sources."""
    environ = {"HOME": str(folder / "home")}
    arguments: dict[str, Any] = {"environ": environ}
    for way, value in given.get("argument", []):
        arguments[way.setting.name] = value
    for way, value in given.get("variable", []):
        environ[variable_of(way.setting.name)] = as_text(value)
    if "file" in given:
        path = folder / "iris.toml"
        path.write_text("".join(as_toml(way.setting.name, value) for way, value in given["file"]))
        path.chmod(0o600)
        environ["IRIS_CONFIG"] = str(path)
    if "config" in given:
        values: dict[str, Any] = {way.setting.name: as_field(way, value) for way, value in given["config"]}
        arguments["config"] = Config(state_directory=None, config_directory=None, **values)
    return arguments


def settled(config: Config) -> dict[str, Any]:
    """Return all settings in a form that can be compared."""
    values = {each.name: getattr(config, each.name) for each in fields(config) if not each.name.endswith("_directory")}
    clusters = config.clusters
    find = clusters if callable(clusters) else clusters.get
    found = {name: find(name) for name in CLUSTERS}
    return values | {"clusters": {name: parse_secrets(each, "") for name, each in found.items() if each is not None}}


def test_every_setting_is_here_and_decides_a_field() -> None:
    assert VALUES.keys() == {setting.name for setting in SETTINGS}, "a new setting needs values, and so a test"
    hidden = {"state_directory", "config_directory", "is_port_shared"}
    assert {way.field for way in WAYS} == {each.name for each in fields(Config)} - hidden
    assert set(ARGUMENTS) | {"config"} == inspect.signature(iris_py.connect).parameters.keys()
    assert set(ARGUMENTS) | {"config", "leave_on_sigterm"} == inspect.signature(iris_py.sync.connect).parameters.keys()
    assert Network().arguments().keys() <= set(ARGUMENTS)
    assert set(Network().arguments().values()) == {None}, "what a job leaves out is looked for where it runs"


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_each_source_counts_before_the_default(tmp_path: Path, way: Way) -> None:
    for source in way.sources:
        for value in way.make(tmp_path):
            config = load_config(**loading(tmp_path, {source: [(way, value)]}))
            assert settled(config)[way.field] == settled(load_config(**{way.setting.name: value, "environ": {}}))[way.field]
    values = [settled(load_config(**{way.setting.name: value, "environ": {}}))[way.field] for value in way.make(tmp_path)]
    assert values[0] != values[1]


@pytest.mark.parametrize(("upper", "upper_source", "lower", "lower_source"), list(pairs()))
def test_the_upper_source_counts(tmp_path: Path, upper: Way, upper_source: str, lower: Way, lower_source: str) -> None:
    above, below = upper.make(tmp_path)[0], lower.make(tmp_path)[1]
    alone = settled(load_config(**loading(tmp_path, {upper_source: [(upper, above)]})))
    under = settled(load_config(**loading(tmp_path, {lower_source: [(lower, below)]})))
    arguments = loading(tmp_path, {upper_source: [(upper, above)], lower_source: [(lower, below)]})
    both = settled(load_config(**arguments))
    assert under != both, "the lower source gives something else"
    if upper.field == "clusters":
        is_replaced = upper_source == "config"
        expected = {"both": (UPPER,), "above": (UPPER,)} | ({} if is_replaced else {"below": (LOWER,)})
        assert both["clusters"] == expected, "each cluster has the secret of the first source that has one"
        both["clusters"] = alone["clusters"]
    assert both == alone, "nothing of the lower source is left"
    if "config" not in arguments:
        origin = find_origins(**arguments)[lower.field if question(upper) != "keys" else "secret"][0]
        assert (origin.source, origin.key) == (upper_source, upper.setting.name)


@pytest.mark.parametrize("name", ["network", "clusters", "clusters_directory", "strict", "administrator"])
def test_a_keyring_counts_before_what_lower_sources_say_of_the_same(tmp_path: Path, name: str) -> None:
    keyring = Keyring(THIRD, network="ring")
    for way in (way for way in WAYS if way.setting.name == name):
        for source in way.sources[1:]:
            for value in way.make(tmp_path):
                config = load_config(keyring=keyring, **loading(tmp_path, {source: [(way, value)]}))
                assert (config.keyring, config.network, config.strict, config.administrator) == (keyring, "ring", False, None)
                assert config.clusters == {}
        with pytest.raises(ConfigurationError, match="keyring"):
            load_config(keyring=keyring, **loading(tmp_path, {"argument": [(way, max(way.make(tmp_path), key=bool))]}))


def test_the_file_that_an_argument_names_counts_before_others(tmp_path: Path) -> None:
    paths = {name: tmp_path / f"{name}.toml" for name in ("argument", "variable")}
    usual = tmp_path / "home/.config/iris/iris.toml"
    usual.parent.mkdir(parents=True)
    for name, path in (paths | {"usual": usual}).items():
        path.write_text(f'zone = "{name}"\n')
    environ = {"HOME": str(tmp_path / "home")}
    assert load_config(environ=environ).zone == "usual"
    environ["IRIS_CONFIG"] = str(paths["variable"])
    assert load_config(environ=environ).zone == "variable"
    assert load_config(environ=environ, config=paths["argument"]).zone == "argument"


def test_in_one_file_clusters_count_before_their_directory(tmp_path: Path) -> None:
    path = tmp_path / "iris.toml"
    folder = directory(tmp_path, BELOW)
    path.write_text(f"clusters_directory = {json.dumps(folder)}\n{as_toml('clusters', table(ABOVE))}")
    path.chmod(0o600)
    found = settled(load_config(config=path, environ={}))["clusters"]
    assert found == {"both": (UPPER,), "above": (UPPER,), "below": (LOWER,)}
    found = settled(load_config(clusters=table(ABOVE).get, clusters_directory=folder, environ={}))["clusters"]
    assert found == {"both": (UPPER,), "above": (UPPER,), "below": (LOWER,)}
    origins = find_origins(config=path, environ={"IRIS_CLUSTERS_DIRECTORY": folder})["clusters"]
    assert [(origin.source, origin.key) for origin in origins] == [
        ("variable", "clusters_directory"),
        ("file", "clusters"),
        ("file", "clusters_directory"),
    ]


def test_a_function_that_knows_no_secret_leaves_it_to_the_next(tmp_path: Path) -> None:
    asked: list[str] = []

    def nothing(name: str) -> None:
        asked.append(name)

    given = Config(clusters=table(BELOW).get, state_directory=None, config_directory=None)
    config = load_config(config=given, clusters=nothing, environ={})
    assert settled(config)["clusters"] == {"both": (LOWER,), "below": (LOWER,)}
    assert asked == list(CLUSTERS)
