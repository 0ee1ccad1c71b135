"""The file of an audit: what is left on its disk."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from iris_py.gateway.audit import AuditFile

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_room_is_known_from_the_start_and_as_of_the_last_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fill(blocks: int) -> None:
        system = os.statvfs_result((4096, 4096, 5000, blocks, blocks, 9, 9, 9, 0, 255))
        monkeypatch.setattr("os.fstatvfs", lambda _descriptor: system)

    fill(300)
    file = AuditFile(tmp_path / "audit.jsonl")
    assert (file.path, file.free_bytes) == (tmp_path / "audit.jsonl", 300 * 4096)
    fill(2)
    assert file.free_bytes == 300 * 4096
    file.write(["{}"])
    assert file.free_bytes == 2 * 4096
    file.close()
    assert (tmp_path / "audit.jsonl").read_text() == "{}\n"
