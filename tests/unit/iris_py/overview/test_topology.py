"""The nodes of a network with their links, and the parts of their picture, with a remark about missing parts."""

from __future__ import annotations

import math
import random
import re
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

import pytest

from iris_py import NodeName, NodeReport, NodeReports
from iris_py.observe.queries import About
from iris_py.observe.reports import Size
from iris_py.observe.statistics import (
    ClusterStatistics,
    LinksStatistics,
    LinkStatistics,
    ServiceStatistics,
    Statistics,
)
from iris_py.overview.ring_picture import CENTRE, COLOURS, RADIUS, NodePosition, draw_groups, draw_nodes, links_of
from iris_py.overview.topology import draw, nodes_of

if TYPE_CHECKING:
    from collections.abc import Sequence

SVG = "{http://www.w3.org/2000/svg}"
SERVED = ClusterStatistics(service=ServiceStatistics(handlers=1))


def report(number: int, zone: str = "eu", clusters: Sequence[str] = (), links: Sequence[int] = (), **others: Any) -> NodeReport:
    each = tuple(LinkStatistics(peer=id_of(peer), address="", zone="") for peer in links)
    return NodeReport(
        node=NodeName(id_of(number), f"10.0.0.{number}:1", zone),
        about=About(version="1.2.3", links=len(links), **others),
        statistics=Statistics(
            clusters=dict.fromkeys(clusters, SERVED) | {"used": ClusterStatistics()}, links=LinksStatistics(each=each)
        ),
        round_trip_s=0.001,
    )


def id_of(number: int) -> str:
    """Return ids that lie evenly round a ring of 16."""
    return f"{number:x}" + "0" * 31


def found(*reports: NodeReport, **others: Any) -> NodeReports:
    return NodeReports(reports=reports, size=Size(float(len(reports))), **others)


def place(number: int, group: str = "eu", links: Sequence[int] = (), **others: Any) -> NodePosition:
    return NodePosition(id_of(number), group, (f"node {number}",), frozenset(map(id_of, links)), **others)


def titles(svg: str) -> list[str]:
    picture = ElementTree.fromstring(svg)
    return [group.findtext(f"{SVG}title", "") for group in picture.iter(f"{SVG}g") if group.find(f"{SVG}title") is not None]


def texts(svg: str) -> list[str]:
    return [each.text or "" for each in ElementTree.fromstring(svg).iter(f"{SVG}text")]


def chords(svg: str) -> list[str]:
    paths = [each.get("d", "") for each in ElementTree.fromstring(svg).iter(f"{SVG}path")]
    return re.findall(r"M[^M]*Q[^M]*", "".join(paths))


def dots(svg: str) -> list[tuple[float, float, float]]:
    groups = [each for each in ElementTree.fromstring(svg).iter(f"{SVG}g") if "node" in each.get("class", "").split()]
    circles = [each for group in groups for each in group.iter(f"{SVG}circle")]
    return [(float(each.get("cx", "")), float(each.get("cy", "")), float(each.get("r", ""))) for each in circles]


def test_a_node_says_whom_it_has_links_to_and_what_it_serves() -> None:
    told = found(
        report(1, "us", ["b", "a"], [2, 9]),
        report(2, "eu", [], []),
        report(3, "", [], [], network_size=3),
        missing=(NodeName(id_of(4), "10.0.0.4:1", "eu"),),
        refused=(NodeName(id_of(5), "", ""),),
    )
    nodes = nodes_of(told, own=id_of(9))
    assert [(node.id[0], node.state) for node in nodes] == [
        ("5", "refused"), ("3", "told"), ("2", "told"), ("4", "missing"), ("1", "told"),
    ]  # fmt: skip
    assert (nodes[-1].clusters, nodes[-1].links, nodes[-1].version) == (["a", "b"], [id_of(2)], "1.2.3")
    secretive = NodeReport(node=NodeName(id_of(1)), about=About(links=3), statistics=Statistics(), round_trip_s=0.0)
    assert [node.state for node in nodes_of(found(secretive))] == ["counts"]


def test_a_link_is_one_whichever_end_tells_of_it() -> None:
    places = [place(1, links=[2, 3]), place(2, links=[1, 15]), place(3, is_known=False)]
    assert links_of(places) == {(id_of(1), id_of(2)), (id_of(1), id_of(3))}
    assert len(chords(draw_nodes(places, "t"))) == 2


