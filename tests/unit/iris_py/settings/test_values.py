"""Tests of iris_py/settings/values.py: the name that a node has by default."""

from __future__ import annotations

import os
import subprocess
import sys
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from iris_py.settings.values import HOST_LENGTH_MAX, default_name
from iris_py.wire.facts import NAME_LENGTH_MAX, is_name

if TYPE_CHECKING:
    from pathlib import Path

SAY = "from iris_py.settings.values import default_name\nprint(default_name())\n"


def said(*arguments: str, cwd: Path, text: str = "") -> str:
    """Return the program that the default name of another process has."""
    command = [sys.executable, *arguments]
    found = subprocess.run(command, cwd=cwd, input=text, capture_output=True, text=True, check=True, timeout=60)
    assert is_name(found.stdout.strip())
    return found.stdout.strip().partition("/")[2]


def test_the_program_is_the_file_or_the_module_that_was_started_without_its_arguments(tmp_path: Path) -> None:
    (tmp_path / "orders.py").write_text(SAY)
    package = tmp_path / "shop"
    package.mkdir()
    for name in ("__init__", "billing"):
        (package / f"{name}.py").write_text(SAY if name == "billing" else "")
    (package / "__main__.py").write_text(SAY)
    assert said("orders.py", "--token=geheim", cwd=tmp_path) == "orders.py"
    assert said(str(tmp_path / "orders.py"), cwd=tmp_path) == "orders.py"
    assert said("-m", "shop.billing", "geheim", cwd=tmp_path) == "shop.billing"
    assert said("-m", "shop", cwd=tmp_path) == "shop"
    assert said("-c", SAY, "geheim", cwd=tmp_path) == "python"
    assert said("-", cwd=tmp_path, text=SAY) == "python"


@pytest.mark.parametrize(
    ("host", "program", "name"),
    [
        ("web-1", "/srv/orders.py", "web-1/orders.py"),
        ("web-1.example.org", "orders.py", "web-1/orders.py"),
        ("", "orders.py", "host/orders.py"),
        ("b\u00fcro", "b\u00fcro eins.py", "b_ro/b_ro_eins.py"),
        ("web\x1b[31m", "a\nb", "web_[31m/a_b"),
        ("h" * 100, "p" * 100, "h" * HOST_LENGTH_MAX + "/" + "p" * (NAME_LENGTH_MAX - HOST_LENGTH_MAX - 1)),
    ],
)
def test_every_host_and_program_make_a_name(monkeypatch: pytest.MonkeyPatch, host: str, program: str, name: str) -> None:
    monkeypatch.setattr(os, "uname", lambda: SimpleNamespace(nodename=host))
    monkeypatch.setattr(sys, "argv", [program])
    monkeypatch.setattr(sys.modules["__main__"], "__spec__", None)
    assert default_name() == name
    assert is_name(name)
