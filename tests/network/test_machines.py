"""Three machines as docs/how-to/machines.md sets them up: its commands are typed, and then more programs run on each."""

from __future__ import annotations

import itertools
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.pages import ROOT, blocks_of

if TYPE_CHECKING:
    from tests.network.lab import Lab, Process
    from tests.pages import Block

PAGE = ROOT / "docs" / "how-to" / "machines.md"
#: The machines of the page, and the hosts of the lab that they are.
MACHINES = {"db1": "a1", "db2": "a2", "app1": "a3"}
SEED_PORT = 4711


class Terminals:
    """Terminals on the machines, each in the directory of one user there."""

    def __init__(self, lab: Lab) -> None:
        self._lab = lab
        self._exports = ""
        self._numbers = itertools.count(1)
        addresses = {f"{name}.example.org": lab.hosts[host].address for name, host in MACHINES.items()}
        for name, host in MACHINES.items():
            lab.hosts[host].namespace.use_hosts(addresses)
            self.home(name).mkdir()

    def home(self, machine: str) -> Path:
        """Return the directory of the user."""
        return self._lab.path(f"home-{machine}")

    def export(self, text: str) -> None:
        """Let every terminal that is opened from now on begin with these commands."""
        self._exports += text

    def start(self, machine: str, command: str) -> Process:
        """Type a command in a new terminal, and leave it running."""
        path = Path(sys.executable).parent
        script = [
            "unset ${!IRIS_@} ${!XDG_@}",  # the page says which there are
            f"export HOME={self.home(machine)} PATH={path}:$PATH",
            "cd",
            self._exports,
            f"exec {command}",
        ]
        name = f"{machine} {next(self._numbers)} {command}"
        return self._lab.run(name, MACHINES[machine], ["bash", "-c", "\n".join(script)])

    def run(self, machine: str, command: str) -> str:
        """Type a command that ends, and return what it prints."""
        process = self.start(machine, command)
        self._lab.until(lambda: process.has_ended, f"{process.name} ends")
        assert process.wait() == 0, f"{process.name}: {process.errors()}"
        return "\n".join(str(said["text"]) for said in process.said) + process._unread.decode()

    def count_members(self, machine: str, cluster: str) -> int:
        """Return how many members of a cluster are seen on a machine."""
        process = self.start(machine, f"iris members {cluster} --json")
        self._lab.until(lambda: process.has_ended, f"{process.name} ends")
        return sum(said.get("kind") == "member" for said in process.said)

    def stay(self, machine: str, command: str) -> Process:
        """Type a command that stays, and wait until it runs."""
        process = self.start(machine, command)
        self._lab.until(lambda: "Ctrl-C ends it" in process.errors() or process.has_ended, f"{process.name} runs")
        assert not process.has_ended, process.errors()
        return process

    def type(self, block: Block) -> list[Process]:
        """Do what a block of the page says, on the machines that it names; return what stays."""
        notes = dict(block.notes)
        if block.kind == "sh":
            self.export(block.text)
        staying: list[Process] = []
        for session in block.text.split("$ ")[1:] if block.kind == "console" else ():
            command, _, expected = session.partition("\n")
            staying += [self.stay(machine, command) for machine in machines_of(notes, "stays on")]
            for machine in machines_of(notes, "on"):
                assert self.run(machine, command).strip() == expected.strip(), f"{command} on {machine}"
                if "keys new" in command:  # "Give the file to every machine"
                    for other in MACHINES.keys() - {machine}:
                        shutil.copy(self.home(machine) / "secret", self.home(other))
        return staying


def machines_of(notes: dict[str, str], word: str) -> list[str]:
    """Return the machines that a note of a block names."""
    return notes[word].split(", ") if word in notes else []


@pytest.fixture
def terminals(lab: Lab) -> Terminals:
    return Terminals(lab)


def test_the_page_works_as_it_stands_with_several_programs_on_each_machine(terminals: Terminals) -> None:
    blocks = blocks_of(PAGE)
    consoles = [block for block in blocks if block.kind == "console"]
    assert consoles
    assert all({"on", "stays on"} & dict(block.notes).keys() for block in consoles), "each says on which machines"
    staying = [process for block in blocks for process in terminals.type(block)]
    assert len(staying) == 5
    for machine in MACHINES:
        terminals.stay(machine, "iris join lower --exec 'tr A-Z a-z'")
    for machine in MACHINES:
        assert terminals.run(machine, "iris request lower HELLO") == "hello"
        assert terminals.count_members(machine, "lower") == len(MACHINES)
        assert "FAULT" not in terminals.run(machine, "iris doctor upper --skip processor,stalls,limits")


@pytest.mark.parametrize("route", ["a default route", "no default route"])
def test_one_port_for_everything_works_too_and_seeds_restart_beside_other_programs(
    lab: Lab, terminals: Terminals, route: str
) -> None:
    if route == "no default route":
        for host in MACHINES.values():
            lab.hosts[host].namespace.configure("route delete default")
    for block in blocks_of(PAGE):
        if block.kind == "sh" or "keys new" in block.text:
            terminals.type(block)
    terminals.export(f"export IRIS_LISTEN=0.0.0.0:{SEED_PORT}\n")
    seeds = {machine: terminals.stay(machine, "iris node") for machine in ("db1", "db2")}
    members = [terminals.stay(machine, "iris join upper --exec 'tr a-z A-Z'") for machine in MACHINES for _ in range(2)]
    addresses = [process.errors().rpartition(" at ")[2].partition(";")[0] for process in (*seeds.values(), *members)]
    assert len(set(addresses)) == len(addresses)
    fixed = [address for address in addresses if address.endswith(f":{SEED_PORT}")]
    assert sorted(fixed) == sorted(f"{lab.hosts[host].address}:{SEED_PORT}" for host in MACHINES.values())
    for machine in MACHINES:
        assert terminals.run(machine, "iris request upper hello") == "HELLO"
    for machine, seed in seeds.items():
        seed.signal(15)
        assert seed.wait() == 0
        again = terminals.stay(machine, "iris node")
        assert f"{lab.hosts[MACHINES[machine]].address}:{SEED_PORT};" in again.errors(), "it has its port again"
    assert terminals.count_members("app1", "upper") == len(members)