def test_nodes_are_at_the_angle_of_their_id_and_each_has_a_title() -> None:
    svg = draw_nodes([place(number) for number in (0, 4, 8, 12)], "A network", ["A note."])
    (x, y) = CENTRE
    expected = [(x, y - RADIUS), (x + RADIUS, y), (x, y + RADIUS), (x - RADIUS, y)]
    assert [(each[0], each[1]) for each in dots(svg)] == [pytest.approx(spot, abs=0.1) for spot in expected]
    assert titles(svg) == ["node 0", "node 4", "node 8", "node 12"]
    assert {"A network", "A note.", "eu: 4", "00000000", "c0000000"} <= {*texts(svg)}
    assert "prefers-color-scheme: dark" in svg


def test_no_node_hides_another_one() -> None:
    rng = random.Random(5)
    for count in (60, 200, 500):
        places = [NodePosition(f"{rng.getrandbits(128):032x}", "eu", ("a",), frozenset()) for _ in range(count)]
        shown = dots(draw_nodes(places, "t"))
        assert len(shown) == count
        hidden = sum(math.dist(one[:2], other[:2]) < one[2] for index, one in enumerate(shown) for other in shown[:index])
        assert hidden <= count / 50, "but where more lie together than there are rows"


@pytest.mark.parametrize("draw_it", [draw_nodes, draw_groups])
def test_names_of_strangers_break_no_picture(draw_it: Any) -> None:
    hostile = "</title><script>alert(1)</script>&\"'\x00\x1b\ud800\n" + "x" * 300
    places = [NodePosition(id_of(number), hostile + str(number), (hostile,), frozenset([id_of(1)])) for number in range(3)]
    svg = draw_it(places, hostile, [hostile])
    svg.encode()
    assert not list(ElementTree.fromstring(svg).iter(f"{SVG}script"))
    assert all(len(text) < 2100 for text in texts(svg))


def test_more_groups_than_colours_share_one_and_the_largest_have_their_own() -> None:
    places = [NodePosition(f"{number:032x}", f"zone-{number:02}", ("a",), frozenset()) for number in range(15)]
    places += [NodePosition(f"{number:032x}", "large", ("a",), frozenset()) for number in range(15, 20)]
    places += [NodePosition(f"{number:032x}", "", ("a",), frozenset()) for number in range(20, 40)]
    legend = texts(draw_nodes(places, "t"))
    assert "in none of these: 20" in legend
    assert "large: 5" in legend
    assert "6 others: 6" in legend
    assert sum(text.startswith("zone-") for text in legend) == len(COLOURS) - 1


def test_too_many_nodes_are_drawn_by_their_groups_or_some_of_them() -> None:
    reports = [
        report(number, "eu" if number % 2 else "us", ["a"], [(number + 1) % 16, (number + 2) % 16]) for number in range(16)
    ]
    nodes = nodes_of(found(*reports))
    svg, drawn = draw(nodes, found(*reports), network="n", by="zone", nodes_max=16)
    assert (len(dots(svg)), drawn) == (16, "16 nodes")
    assert "Network n: 16 nodes, 32 links" in texts(svg)
    svg, drawn = draw(nodes, found(*reports), network="n", by="zone", nodes_max=10)
    assert titles(svg) == ["eu\n8 nodes\n8 links among them", "us\n8 nodes\n8 links among them"]
    assert len(chords(svg)) == 1
    assert "by zone" in drawn
    svg, drawn = draw(nodes, found(*reports), network="n", by="cluster", nodes_max=10)
    assert len(dots(svg)) == 10
    assert drawn.startswith("10 of 16 nodes, evenly round the ring")


@pytest.mark.parametrize(
    ("others", "note"),
    [
        ({"is_sample": True}, r"A sample: 1 of about 1 nodes"),
        ({"is_whole": False}, "A part of the ring did not answer"),
        ({"missing": (NodeName(id_of(2), "", ""),)}, "1 of 2 nodes answered"),
        ({"refused": (NodeName(id_of(2), "", ""),)}, "1 of 2 nodes answered"),
    ],
)
def test_a_picture_says_what_it_lacks(others: Any, note: str) -> None:
    told = found(report(1, links=[2]), **others)
    svg, _drawn = draw(nodes_of(told), told, network="n", by="zone", nodes_max=10)
    assert any(re.match(note, text) for text in texts(svg))
    is_silent = "missing" in others or "refused" in others
    assert ("did not report: 1" in texts(svg)) == is_silent
    assert ('class="node c0 silent"' in svg or 'class="node c10 silent"' in svg) == is_silent
    complete = found(report(1))
    svg, _drawn = draw(nodes_of(complete), complete, network="n", by="zone", nodes_max=10)
    assert not any(re.match(note, text) for text in texts(svg))
