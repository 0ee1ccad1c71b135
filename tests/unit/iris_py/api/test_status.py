"""Tests of iris_py/api/status.py: the log of a node about links, deaths and resumptions."""

from __future__ import annotations

import logging

import pytest

from iris_py.api.lifecycle import log_event
from iris_py.logs import LINES_MAX, forget_lines
from iris_py.observe.journal import KINDS, Journal
from iris_py.observe.node_name import NodeName
from iris_py.testing import NodeSimulation, run

NODE = NodeName("ab" * 16, "10.0.0.1:1", "eu/a", "web-1/orders.py")


def note(kind: str, node: NodeName | None = NODE, detail: str = "the connection broke", subject: str = "") -> None:
    journal = Journal()
    journal.on_event = log_event
    journal.note(kind, subject, node=node, detail=detail)


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("link_opened", "the link to node abababab (web-1/orders.py) at 10.0.0.1:1 is open"),
        ("link_closed", "the link to node abababab (web-1/orders.py) at 10.0.0.1:1 was closed: the connection broke"),
        ("link_lost", "the link to node abababab (web-1/orders.py) at 10.0.0.1:1 was lost: the connection broke"),
        ("died", "node abababab (web-1/orders.py) at 10.0.0.1:1 is considered dead: the connection broke"),
    ],
)
def test_links_and_deaths_are_lines_with_the_node_its_address_and_the_reason(
    caplog: pytest.LogCaptureFixture, kind: str, text: str
) -> None:
    forget_lines()
    with caplog.at_level(logging.INFO, "iris_py"):
        note(kind)
    (record,) = caplog.records
    assert (record.levelno, record.getMessage()) == (logging.INFO, text)
    facts = record.iris  # type: ignore[attr-defined]
    assert (facts["event"], facts["node"], facts["name"], facts["zone"]) == (kind, NODE.id, NODE.name, "eu/a")


def test_a_node_with_other_topics_is_a_warning_with_the_remedy(caplog: pytest.LogCaptureFixture) -> None:
    forget_lines()
    note("topics_differ", detail="its topics are of version 1, and those of this node of version 2")
    (record,) = caplog.records
    assert (record.levelno, record.getMessage()) == (
        logging.WARNING,
        "publications of node abababab (web-1/orders.py) at 10.0.0.1:1 do not reach this one, nor the reverse: its topics are "
        "of version 1, and those of this node of version 2. Update the older one (docs/versions.md)",
    )
    assert record.iris["node"] == NODE.id  # type: ignore[attr-defined]


def test_other_events_are_no_lines_and_a_resumption_is_one(caplog: pytest.LogCaptureFixture) -> None:
    forget_lines()
    with caplog.at_level(logging.INFO, "iris_py"):
        for kind in {*KINDS} - {"link_opened", "link_closed", "link_lost", "died", "stalled", "topics_differ"}:
            note(kind)
        assert caplog.records == []
        note("stalled", None, "")
    assert [record.iris["event"] for record in caplog.records] == ["stalled"]  # type: ignore[attr-defined]


def test_peers_that_come_and_go_do_not_fill_the_log(caplog: pytest.LogCaptureFixture) -> None:
    forget_lines()
    journal = Journal()
    journal.on_event = log_event
    with caplog.at_level(logging.INFO, "iris_py"):
        for number in range(1000):
            journal.note("link_lost", str(number), node=NodeName(f"{number:032x}", "10.0.0.1:1", "", "a\x1b[2J"))
    assert len(caplog.records) == LINES_MAX
    assert all(record.getMessage().isprintable() for record in caplog.records)


def test_a_node_logs_the_death_of_another_one(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with NodeSimulation(1) as simulation:
            witness = await simulation.start_node(name="witness")
            member = await simulation.start_node(name="web-1/orders.py")
            simulation.kill(member)
            await simulation.until(lambda: any(event.kind == "died" for event in witness.recent_events()))

    forget_lines()
    with caplog.at_level(logging.INFO, "iris_py"):
        run(main())
    lines = [record.getMessage() for record in caplog.records]
    for what in ("is open", "was lost: ", "is considered dead: "):
        assert any("(web-1/orders.py)" in line and what in line for line in lines)
