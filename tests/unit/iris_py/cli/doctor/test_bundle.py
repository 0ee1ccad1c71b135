"""The file of a bundle: where it may be written, its mode, and its README."""

from __future__ import annotations

import errno
import stat
import tarfile
from pathlib import Path

import pytest

from iris_py.cli.doctor import bundle
from iris_py.cli.doctor.bundle_parts import BundlePart
from iris_py.errors import ConfigurationError

PARTS = [BundlePart("a.jsonl", "the first part", b"{}\n"), BundlePart("b.jsonl", "the second part", b"", "nobody answered")]


def write(path: Path, *, may_replace: bool = False) -> None:
    readme = bundle.describe("iris doctor --bundle b", 1_700_000_000.0, "0.1.0", PARTS, ["values of variables"])
    bundle.write(path, readme, PARTS, may_replace=may_replace)


def test_the_file_is_for_its_user_alone_and_names_no_user(tmp_path: Path) -> None:
    path = tmp_path / "b.tar.gz"
    write(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert list(tmp_path.iterdir()) == [path]
    with tarfile.open(path) as archive:
        about = archive.getmembers()
    assert [each.name for each in about] == ["iris-doctor/README.txt", "iris-doctor/a.jsonl"]
    assert {(each.uid, each.uname, each.mode) for each in about} == {(0, "", 0o600)}


def test_the_readme_says_what_is_in_it_when_and_how_it_was_made_and_what_is_left_out(tmp_path: Path) -> None:
    text = bundle.describe("iris doctor db", 1_700_000_000.0, "0.1.0+abc", PARTS, ["values of variables"])
    contents, left_out = text.split("Left out:")
    assert "2023-11-14 22:13:20 UTC" in contents
    assert "iris doctor db\n" in contents
    assert "0.1.0+abc" in contents
    assert "a.jsonl" in contents
    assert "the first part" in contents
    assert "b.jsonl" not in contents
    assert "b.jsonl: nobody answered" in left_out
    assert "values of variables" in left_out


def test_a_file_that_exists_is_replaced_only_on_demand(tmp_path: Path) -> None:
    path = tmp_path / "b.tar.gz"
    path.write_text("precious")
    with pytest.raises(ConfigurationError, match=r"exists already.*--force"):
        bundle.check_place(path, may_replace=False)
    with pytest.raises(ConfigurationError, match=r"exists already.*--force"):
        write(path)  # made by somebody else while the doctor looked
    assert path.read_text() == "precious"
    assert list(tmp_path.iterdir()) == [path]
    bundle.check_place(path, may_replace=True)
    write(path, may_replace=True)
    assert tarfile.is_tarfile(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_what_is_no_place_for_a_bundle_is_refused(tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "nowhere")
    with pytest.raises(ConfigurationError, match="needs the name of a file"):
        bundle.check_place(Path("-"), may_replace=True)
    with pytest.raises(ConfigurationError, match="exists already"):
        bundle.check_place(link, may_replace=False)
    for path in (link, tmp_path, Path("/dev/null")):
        with pytest.raises(ConfigurationError, match="not a regular file"):
            bundle.check_place(path, may_replace=True)
    with pytest.raises(ConfigurationError, match="not a directory"):
        bundle.check_place(tmp_path / "missing" / "b", may_replace=False)


def test_a_full_disk_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("os.fsync", fail)
    for may_replace in (False, True):
        with pytest.raises(ConfigurationError, match="No space left on device"):
            write(tmp_path / "b.tar.gz", may_replace=may_replace)
    assert list(tmp_path.iterdir()) == []


def test_a_file_system_without_hard_links_has_the_same_promises(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_source: str, _target: Path) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr("os.link", fail)
    path = tmp_path / "b.tar.gz"
    write(path)
    assert tarfile.is_tarfile(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    path.write_text("precious")
    with pytest.raises(ConfigurationError, match="exists already"):
        write(path)
    assert path.read_text() == "precious"
    assert list(tmp_path.iterdir()) == [path]
