"""The build of Iris: its version, and the commit of its source, if known; and the Python that runs it."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Final

from iris_py.extras import DISTRIBUTION

__all__ = ["build", "commit", "commit_of_clone", "commit_of_installation", "python_version"]

#: Hexadecimal digits of a commit in the version, as many as `git describe` shows for large repositories.
_SHOWN: Final = 12
_COMMIT: Final = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_REFERENCE: Final = re.compile(r"ref: (refs/[!-~]+)")


@cache
def build() -> str:
    """Return the version, with the commit as its local part (PEP 440) if known: ``0.1.0+3556e9d0ab12``."""
    import iris_py  # the package itself is above all of its modules

    found = commit()
    return f"{iris_py.__version__}+{found[:_SHOWN]}" if found else iris_py.__version__


@cache
def commit() -> str:
    """Return the commit in hexadecimal digits; empty if unknown, as for a wheel from elsewhere.

    The commit is known for an installation by pip from a repository (PEP 610), and in a clone. Uncommitted changes do not show.
    """
    folder = Path(__file__).parents[1]
    return commit_of_clone(folder) or commit_of_installation(folder)


def python_version() -> str:
    """Return the implementation of Python, its version, the system and the machine."""
    import platform  # for reports alone

    return f"{platform.python_implementation()} {platform.python_version()} on {platform.system()} {platform.machine()}"


def commit_of_installation(folder: Path) -> str:
    """Return the commit noted by pip at an installation from a repository; empty if none is noted.

    Reading that file alone takes a hundredth of the time of `importlib.metadata`.

    Args:
        folder: The directory of the packages and of their metadata.
    """
    import iris_py  # the package itself is above all of its modules

    noted = folder / f"{DISTRIBUTION.replace('-', '_')}-{iris_py.__version__}.dist-info" / "direct_url.json"
    try:
        text = noted.read_text("utf-8")
        import json  # for the few installations with that file

        found = json.loads(text)["vcs_info"]["commit_id"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return ""
    return found if isinstance(found, str) and _COMMIT.fullmatch(found) else ""


def commit_of_clone(folder: Path) -> str:
    """Return the commit checked out in a clone of Iris, without running git; empty outside a clone.

    Args:
        folder: The directory of the packages.
    """
    try:
        if f'name = "{DISTRIBUTION}"' not in (folder / "pyproject.toml").read_text():
            return ""
        git = folder / ".git"
        if git.is_file():  # a worktree, or a submodule
            git = folder / git.read_text().removeprefix("gitdir:").strip()
        head = (git / "HEAD").read_text().strip()
        reference = _REFERENCE.fullmatch(head)
        return (_look_up(git, reference[1]) if reference else head) if _is_plain(head) else ""
    except (OSError, ValueError):
        return ""


def _is_plain(head: str) -> bool:
    return bool(_COMMIT.fullmatch(head) or _REFERENCE.fullmatch(head))


def _look_up(git: Path, reference: str) -> str:
    """Return the commit that a git reference (branch or tag) names, from its own file or from the packed references."""
    shared = git / "commondir"
    folders = [git, git / shared.read_text().strip()] if shared.exists() else [git]
    for folder in folders:
        if (folder / reference).is_file():
            found = (folder / reference).read_text().strip()
            return found if _COMMIT.fullmatch(found) else ""
    for folder in folders:
        if (packed := folder / "packed-refs").is_file():
            for line in packed.read_text().splitlines():
                found, _, name = line.partition(" ")
                if name == reference and _COMMIT.fullmatch(found):
                    return found
    return ""
