"""The build that runs: its version, and the commit of a clone or of an installation from a repository."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

import iris_py
from iris_py import build as module

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

COMMIT, OTHER = "a1" * 20, "b2" * 20


@pytest.fixture(autouse=True)
def anew() -> Iterator[None]:
    """Forget what is known of the build that runs these tests, before and after."""
    module.commit.cache_clear()
    module.build.cache_clear()
    yield
    module.commit.cache_clear()
    module.build.cache_clear()


def clone(folder: Path, head: str, files: dict[str, str]) -> Path:
    (folder / ".git").mkdir()
    (folder / "pyproject.toml").write_text('[project]\nname = "iris-messaging"\n')
    for name, text in {"HEAD": head, **files}.items():
        path = folder / ".git" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


@pytest.mark.parametrize(
    ("head", "files", "found"),
    [
        (f"{COMMIT}\n", {}, COMMIT),
        ("ref: refs/heads/main\n", {"refs/heads/main": f"{COMMIT}\n"}, COMMIT),
        ("ref: refs/heads/main\n", {"packed-refs": f"# pack\n{OTHER} refs/heads/x\n{COMMIT} refs/heads/main\n"}, COMMIT),
        (
            "ref: refs/heads/main\n",
            {"refs/heads/main": f"{COMMIT}\n", "packed-refs": f"{OTHER} refs/heads/main\n"},
            COMMIT,
        ),
        ("ref: refs/heads/new\n", {}, ""),
        ("ref: refs/heads/main\n", {"refs/heads/main": "garbage"}, ""),
        ("garbage", {}, ""),
        ("", {}, ""),
    ],
)
def test_the_commit_of_a_clone(head: str, files: dict[str, str], found: str, tmp_path: Path) -> None:
    assert module.commit_of_clone(clone(tmp_path, head, files)) == found


def test_the_commit_of_a_worktree(tmp_path: Path) -> None:
    (tmp_path / "clone").mkdir()
    whole = clone(tmp_path / "clone", "ref: refs/heads/main\n", {"refs/heads/side": f"{COMMIT}\n"})
    tree = tmp_path / "tree"
    tree.mkdir()
    (tree / "pyproject.toml").write_text('name = "iris-messaging"')
    own = whole / ".git/worktrees/tree"
    own.mkdir(parents=True)
    (tree / ".git").write_text(f"gitdir: {own}\n")
    (own / "HEAD").write_text("ref: refs/heads/side\n")
    (own / "commondir").write_text("../..\n")
    assert module.commit_of_clone(tree) == COMMIT


def test_the_repository_of_another_project_around_iris_says_nothing(tmp_path: Path) -> None:
    folder = clone(tmp_path, f"{COMMIT}\n", {})
    (folder / "pyproject.toml").write_text('name = "shop"')
    assert module.commit_of_clone(folder) == ""
    (folder / "pyproject.toml").unlink()
    assert module.commit_of_clone(folder) == ""


@pytest.mark.parametrize(
    ("url", "found"),
    [
        (json.dumps({"url": "x", "vcs_info": {"vcs": "git", "commit_id": COMMIT}}), COMMIT),
        (json.dumps({"url": "x", "vcs_info": {"vcs": "git", "commit_id": 5}}), ""),
        (json.dumps({"url": "x", "dir_info": {}}), ""),
        (json.dumps([1]), ""),
        ("{", ""),
        (None, ""),
    ],
)
def test_the_commit_of_an_installation_from_a_repository(url: str | None, found: str, tmp_path: Path) -> None:
    noted = tmp_path / f"iris_messaging-{iris_py.__version__}.dist-info"
    noted.mkdir()
    if url is not None:
        (noted / "direct_url.json").write_text(url)
    assert module.commit_of_installation(tmp_path) == found


def test_the_commit_is_the_local_part_of_the_build(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "commit_of_clone", lambda _folder: "")
    monkeypatch.setattr(module, "commit_of_installation", lambda _folder: COMMIT)
    assert module.build() == f"{iris_py.__version__}+{COMMIT[:12]}"
    module.commit.cache_clear()
    module.build.cache_clear()
    monkeypatch.setattr(module, "commit_of_installation", lambda _folder: "")
    assert module.build() == iris_py.__version__
