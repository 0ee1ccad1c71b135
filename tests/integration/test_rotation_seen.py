"""How far a rotation is, as operators see it: `iris nodes`, `iris doctor`, `iris keys list --running` and metrics."""

from __future__ import annotations

import json
import shutil
import signal
import time
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.integration.test_cli import WAIT_S, Shell, address_of, read_line

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable, Iterator


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    shell = Shell(tmp_path / "home")
    Path(shell.environment["HOME"]).mkdir()
    shell.environment["IRIS_SECRET_FILE"] = str(tmp_path / "home" / "secret")
    assert shell.run("keys", "new", "-o", shell.environment["IRIS_SECRET_FILE"])[0] == 0
    yield shell
    shell.end()


def generations(shell: Shell) -> list[str]:
    """Return the ids of the generations in the file, the one that seals first."""
    return list(json.loads(shell.run("keys", "list", shell.environment["IRIS_SECRET_FILE"], "--json")[1])["generations"])


def held(shell: Shell) -> dict[str, tuple[str, ...]]:
    """Return what `iris nodes` says that each node holds, by its address."""
    lines = [json.loads(line) for line in shell.run("nodes", "--json")[1].splitlines()]
    return {line["address"]: (line["seals"], *line["accepts"]) for line in lines if line["kind"] == "node"}


def wait_until(is_so: Callable[[], bool]) -> None:
    until_s = time.monotonic() + WAIT_S
    while not is_so():
        assert time.monotonic() < until_s


def doctor(shell: Shell) -> dict[str, Any]:
    _, out, error = shell.run("doctor", "--only", "generations", "--json")
    (found,) = [line for line in map(json.loads, out.splitlines()) if line.get("check") == "generations"]
    assert found, error
    return dict(found)


def series_of(http: str) -> dict[str, float]:
    with urllib.request.urlopen(f"http://{http}/metrics", timeout=WAIT_S) as response:
        lines = response.read().decode().splitlines()
    found = [line for line in lines if line.startswith("iris_key_generation_seals{")]
    return {line.split('generation="')[1].split('"')[0]: float(line.rsplit(" ", 1)[1]) for line in found}


def test_a_node_that_has_missed_a_step_in_files_is_seen(shell: Shell, tmp_path: Path) -> None:
    own = Path(shell.environment["IRIS_SECRET_FILE"])
    files = [tmp_path / f"secret-{number}" for number in range(3)]
    nodes: list[tuple[subprocess.Popen[bytes], str]] = []
    https = []
    for file in files:
        shutil.copy(own, file)
        process, line = shell.serve("node", "--secret-file", str(file), "--http", "0", is_new=True)
        nodes.append((process, line.split(" at ")[1].split(",")[0]))
        https.append(line.split("http://")[1].split(";")[0])
    (old,) = generations(shell)
    wait_until(lambda: held(shell) == {address: (old,) for _, address in nodes})
    assert doctor(shell)["status"] == "ok"

    assert shell.run("keys", "add", str(own))[0] == 0
    old, new = generations(shell)
    for file, (process, _) in list(zip(files, nodes, strict=True))[:2]:
        shutil.copy(own, file)
        process.send_signal(signal.SIGHUP)
        assert "read the secrets again" in read_line(process.stderr)
    missed = nodes[2][1]
    wait_until(lambda: held(shell) == {address: (old,) if address == missed else (old, new) for _, address in nodes})
    assert [series_of(http) for http in https] == [{old: 1.0, new: 0.0}] * 2 + [{old: 1.0}]

    words = f"1 node ({missed}) seals with {old[:8]} alone"
    code, out, error = shell.run("nodes")
    assert code == 0
    assert out.decode().count(f"{old[:8]}+1") == 2
    assert words in error
    found = doctor(shell)
    assert found["status"] == "warning"
    assert words in found["cause"]
    code, out, error = shell.run("keys", "list", "--running")
    assert (code, error) == (0, "")
    assert words in out.decode()
    line = json.loads(shell.run("keys", "list", "--running", "--json")[1])
    assert sorted(map(len, line["nodes"].values())) == [1, 2, 2]


def test_a_rotation_of_the_administrator_is_seen_at_every_node(shell: Shell, tmp_path: Path) -> None:
    key = tmp_path / "administration.key"
    public = shell.run("keys", "administrator", "-o", str(key))[1].decode().strip()
    shell.environment["IRIS_ADMINISTRATOR"] = public
    addresses = [address_of(shell.serve("node")[1]) for _ in range(3)]
    (old,) = generations(shell)
    wait_until(lambda: held(shell) == dict.fromkeys(addresses, (old,)))
    seen: list[tuple[str, ...]] = [(old,)]
    for step in ("add", "rotate", "retire"):
        code, out, error = shell.run("keys", step, "--administration-key", str(key), "--json")
        assert code == 0, error
        counts = tuple(json.loads(out)["generations"])
        wait_until(lambda counts=counts: held(shell) == dict.fromkeys(addresses, counts))  # type: ignore[misc]
        seen.append(counts)
        assert doctor(shell)["status"] == "ok"
    new = seen[1][1]
    assert seen == [(old,), (old, new), (new, old), (new,)]
    shown = shell.run("keys", "list", "--running")[1].decode()
    assert f"seal with {new[:8]} alone" in shown
    assert "linked nodes have taken step 3." in shown
