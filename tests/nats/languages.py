"""Clients in other languages: a program for each, which prints a line for each check that holds."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

HERE: Final = Path(__file__).parent
WORK: Final = HERE.parent.parent / "build" / "nats" / "clients"
GO_CODE: Final = Path("/usr/share/gocode")
CHECKS: Final = ("connect", "publish", "wildcards", "queue", "request", "headers", "no responders", "many", "drain")
BUILD_TIMEOUT_S: Final = 300
#: The example with a service in each language.
EXAMPLE: Final = HERE.parent.parent / "examples" / "nats"
SERVICES: Final = {"C": "service.c", "Go": "service.go", "JavaScript": "service.mjs"}


class Client(NamedTuple):
    """A client of NATS in some language."""

    files: tuple[Path, ...]
    """The files without which it does not run."""
    build: tuple[str, ...]
    """The command that builds it; empty for none."""
    command: tuple[str, ...]
    """The command that runs it, followed by the addresses of servers."""
    advice: str
    """The way to get the files."""


def _tool(name: str) -> Path:
    return Path(shutil.which(name) or f"/missing/{name}")


CLIENTS: Final = {
    "C": Client(
        (_tool("gcc"), Path("/usr/include/nats/nats.h")),
        ("gcc", "-Wall", "-Wextra", "-Werror", "-o", str(WORK / "smoke-c"), str(HERE / "clients" / "smoke.c"), "-lnats"),
        (str(WORK / "smoke-c"),),
        "install Debian's packages gcc and libnats-dev",
    ),
    "Go": Client(
        (_tool("go"), GO_CODE / "src" / "github.com" / "nats-io" / "nats.go"),
        ("go", "build", "-o", str(WORK / "smoke-go"), str(HERE / "clients" / "smoke.go")),
        (str(WORK / "smoke-go"),),
        "install Debian's packages golang-go and golang-github-nats-io-go-nats-dev",
    ),
    "JavaScript": Client(
        (_tool("node"), WORK / "node_modules" / "@nats-io" / "transport-node"),
        (),
        ("node", str(HERE / "clients" / "smoke.mjs")),
        "install Node.js and npm",
    ),
}
ENVIRONMENT: Final = {
    "GO111MODULE": "off",
    "GOPATH": str(GO_CODE),
    "GOFLAGS": "",
    "GOCACHE": str(WORK / "go"),
    "NATS_CLIENTS": str(WORK),
}


def missing_clients() -> dict[str, str]:
    """Return the advice for each language whose client is missing."""
    return {name: each.advice for name, each in CLIENTS.items() if not all(file.exists() for file in each.files)}


def built(language: str) -> tuple[str, ...]:
    """Build a client; return the command that runs it."""
    client = CLIENTS[language]
    _build(client.build)
    return client.command


def built_service(language: str) -> tuple[str, ...]:
    """Build the service of examples/nats in a language; return the command that runs it."""
    return built_program(language, EXAMPLE / SERVICES[language])


def built_program(language: str, source: Path) -> tuple[str, ...]:
    """Build a program in a language; return the command that runs it."""
    program = WORK / f"{source.stem}-{language}"
    if language == "JavaScript":  # a module finds its packages beside itself
        WORK.mkdir(parents=True, exist_ok=True)
        return ("node", str(shutil.copy(source, WORK)))
    client = CLIENTS[language]
    _build(
        [
            str(source) if part.startswith(str(HERE)) else str(program) if part == client.command[0] else part
            for part in client.build
        ]
    )
    return (str(program),)


def _build(command: Sequence[str]) -> None:
    WORK.mkdir(parents=True, exist_ok=True)
    if command:
        subprocess.run(command, env={**os.environ, **ENVIRONMENT}, check=True, timeout=BUILD_TIMEOUT_S)
