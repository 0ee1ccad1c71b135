"""Where the log of an agent is."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from spark_connector.executors import spawn
from spark_connector.executors.spawn import LOCAL_ID, ExecutorProcess

if TYPE_CHECKING:
    import pytest


def test_in_local_mode_the_log_is_in_the_first_directory_of_spark(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """With the working directory of an executor otherwise: there that is where its own logs are."""
    monkeypatch.setenv("SPARK_LOCAL_DIRS", f"{tmp_path / 'first'},{tmp_path / 'second'}")
    monkeypatch.chdir(tmp_path)
    assert spawn._log_directory(ExecutorProcess(LOCAL_ID, 1, 2)) == tmp_path / "first"
    assert spawn._log_directory(ExecutorProcess("7", 1, 2)) == tmp_path


def test_agent_and_its_handlers_print_to_the_log(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    executor = ExecutorProcess("7", 1, 2)
    for line in (b"one\n", b"two\n"):
        with spawn._open_log(executor) as log:
            assert Path(f"/proc/self/fd/{log}").resolve() == tmp_path / spawn.LOG_NAME
            os.write(log, line)
    assert (tmp_path / spawn.LOG_NAME).read_bytes() == b"one\ntwo\n"
    assert (tmp_path / spawn.LOG_NAME).stat().st_mode & 0o777 == 0o600
