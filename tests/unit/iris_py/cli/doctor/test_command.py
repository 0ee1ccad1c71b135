"""The command: its choices, its text, and its exit codes."""

from __future__ import annotations

import asyncio
import io
import json
import sys
import tarfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from iris_py.cli.doctor import command
from iris_py.cli.outcome import ExitCode
from iris_py.cli.settings import Settings
from iris_py.doctor.surroundings import (
    AuditStatus,
    CloudStatus,
    Death,
    Deaths,
    Evidence,
    FarDial,
    Gateways,
    GatewayStatus,
    Limits,
    ProbedPeer,
    State,
    UnmatchedImport,
)
from iris_py.errors import ConfigurationError
from iris_py.observe.departures import Departure
from iris_py.observe.journal import EventRecord
from iris_py.observe.node_name import NodeName
from iris_py.observe.queries import About
from iris_py.observe.reports import NodeReport, NodeReports
from iris_py.observe.statistics import (
    ClusterStatistics,
    FarStatistics,
    LinksStatistics,
    LinkStatistics,
    Statistics,
    SubscriptionStatistics,
    TopicStatistics,
)
from tests.unit.iris_py.doctor.made_up import FAULTS, IDS, MadeUp
from tests.unit.iris_py.net.machines import interface

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Self


class Entered(MadeUp):
    """Surroundings in place of the real ones."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_exc: object) -> None:
        pass


def run(made_up: MadeUp, only: Sequence[str] = (), skip: Sequence[str] = (), cluster: str | None = None, **options: Any) -> int:
    arguments = {"fix_hints": False, "strict": False, "as_json": False, **options}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(command, "Actual", lambda _settings: made_up)
        return asyncio.run(command.doctor(Settings(), cluster, only=only, skip=skip, **arguments))


def test_a_line_for_each_check(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(Entered(), only=["config,udp"]) == ExitCode.OK
    assert capsys.readouterr().out.splitlines() == [
        "ok       config         network 'default', listening on 10.0.0.1:7400, 1 seed",
        "ok       udp            3 of 3 nodes send them back",
    ]


def test_a_fault_has_advice_and_on_demand_commands(capsys: pytest.CaptureFixture[str]) -> None:
    made_up = Entered()
    FAULTS["port"]["TCP"](made_up)
    assert run(made_up, only=["port"], fix_hints=True) == ExitCode.FAULT
    line, hint = capsys.readouterr().out.splitlines()
    assert line.startswith("FAULT    port           a node cannot listen on 10.0.0.1:7400 (TCP: Address already in use")
    assert line.endswith("--listen or IRIS_LISTEN.")
    assert hint.strip() == "$ ss -ltnp 'sport = :7400'"


def test_what_one_fault_leaves_undone_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    made_up = Entered()
    FAULTS["udp"]["blocked"](made_up)
    assert run(made_up, only=["udp", "mtu", "cluster"]) == ExitCode.FAULT
    fault, *skipped = capsys.readouterr().out.splitlines()
    assert fault.startswith("FAULT    udp ")
    assert skipped == [
        "skipped  mtu: because of `udp`",
        "skipped  cluster: because no cluster was named: `iris doctor NAME` looks at one",
    ]


def test_warnings_are_faults_only_to_the_strict(capsys: pytest.CaptureFixture[str]) -> None:
    made_up = Entered(ignored_ones=("the environment variable IRIS_LISTNE has no effect.",))
    assert run(made_up, only=["config"]) == ExitCode.OK
    assert run(made_up, only=["config"], strict=True) == ExitCode.FAULT
    assert capsys.readouterr().out.count("warning") == 2


def test_json_has_an_object_for_each_check_and_a_summary(capsys: pytest.CaptureFixture[str]) -> None:
    made_up = Entered()
    FAULTS["udp"]["blocked"](made_up)
    assert run(made_up, only=["udp", "mtu"], as_json=True) == ExitCode.FAULT
    udp, mtu, summary = map(json.loads, capsys.readouterr().out.splitlines())
    assert (udp["kind"], udp["check"], udp["status"]) == ("check", "udp", "FAULT")
    assert (mtu["status"], mtu["because"]) == ("skipped", "udp")
    assert summary == {"kind": "summary", "ok": 0, "warnings": 0, "faults": 1, "skipped": 1}


def test_what_comes_from_others_steers_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    made_up = Entered(secret_error="\x1b[2Jno secret\n. Correct it.")
    run(made_up, only=["secret"])
    assert "\x1b" not in capsys.readouterr().out


def test_a_check_that_does_not_exist() -> None:
    with pytest.raises(ConfigurationError, match="no check 'udb'"):
        run(Entered(), only=["udb"])


class Terminal(io.StringIO):
    """A standard error that a person sees."""

    def isatty(self) -> bool:
        return True


def test_a_terminal_shows_what_is_waited_for_and_keeps_none_of_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    run(Entered(), only=["config", "limits"])
    assert "1/2 the settings ..." in terminal.getvalue()
    assert "2/2 descriptors and threads ..." in terminal.getvalue()
    assert terminal.getvalue().endswith("\r\x1b[K")
    assert "..." not in capsys.readouterr().out


def marked() -> Entered:
    """Return surroundings with a marked name in each answer of other nodes and gateways, and in their sentences."""
    name = NodeName(IDS[1], "host-zqx.example:7400", "zone-zqx/a", "node-zqx/app.py")
    sentence = "link to 40404040 (far zqx) at deep-zqx.example:7400 lost: databases-zqx@cloud-zqx says '/opt/zqx/x'"
    event = EventRecord(number=1, at_s=1.0, kind="line_lost", name="cloud-zqx", detail=sentence, node_name="peer-zqx")
    departure = Departure(
        node=IDS[2], at_s=2.0, kind="died", name="gone-zqx", address="[fd00::77]:7400", zone="zqx", detail="gone-zqx is silent"
    )
    statistics = Statistics(
        clusters={"databases-zqx": ClusterStatistics()},
        topics={"topic-zqx": TopicStatistics()},
        far_requests={"databases-zqx@cloud-zqx": FarStatistics()},
        subscriptions=(SubscriptionStatistics(pattern="topic-zqx.*", policy="block"),),
        links=LinksStatistics(each=(LinkStatistics(peer=IDS[2], address="10.99.88.77:7400", zone="zqx-1", name="zqx-2"),)),
    )
    report = NodeReport(
        node=name, about=About(name=name.name, now_s=9.0), statistics=statistics, round_trip_s=0.1, received_unix_s=1000.0,
        events=(event,), departures=(departure,),
    )  # fmt: skip
    reports = NodeReports(reports=(report,))
    cloud = CloudStatus(
        dials=(FarDial(address="gw-zqx.example:1", error="gw-zqx.example refuses"),),
        unmatched_imports=(UnmatchedImport(kind="cluster", outside="import-zqx"),),
    )
    gateway = GatewayStatus(node=IDS[1], clouds={"cloud-zqx": cloud}, audit=AuditStatus(file="audit-zqx.log"))
    return Entered(
        evidence_found=Evidence(reports, reports, statistics, (event,)),
        gateways_found=Gateways((gateway,)),
        peers=(ProbedPeer(IDS[1], name.address, name.zone, name.name),),
        strangers=("stranger-zqx",),
        deaths_found=Deaths(1, (Death(IDS[2], "10.99.88.77:7400", "zqx-1", 1.0, "gone-zqx"),)),
        limits_found=Limits(20, 65536, 4090, 4096, "the control group orders-zqx.service"),
        state_found=State(Path("/var/zqx state")),
        interfaces_up=(interface("vlan-zqx", "10.99.88.1/24"),),
    )


@pytest.mark.parametrize("cluster", [None, "databases-zqx", "databases-zqx@eu"])
def test_an_anonymous_bundle_has_no_name_that_other_nodes_and_gateways_tell(tmp_path: Path, cluster: str | None) -> None:
    path = tmp_path / "b.tar.gz"
    run(marked(), cluster=cluster, bundle=command.BundleOptions(path))
    assert {"findings.jsonl", "nodes.jsonl", "events.jsonl", "gone.jsonl", "surroundings.jsonl"} <= set(found_in(path, "zqx"))
    run(marked(), cluster=cluster, bundle=command.BundleOptions(path, may_replace=True, is_anonymous=True))
    assert [line for mark in ("zqx", "10.99.88", "fd00::77") for line in found_in(path, mark).items()] == []
    events = unpack(path)["events.jsonl"].decode()
    assert '"event":"line_lost"' in events
    assert "link to 40404040 (name-" in events
    assert json.loads(unpack(path)["gone.jsonl"].splitlines()[0])["how"] == "died"


def found_in(path: Path, mark: str) -> dict[str, list[bytes]]:
    """Return the lines of a bundle that have a mark, by their files."""
    found = {name: [line for line in content.splitlines() if mark.encode() in line] for name, content in unpack(path).items()}
    return {name: each for name, each in found.items() if each}


def unpack(path: Path) -> dict[str, bytes]:
    with tarfile.open(path) as archive:
        return {each.name.rpartition("/")[2]: archive.extractfile(each).read() for each in archive}  # type: ignore[union-attr]


def test_the_exit_code_and_the_output_are_those_without_a_bundle(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    printed = []
    for bundle in (None, command.BundleOptions(tmp_path / "b.tar.gz")):
        made_up = Entered()
        FAULTS["udp"]["blocked"](made_up)
        assert run(made_up, only=["udp", "mtu"], bundle=bundle) == ExitCode.FAULT
        printed.append(capsys.readouterr().out)
    assert printed[0] == printed[1]


def test_a_terminal_shows_that_the_bundle_is_gathered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    run(Entered(), only=["config"], bundle=command.BundleOptions(tmp_path / "b.tar.gz"))
    assert "the answers of other nodes, for the bundle ..." in terminal.getvalue()
    assert terminal.getvalue().rpartition("\r\x1b[K")[2].startswith("iris: the bundle is ")


def test_a_bundle_that_cannot_be_written_is_refused_before_anything_is_examined(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "b").write_text("precious")
    with pytest.raises(ConfigurationError, match="exists already"):
        run(Entered(), bundle=command.BundleOptions(tmp_path / "b"))
    assert capsys.readouterr().out == ""
