"""Every table that is keyed by what a peer says has a named bound, and keeps it whatever peers say.

`tables.toml` has them all. The first half compares it with the source. In the second, insiders flood nodes with well-formed
messages of ever new nodes, groups and numbers; afterwards every container that a node holds is counted.
"""

from __future__ import annotations

import random
import sys

import pytest

from iris_overlay.config import OverlayConfig
from iris_overlay.events import PacketReceived
from iris_overlay.groups.config import GroupConfig
from iris_overlay.ids import GroupId, NodeId
from iris_overlay.node_info import NodeInfo
from iris_overlay.overlay import Overlay
from iris_overlay.ring.messages import LeafProbe, encode_ring_message
from iris_py.link.lanes import UNICAST
from iris_py.patterns.topic.queue import SubscriptionQueue
from iris_py.peers.group import Group
from iris_py.peers.peer import Peer
from iris_py.testing.cores.signer import NamedSigner
from iris_py.wire import cast_pieces, packets
from iris_py.wire.flows import encode_flow
from iris_py.wire.imported import ImportedHead
from tests.flood import Flood, Insider
from tests.tables import (
    DECLARED_IN,
    Table,
    bound_of,
    constants_of,
    declarations,
    held_by,
    number_of,
    tables_of_source,
    tables_of_text,
)
from tests.unit.iris_py.nodes import Net
from tests.unit.overlay.overlays import LOCAL, make_info

# What the source has is what is declared


def test_every_table_says_what_bounds_it() -> None:
    undeclared = sorted(map(str, set(tables_of_source()) - declarations().keys()))
    assert not undeclared, (
        f"these attributes hold containers, and nothing says how large they become: {', '.join(undeclared)}. Read the code "
        f"that adds to each, give it a named bound if peers decide how much that is, and add a line to {DECLARED_IN.name}; its "
        "first lines say how."
    )


def test_nothing_is_declared_that_is_gone() -> None:
    gone = sorted(map(str, declarations().keys() - set(tables_of_source())))
    assert not gone, f"{DECLARED_IN.name} declares tables that no class has any more, take them out: {', '.join(gone)}"


def test_every_bound_is_a_number_that_some_module_has() -> None:
    for table in declarations():
        bound = bound_of(table)
        assert bound is None or bound > 0, table


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("def __init__(self): self.a: dict[int, str] = {}", ["C.a"]),
        ("def __init__(self): self.a: dict[int, dict[int, int]] = {}", ["C.a", "C.a[]"]),
        ("def __init__(self): self.a: deque[tuple[int, list[int]]] | None = None", ["C.a", "C.a[]"]),
        ("def later(self): self.a, self.b = [], 0", ["C.a"]),
        ("def __init__(self, given: dict[int, int]): self.a = given", ["C.a"]),
        ("def __init__(self): self.a = DeadlineTable()", ["C.a"]),
        ("def __init__(self): self.a = asyncio.Queue(3)", ["C.a"]),
        ("def __init__(self): self.a = dict.fromkeys(range(3))", ["C.a"]),
        ("def __init__(self): self.a = [0] * 9", ["C.a"]),
        ("a: list[int] = field(default_factory=list)", ["C.a"]),
        ("a: 'set[int]'", ["C.a"]),
        ("a: Annotated[list[int], Meta(max_length=3)]", []),
        ("a: Callable[[list[int]], int]", []),
        ("def __init__(self): self.a: tuple[int, ...] = ()", []),
        ("__slots__ = ['a']", []),
    ],
)
def test_a_table_is_found_however_it_is_made(text: str, names: list[str]) -> None:
    assert [table.name for table in tables_of_text("m", f"class C:\n    {text}\n")] == names


@pytest.mark.parametrize("said", ["unbounded", "local", "within", "", "NO_SUCH_MAX", "iris_py.config.IDLE_S", "A - B"])
def test_what_is_no_bound_is_refused(said: str) -> None:
    with pytest.raises(ValueError, match="of iris_py"):
        number_of("iris_py.config", said)


def test_a_bound_may_be_put_together() -> None:
    assert (
        number_of("iris_py.settings.values", "SEEDS_MAX + 2 * iris_py.peers.peer_table.HANDSHAKES_MAX // 4")
        == 64 + 2 * 256 // 4
    )
    assert bound_of(Table("iris_overlay.ring.leafset", "LeafSet._infos")) == 16


# What a node holds, whatever peers say

#: Bounds above SMALL are set to it, so that thousands of messages reach them: what counts is that each is looked at.
SMALL = 40
#: What follows this program itself, and what is emptied in each turn, stays below this: the program does next to nothing.
OWN_MAX = 150


