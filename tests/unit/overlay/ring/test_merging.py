"""Two rings that become one: who looks for its place in the other ring, and who is told of it."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from iris_overlay.ring.join import MERGE_CONTACTS_MAX
from iris_overlay.ring.messages import (
    HINT_DEPTH_MAX,
    LeafProbe,
    MergeHint,
    RingMessage,
    Routed,
    RoutedKind,
    decode_ring_message,
    encode_ring_message,
)
from iris_overlay.ring.pastry import Pastry
from iris_py.testing.cores.signer import NamedSigner, signed
from tests.unit.overlay.rings import CONFIG, Wires, make_info, make_ring

if TYPE_CHECKING:
    from iris_overlay.node_info import NodeInfo


def crowd() -> Wires:
    """Return a ring with a node for almost every place in the first two rows of a table."""
    return make_ring(*range(5, 250, 5))


def sent(pastry: Pastry) -> list[tuple[NodeInfo, RingMessage]]:
    return [(to, decode_ring_message(data)) for to, data in pastry.messages_to_send()]


def sought(pastry: Pastry) -> list[NodeInfo]:
    return [to for to, message in sent(pastry) if isinstance(message, Routed) and message.kind is RoutedKind.SEEK]


def hinted(pastry: Pastry) -> dict[NodeInfo, MergeHint]:
    return {to: message for to, message in sent(pastry) if isinstance(message, MergeHint)}


def seek(pastry: Pastry, stranger: NodeInfo, via: NodeInfo, number: int, now: float) -> None:
    """Let a stranger look for its place, whose nearest node is this one."""
    message = signed(Routed(number, RoutedKind.SEEK, stranger.id, stranger, number, (stranger.id, via.id), (), b""))
    pastry.receive(via.id, encode_ring_message(message), now)


def hear(pastry: Pastry, via: NodeInfo, contact: NodeInfo, row: int, now: float) -> None:
    pastry.receive(via.id, encode_ring_message(MergeHint(contact, row)), now)


def test_whoever_is_sought_probes_the_stranger_and_tells_the_nodes_in_the_first_rows_of_its_table() -> None:
    wires = crowd()
    pastry, stranger = wires.nodes[wires.infos[125].id], make_info(126)
    seek(pastry, stranger, wires.infos[130], 1000, wires.now)
    messages = sent(pastry)
    assert any(to == stranger and isinstance(message, LeafProbe) for to, message in messages)
    hints = {to: message for to, message in messages if isinstance(message, MergeHint)}
    assert {hint.contact for hint in hints.values()} == {stranger}
    # Those of the first row have another first digit; each passes it on from the next row on.
    assert {hint.row for hint in hints.values()} == {1, 2}
    assert all(hint.row == (2 if to.id[0] >> 4 == 125 >> 4 else 1) for to, hint in hints.items())


def test_a_hint_is_passed_on_to_the_rows_that_are_left_but_not_to_the_contact() -> None:
    wires = make_ring(*range(0x60, 0x80))
    wires.advance(2 * CONFIG.exchange_interval_s)  # By then newcomers are in the tables.
    pastry, left, contact = (wires.infos[first] for first in (0x70, 0x60, 0x7C))
    hear(wires.nodes[pastry.id], left, contact, 1, wires.now)
    hints = hinted(wires.nodes[pastry.id])
    assert {(to.id[0] >> 4, hint.row) for to, hint in hints.items()} == {(7, 2)}
    assert contact not in hints
    assert set(hints) == {info for info in wires.nodes[pastry.id].known() if info.id[0] >> 4 == 7 and info != contact}


def test_hints_are_passed_on_once_in_a_while() -> None:
    wires = crowd()
    pastry, far = wires.nodes[wires.infos[125].id], wires.infos[10]
    hear(pastry, far, make_info(33), HINT_DEPTH_MAX, wires.now)  # It came as far as it should.
    assert not hinted(pastry)
    hear(pastry, far, make_info(33), 1, wires.now)
    assert hinted(pastry)
    hear(pastry, far, make_info(33), 1, wires.now + CONFIG.hints_interval_s - 0.1)
    assert not hinted(pastry)
    hear(pastry, far, make_info(33), 1, wires.now + CONFIG.hints_interval_s + 0.1)
    assert hinted(pastry)


def test_who_is_told_looks_for_its_place_a_little_later_through_a_few_contacts() -> None:
    wires = make_ring(10, 100, 200)
    pastry, other = wires.nodes[wires.infos[10].id], wires.infos[200]
    wires.advance(CONFIG.exchange_interval_s)
    contacts = [make_info(first) for first in range(50, 50 + MERGE_CONTACTS_MAX + 1)]
    for contact in [contacts[0], *contacts]:
        hear(pastry, other, contact, HINT_DEPTH_MAX, wires.now)
    pastry.handle_timeout(wires.now)
    assert not sought(pastry), "all who were told would seek at once"
    pastry.handle_timeout(wires.now + CONFIG.hint_jitter_s)
    assert sought(pastry) == contacts[: MERGE_CONTACTS_MAX - 1]
    pastry.handle_timeout(wires.now + 2 * CONFIG.hint_jitter_s)
    assert not sought(pastry)


def test_a_node_that_is_in_no_ring_yet_seeks_nowhere() -> None:
    pastry, contact = Pastry(make_info(10), CONFIG, random.Random(1), NamedSigner(make_info(10).id)), make_info(100)
    pastry.link_opened(contact, 0.0)
    pastry.merge_with(contact, 0.0)
    assert sent(pastry) == []


def test_a_search_whose_contact_cannot_be_reached_ends_where_it_began() -> None:
    wires = make_ring(10, 100)
    wires.refusing.add(make_info(50).id)
    pastry = wires.nodes[wires.infos[10].id]
    pastry.merge_with(make_info(50), wires.now)
    wires.settle()
    wires.advance(1.0)
    assert pastry.leaves() == [wires.infos[100]]
    assert pastry.state_sizes()["pending"] == 0


def test_a_search_that_comes_back_without_its_way_is_harmless() -> None:
    wires = make_ring(10, 100)
    pastry, local = wires.nodes[wires.infos[10].id], wires.infos[10]
    for number, path in enumerate(((), (local.id,), (wires.infos[100].id,))):
        message = signed(Routed(number, RoutedKind.SEEK, local.id, local, 1000 + number, path, (), b""))
        pastry.receive(wires.infos[100].id, encode_ring_message(message), wires.now)
    assert not sought(pastry)
    assert pastry.leaves() == [wires.infos[100]]


def test_a_contact_through_which_a_search_came_back_is_probed_if_it_is_no_leaf() -> None:
    wires = make_ring(10, 100)
    pastry, local, contact = wires.nodes[wires.infos[10].id], wires.infos[10], make_info(50)
    pastry.link_opened(contact, wires.now)
    message = signed(Routed(1, RoutedKind.SEEK, local.id, local, 1000, (local.id, contact.id), (), b""))
    pastry.receive(wires.infos[100].id, encode_ring_message(message), wires.now)
    assert [to for to, message in sent(pastry) if isinstance(message, LeafProbe)] == [contact]
