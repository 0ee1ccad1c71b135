"""The archive of Spark's classes for the Javas of the tests: when it is written anew."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.spark.java import identify, is_current

if TYPE_CHECKING:
    from pathlib import Path


def test_an_archive_is_current_for_the_java_and_the_spark_that_it_was_made_for(tmp_path: Path) -> None:
    (tmp_path / "release").write_text('JAVA_VERSION="17.0.1"')
    identity = identify(tmp_path)
    assert identity is not None
    archive = tmp_path / "spark.jsa"
    assert not is_current(archive, identity)
    archive.touch()
    assert not is_current(archive, identity), "nobody has noted what it is for"
    archive.with_suffix(".txt").write_text(identity)
    assert is_current(archive, identity)

    (tmp_path / "release").write_text('JAVA_VERSION="17.0.2"')
    other = identify(tmp_path)
    assert other is not None
    assert not is_current(archive, other)


def test_a_java_that_does_not_tell_its_version_has_no_archive(tmp_path: Path) -> None:
    assert identify(tmp_path) is None