@pytest.fixture
def small_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make large bounds small, in each module that has imported them."""
    names = {name for said in declarations().items() for name in constants_of(*said)}
    for module in [module for name, module in sys.modules.items() if name.startswith(("iris_overlay", "iris_py"))]:
        for name in names & vars(module).keys():
            if "BYTES" not in name and type(vars(module)[name]) is int and vars(module)[name] > SMALL * 4:
                monkeypatch.setattr(module, name, SMALL)


def check_held(root: object) -> dict[Table, int]:
    """Assert that no container is larger than it may be; return the largest of each table."""
    largest: dict[Table, int] = {}
    for held in held_by(root):
        if held.table is None:
            assert held.size <= OWN_MAX, f"{held.place} has {held.size} entries: it is in no table that is declared"
            continue
        bound = bound_of(held.table)
        most = OWN_MAX if bound is None else bound
        assert held.size <= most, f"{held.place} has {held.size} entries, and may have {most}: {declarations()[held.table]}"
        largest[held.table] = max(held.size, largest.get(held.table, 0))
    return largest


def flooded_overlay(seed: int, *, is_active: bool = True) -> Flood:
    """Return an overlay that takes part in a few groups, with insiders as its neighbours."""
    now = 1.0
    links = [make_info(number) for number in (3, 60, 130, 190, 250)]
    groups = [GroupId(bytes((number,)) * 16) for number in (97, 99, 101, 103, 140)]
    overlay = Overlay(
        LOCAL, OverlayConfig(groups=GroupConfig(view_members_max=SMALL)), random.Random(seed), NamedSigner(LOCAL.id)
    )
    overlay.start(now, [], [], True, True)
    for info in links:
        overlay.link_opened(info, now)
        if is_active:
            overlay.receive_message(info.id, encode_ring_message(LeafProbe(info, [], True)), now)
    flood = Flood(overlay, LOCAL, links, Insider(seed, links, groups), now)
    for group in groups[:3]:
        overlay.join_group(group, b"", now)
    for group in groups[1:]:
        overlay.watch_group(group, now)
        overlay.cast(group, b"cast", now)
    return flood


@pytest.mark.parametrize("is_active", [True, False])
def test_an_overlay_keeps_its_bounds(small_bounds: None, is_active: bool) -> None:
    flood = flooded_overlay(1, is_active=is_active)
    reached: set[Table] = set()
    for _ in flood.campaigns(4 * SMALL):
        reached |= {table for table, size in check_held(flood.overlay).items() if size == bound_of(table)}
    flood.run(1000)
    check_held(flood.overlay)
    assert len(reached) > 20, "the flood reaches few bounds: it may be refused at the door"


class NodeFlood:
    """Floods a node that serves and subscribes, by what comes through the ring and down trees from ever new nodes."""

    def __init__(self) -> None:
        self.rng = random.Random(7)
        self.net = Net(2)
        self.core = self.net.cores.nodes["node:1"]
        self.net.join(self.core, concurrency=10, queue=10)
        self.queue = SubscriptionQueue(("a",), "a", "block", 10, 1000)
        self.core.subscribe(self.queue, self.net.now)
        self.net.cores.drive()
        self.groups = list(self.core.groups.by_id.values())
        numbered = {*packets.PUBLICATIONS, packets.BROADCAST}
        self.kinds = [kind for kind in range(packets.KINDS) if kind not in numbered]

    def run(self, count: int) -> None:
        """Be so many nodes, one after the other."""
        for number in range(count):
            info = NodeInfo(NodeId(self.rng.randbytes(16)), (f"nobody:{number}",) if number % 2 else ())
            for group in self.groups:
                sender = Group(group.name, group.keys, info.id, 1, is_realm=group.is_realm)
                self.send_unicast(sender, info, b"".join(map(self.message, self.kinds)))
                self.send_cast(sender, info, self.message(packets.BROADCAST))
                if group.is_realm:
                    for before, body in ((0, self.publication(1)), (3, self.publication(4)), (4, self.imported(5))):
                        self.send_unicast(sender, info, encode_flow(0, before) + body)
                piece = cast_pieces.PIECE.pack(0, 2, self.rng.randbytes(12)) + b"the first of two"
                self.core._inbound.receive_cast(group.id, self.core.peers.peer(info), piece, self.net.now)
            self.core.overlay.send(info, b"", self.net.now)
            self.net.cores.drive()
            self.net.take(self.core, object)
            self.net.cores.now += 0.001

    def message(self, kind: int) -> bytes:
        payload = self.rng.randbytes(40)
        id_ = self.rng.randrange(1 << 32) + (packets.SURVEY_IDS if kind == packets.SURVEY else 0)
        return packets.MESSAGE.pack(kind, 0, 0, len(payload), id_, 10_000) + payload

    @staticmethod
    def publication(sequence: int) -> bytes:
        return packets.MESSAGE.pack(packets.PUBLICATION, 0, 1, 1, sequence, 1000) + b"a" + b"x"

    def imported(self, sequence: int) -> bytes:
        head = ImportedHead(self.rng.randbytes(16), self.rng.randbytes(4), 1, 0, "eu").encode() + b"a"
        return packets.MESSAGE.pack(packets.IMPORTED, 0, len(head), 1, sequence, 1000) + head + b"x"

    def send_unicast(self, sender: Group, info: NodeInfo, body: bytes) -> None:
        channel = sender.new_channel(Peer(self.core.info, None))
        channel.parts.append(body)
        nonce, sealed = sender.seal(channel)
        packet = packets.encode_routed(UNICAST, sender.id, nonce, sealed, int(self.net.now * 1000))
        self.core._exchange.handle_overlay_event(PacketReceived(info, packet), self.net.now)

    def send_cast(self, sender: Group, info: NodeInfo, body: bytes) -> None:
        nonce, sealed = sender.seal_multicast(body, is_cast=True)
        for piece in cast_pieces.cut(nonce, sealed):
            self.core._inbound.receive_cast(sender.id, self.core.peers.peer(info), piece, self.net.now)


def test_a_node_keeps_its_bounds(small_bounds: None) -> None:
    flood = NodeFlood()
    reached: set[Table] = set()
    for _ in range(3):
        flood.run(2 * SMALL)
        reached |= {table for table, size in check_held(flood.core).items() if size == bound_of(table)}
    names = {table.name for table in reached}
    assert names >= {"Group._sequences", "Deliveries._blocked", "IncomingFlows._flows", "CastAssembler._partials"}
    assert names >= {"Fence._lasts", "Fence._totals"}
