"""Tests of the command without a measurement: an unknown workload, and a machine without nats-server."""

from __future__ import annotations

import pytest
import typer

from benchmarks.nats import cli
from benchmarks.nats.new_topics import deep_patterns, new_topic


def test_an_unknown_workload_is_refused_with_the_known_ones() -> None:
    with pytest.raises(typer.BadParameter, match=r"smal is not known\. Choose from: small, large"):
        cli.main(workloads="small smal")


def test_without_nats_server_the_command_says_how_to_install_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("benchmarks.nats.servers.find_server", lambda _name: None)
    with pytest.raises(typer.Exit) as ended:
        cli.main(workloads="small")
    assert ended.value.exit_code == 1
    assert "nats-server is missing. Run: " in capsys.readouterr().err


def test_new_topics_are_all_different_and_deep() -> None:
    topics = [new_topic(number) for number in range(100)]
    assert len(set(topics)) == 100
    assert {topic.count(".") + 1 for topic in topics} == {2, 4, 8, 16}
    assert max(pattern.count(".") + 1 for pattern in deep_patterns()) == 16
