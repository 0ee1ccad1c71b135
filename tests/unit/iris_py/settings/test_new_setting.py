"""A setting is added by an entry of the table and a field of `Config`; a job of Spark sets it by a field of `Network`."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[4]
#: The additions: the file, the line below the addition, and the addition.
ADDED = (
    (
        "iris_py/settings/table.py",
        "    observe: Annotated[\n",
        """\
    colour: Annotated[
        str | None,
        Setting("text", "The colour of this node. By default it has none.", Option("COLOUR", "Colour of this node.")),
    ]
""",
    ),
    (
        "iris_py/config.py",
        "    observe: Observe = field(",
        '    colour: str = field(default="none", metadata=_checked(parse_name))\n    """The colour of the node."""\n',
    ),
    ("spark_connector/network.py", "    discovery: bool | None = None\n", "    colour: str | None = None\n"),
)
#: Runs in the changed copy, and prints the effects of the new setting.
PROGRAM = """
import inspect, json, runpy, subprocess, sys
from pathlib import Path
from types import SimpleNamespace

import iris_py
import iris_py.sync
from iris_py.cli.doctor.pseudonyms import names_in_settings
from iris_py.cli.settings import Settings
from iris_py.config import load_config
from iris_py.errors import ConfigurationError
from spark_connector import Network
from spark_connector.settings import network_of
from spark_connector.topics.options import read_options


def printed(*arguments):
    return subprocess.run([sys.executable, "-m", "iris_py", *arguments], stdout=subprocess.PIPE, text=True, check=True).stdout


def error_of(call, *arguments, **given):
    try:
        call(*arguments, **given)
    except (ConfigurationError, TypeError) as exc:
        return str(exc)


Path("iris.toml").write_text('colour = "file"\\n')
session = SimpleNamespace(conf=SimpleNamespace(getAll={"spark.iris.colour": "spark"}))
lines = [json.loads(line) for line in printed("config", "show", "--json", "--colour", "option").splitlines()]
document = json.loads(printed("config", "schema"))
print(json.dumps({
    "default": load_config(environ={}).colour,
    "argument": load_config(environ={"IRIS_COLOUR": "variable"}, colour="argument").colour,
    "variable": load_config(environ={"IRIS_COLOUR": "variable"}, config="iris.toml").colour,
    "file": load_config(environ={}, config="iris.toml").colour,
    "mistake": error_of(load_config, environ={"IRIS_COLOUR": "a\\0b"}),
    "wrong type": error_of(iris_py.connect, colour=3),
    "mistyped": error_of(iris_py.connect, colur="red"),
    "signatures": [str(inspect.signature(each).parameters["colour"]) for each in (iris_py.connect, iris_py.sync.connect)],
    "helps": [each.__doc__ for each in (iris_py.connect, iris_py.sync.connect)],
    "shown": [line for line in lines if line.get("name") == "colour"],
    "schema": document["$defs"]["ConfigurationFile"]["properties"]["colour"],
    "help of a command": printed("ping", "--help"),
    "page": runpy.run_path("docs/generate.py")["settings_page"](),
    "names": sorted(names_in_settings(Settings({"colour": "option"}, Path("iris.toml")), {"IRIS_COLOUR": "variable"})),
    "network": Network(colour="red").arguments()["colour"],
    "network of nothing": Network().arguments()["colour"],
    "network of a session": network_of(session).colour,
    "network of a topic": read_options({"topic": "t", "COLOUR": "option"}).network.colour,
    "wrong network": error_of(Network, colour=3),
}))
"""


@pytest.fixture(scope="module")
def effects(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """Add a setting to a copy of the packages; return the effects."""
    copy = tmp_path_factory.mktemp("copy")
    for package in ("iris_py", "overlay/iris_overlay", "security/iris_security", "spark_connector"):
        shutil.copytree(ROOT / package, copy / Path(package).name, ignore=shutil.ignore_patterns("__pycache__"))
    (copy / "docs").mkdir()
    shutil.copy(ROOT / "docs" / "generate.py", copy / "docs")
    for name, following, added in ADDED:
        text = (copy / name).read_text()
        assert text.count(following) == 1, f"{name} has another {following!r}"
        (copy / name).write_text(text.replace(following, added + following))
    environment = {name: value for name, value in os.environ.items() if not name.startswith("IRIS_")}
    environment |= {"PYTHONPATH": str(copy), "HOME": str(copy), "XDG_CONFIG_HOME": str(copy), "COLUMNS": "200"}
    command = [sys.executable, "-c", PROGRAM]
    done = subprocess.run(command, cwd=copy, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    yield json.loads(done.stdout)
    shutil.rmtree(copy)


def test_each_source_gives_the_setting(effects: dict[str, Any]) -> None:
    assert effects["default"] == "none"
    assert all(effects[source] == source for source in ("argument", "variable", "file"))
    assert "IRIS_COLOUR" in effects["mistake"]
    assert effects["wrong type"] == "colour must be text, not int. Correct it."
    assert effects["mistyped"] == "connect() got an unexpected keyword argument 'colur'. Did you mean 'colour'?"


def test_both_apis_show_the_setting(effects: dict[str, Any]) -> None:
    assert effects["signatures"] == ["colour: 'str | None' = None"] * 2
    assert all("\n    colour: The colour of this node. By default it has none.\n" in text for text in effects["helps"])


def test_the_command_line_and_the_pages_have_the_setting(effects: dict[str, Any]) -> None:
    assert effects["shown"] == [
        {"kind": "setting", "name": "colour", "value": "option", "source": "argument", "place": "--colour"}
    ]
    assert effects["schema"] == {"type": "string", "description": "The colour of this node.", "default": "none"}
    assert "Colour of this node. [IRIS_COLOUR]" in effects["help of a command"]
    assert {"option", "variable", "file"} <= set(effects["names"]), "an anonymous bundle has pseudonyms for them"
    assert "| [`colour`](#colour) | `IRIS_COLOUR` | `colour` | `--colour` | `none` |\n" in effects["page"]


def test_tasks_of_spark_take_the_setting(effects: dict[str, Any]) -> None:
    assert (effects["network"], effects["network of nothing"], effects["network of a session"]) == ("red", None, "spark")
    assert effects["network of a topic"] == "option"
    assert effects["wrong network"] == "colour= must be text, not int. Correct it."
