"""Links on demand: order, bounds, fallbacks, and links that are let go."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from iris_overlay.events import DialRequested, LinkReleased
from iris_overlay.ids import NodeId
from iris_overlay.node_info import NodeInfo
from iris_overlay.peers.config import ContactsConfig
from iris_overlay.peers.contacts import ADDRESSES_RESTING_MAX, RESTING_MAX, ContactFailed, Contacts
from iris_overlay.peers.hearsay import REACHED_MAX, Hearsay
from iris_overlay.peers.vantage import Vantage

CONFIG = ContactsConfig(
    waiting_messages_max=3, waiting_peers_max=4, dials_max=2, patience_s=30.0, link_idle_s=60.0, hearsay_dials_max=10_000
)


def node(number: int, *addresses: str) -> NodeInfo:
    return NodeInfo(NodeId(bytes([number]) * 16), addresses or (f"10.0.0.{number}:1",))


LOCAL = node(99)


def make(config: ContactsConfig = CONFIG) -> Contacts:
    return Contacts(LOCAL, config, Vantage(), Hearsay(config))


def test_messages_wait_for_the_link_and_keep_their_order() -> None:
    contacts, peer = make(), node(1)
    contacts.send(peer, b"1", 0.0)
    contacts.send(peer, b"2", 0.0)
    assert contacts.requests_to_dial() == [DialRequested("10.0.0.1:1", peer.id)]
    assert contacts.messages_to_send() == []
    contacts.dial_succeeded("10.0.0.1:1", peer.id, 0.1)
    contacts.link_opened(peer.id, 0.2)
    contacts.send(peer, b"3", 0.3)
    assert contacts.messages_to_send() == [(peer.id, b"1"), (peer.id, b"2"), (peer.id, b"3")]
    assert contacts.requests_to_dial() == []
    assert contacts.events_received() == []


def test_every_address_is_tried_and_then_the_messages_come_back() -> None:
    contacts, peer = make(), node(1, "10.0.0.1:1", "10.0.0.1:2")
    contacts.send(peer, b"1", 0.0)
    contacts.dial_failed("10.0.0.1:1", 0.1)
    assert [request.address for request in contacts.requests_to_dial()] == ["10.0.0.1:1", "10.0.0.1:2"]
    contacts.send(peer, b"2", 0.2)
    contacts.dial_failed("10.0.0.1:2", 0.3)
    assert contacts.events_received() == [ContactFailed(peer, [b"1", b"2"])]
    assert contacts.waiting_count == 0


def test_a_refusal_where_the_peer_was_reached_before_is_proof_whatever_its_other_addresses_do() -> None:
    contacts, peer = make(), node(1, "198.51.100.1:1", "10.0.0.1:1", "203.0.113.1:1")
    contacts.connect(peer, 0.0)
    contacts.dial_failed("198.51.100.1:1", 3.0)  # silent
    contacts.dial_succeeded("10.0.0.1:1", peer.id, 3.1)
    contacts.link_opened(peer.id, 3.2)
    contacts.link_lost(peer.id, 9.0)
    contacts.requests_to_dial()
    contacts.connect(peer, 9.0)
    contacts.dial_failed("198.51.100.1:1", 12.0)
    assert contacts.events_received() == []
    contacts.dial_failed("10.0.0.1:1", 12.1, is_refused=True)
    assert [request.address for request in contacts.requests_to_dial()] == ["198.51.100.1:1", "10.0.0.1:1"]
    assert contacts.events_received() == [ContactFailed(peer, [], is_refused=True)]


def test_a_refusal_elsewhere_says_nothing_of_the_other_addresses() -> None:
    contacts, peer = make(), node(1, "10.0.0.1:1", "203.0.113.1:1")
    contacts.connect(peer, 0.0)
    contacts.dial_succeeded("203.0.113.1:1", peer.id, 0.1)
    contacts.dial_failed("10.0.0.1:1", 0.2, is_refused=True)
    assert contacts.events_received() == []
    contacts.dial_failed("203.0.113.1:1", 3.0)
    assert contacts.events_received() == [ContactFailed(peer, [], is_refused=False)]


def test_another_node_at_the_address_is_a_failure_of_that_address() -> None:
    contacts, peer = make(), node(1)
    contacts.send(peer, b"1", 0.0)
    contacts.dial_succeeded("10.0.0.1:1", node(2).id, 0.1)
    assert contacts.events_received() == [ContactFailed(peer, [b"1"], is_refused=True)]


def test_peers_that_rest_are_bounded_and_the_one_that_rested_longest_is_dialled_again() -> None:
    """Whoever has ever new ids asks to be dialled as each of them, and says that it leaves."""
    contacts = make()
    peers = [NodeInfo(NodeId(number.to_bytes(16, "big")), (f"h{number}:1",)) for number in range(RESTING_MAX + 1)]
    for number, peer in enumerate(peers):
        contacts.connect(peer, number * 1e-4)
        contacts.peer_dead(peer.id, number * 1e-4)
    assert len(contacts._resting) == RESTING_MAX
    contacts.requests_to_dial()
    contacts.connect(peers[1], 0.2)
    assert contacts.requests_to_dial() == []
    contacts.connect(peers[0], 0.2)
    assert contacts.requests_to_dial() == [DialRequested("h0:1", peers[0].id)]


def test_a_dial_that_leads_to_no_link_is_given_up() -> None:
    contacts, peer = make(), node(1)
    contacts.send(peer, b"1", 0.0)
    contacts.dial_succeeded("10.0.0.1:1", peer.id, 0.1)
    deadline = contacts.deadline()
    assert deadline == CONFIG.dial_timeout_s
    contacts.handle_timeout(deadline - 0.001)
    assert contacts.events_received() == []
    contacts.handle_timeout(deadline)
    assert contacts.events_received() == [ContactFailed(peer, [b"1"])]


def test_who_could_not_be_reached_rests() -> None:
    contacts, peer = make(), node(1)
    contacts.send(peer, b"1", 0.0)
    contacts.dial_failed("10.0.0.1:1", 0.0)
    contacts.requests_to_dial()
    contacts.events_received()
    assert contacts.deadline() == CONFIG.rest_s
    contacts.handle_timeout(CONFIG.rest_s - 0.1)
    contacts.send(peer, b"2", CONFIG.rest_s - 0.1)
    assert contacts.events_received() == [ContactFailed(peer, [b"2"])]
    assert contacts.requests_to_dial() == []
    contacts.handle_timeout(CONFIG.rest_s)
    contacts.send(peer, b"3", CONFIG.rest_s)
    assert len(contacts.requests_to_dial()) == 1


def test_who_has_no_address_that_can_be_dialled_fails_at_once() -> None:
    contacts = make()
    for addresses in ((), ("0.0.0.0:1",), ("nonsense",), LOCAL.addresses):
        info = NodeInfo(NodeId(bytes([7]) * 16), addresses)
        contacts.send(info, b"1", 0.0)
        assert contacts.events_received() == [ContactFailed(info, [b"1"])]
    assert contacts.requests_to_dial() == []


def test_too_many_messages_give_the_oldest_back() -> None:
    contacts, peer = make(), node(1)
    for number in range(5):
        contacts.send(peer, bytes([number]), 0.0)
    assert contacts.events_received() == [ContactFailed(peer, [bytes([number])], is_overflow=True) for number in (0, 1)]
    contacts.link_opened(peer.id, 0.0)
    assert [message for _peer, message in contacts.messages_to_send()] == [b"\2", b"\3", b"\4"]


def test_dials_are_bounded_and_go_in_turn() -> None:
    contacts = make()
    for number in range(1, 6):
        contacts.send(node(number), b"", 0.0)
    assert contacts.events_received() == [ContactFailed(node(5), [b""], is_overflow=True)]
    assert [request.peer for request in contacts.requests_to_dial()] == [node(1).id, node(2).id]
    contacts.link_opened(node(2).id, 0.1)
    contacts.dial_failed("10.0.0.1:1", 0.1)
    assert [request.peer for request in contacts.requests_to_dial()] == [node(3).id, node(4).id]


def test_nothing_waits_for_the_dead() -> None:
    contacts, peer = make(), node(1)
    contacts.peer_dead(peer.id, 0.0)
    contacts.send(peer, b"1", 0.0)
    contacts.peer_dead(peer.id, 0.1)
    assert contacts.events_received() == [ContactFailed(peer, [b"1"])]
    contacts.dial_failed("10.0.0.1:1", 0.2)  # its dial goes on, and nobody waits for the outcome
    assert contacts.events_received() == []


def test_only_a_peer_that_refuses_at_all_its_addresses_is_refused() -> None:
    peer = node(1, "10.0.0.1:1", "10.0.0.1:2")
    for first, second in ((True, True), (True, False), (False, True)):
        contacts = make()
        contacts.connect(peer, 0.0)
        contacts.dial_failed("10.0.0.1:1", 0.1, is_refused=first)
        assert contacts.events_received() == []
        contacts.dial_failed("10.0.0.1:2", 0.2, is_refused=second)
        assert contacts.events_received() == [ContactFailed(peer, [], is_refused=first and second)]


def test_a_connection_that_breaks_is_made_once_more_a_moment_later() -> None:
    contacts, peer = make(), node(1, "10.0.0.1:1", "10.0.0.1:2")
    contacts.send(peer, b"1", 0.0)
    for address, began in (("10.0.0.1:1", 0.0), ("10.0.0.1:2", 10.0)):
        assert [request.address for request in contacts.requests_to_dial()] == [address]
        contacts.dial_failed(address, began, is_broken=True)
        again = contacts.deadline()
        assert again == began + CONFIG.again_s
        contacts.handle_timeout(again - 0.001)
        assert contacts.requests_to_dial() == []
        contacts.handle_timeout(again)
        assert [request.address for request in contacts.requests_to_dial()] == [address]
        assert contacts.events_received() == []
        contacts.dial_failed(address, 10.0, is_refused=address.endswith("1"), is_broken=address.endswith("2"))
    assert contacts.events_received() == [ContactFailed(peer, [b"1"])]
    assert contacts.waiting_count == 0


def test_a_peer_declared_dead_halfway_was_not_refused() -> None:
    contacts, peer = make(), node(1, "10.0.0.1:1", "10.0.0.1:2")
    contacts.connect(peer, 0.0)
    contacts.dial_failed("10.0.0.1:1", 0.1, is_refused=True)
    contacts.peer_dead(peer.id, 0.2)
    assert contacts.events_received() == [ContactFailed(peer, [])]


def test_connecting_dials_once_and_needs_no_message() -> None:
    contacts, peer = make(), node(1)
    contacts.connect(peer, 0.0)
    contacts.connect(peer, 0.0)
    contacts.send(peer, b"1", 0.0)
    assert len(contacts.requests_to_dial()) == 1
    contacts.link_opened(peer.id, 0.1)
    contacts.connect(peer, 0.2)
    assert contacts.requests_to_dial() == []
    assert contacts.messages_to_send() == [(peer.id, b"1")]
    contacts.dial_succeeded("10.0.0.1:1", peer.id, 0.3)  # reported late
    assert contacts.events_received() == []
    assert contacts.waiting_count == 0


def test_two_peers_with_the_same_address_share_a_dial() -> None:
    contacts, one, two = make(), node(1, "10.0.0.9:1"), node(2, "10.0.0.9:1", "10.0.0.2:1")
    contacts.connect(one, 0.0)
    contacts.connect(two, 0.0)
    assert contacts.requests_to_dial() == [DialRequested("10.0.0.9:1", one.id)]
    contacts.dial_succeeded("10.0.0.9:1", one.id, 0.1)
    assert contacts.requests_to_dial() == [DialRequested("10.0.0.2:1", two.id)]
    assert contacts.events_received() == []
    contacts.link_opened(one.id, 0.2)
    assert contacts.waiting_count == 1


def test_an_address_that_is_named_twice_is_dialled_once() -> None:
    contacts, peer = make(), node(1, "10.0.0.1:1", "10.0.0.1:1")
    contacts.connect(peer, 0.0)
    contacts.dial_failed("10.0.0.1:1", 0.0, is_refused=True)
    contacts.dial_failed("10.0.0.1:1", 0.0, is_refused=True)
    assert len(contacts.requests_to_dial()) == 1
    assert contacts.events_received() == [ContactFailed(peer, [], is_refused=True)]


def test_a_link_that_opens_twice_is_one_link() -> None:
    contacts, peer = make(), node(1)
    contacts.link_opened(peer.id, 0.0)
    contacts.link_opened(peer.id, 30.0)
    contacts.link_lost(peer.id, 40.0)
    contacts.link_lost(peer.id, 40.0)
    contacts.handle_timeout(1000.0)
    assert contacts.events_received() == []
    assert contacts.deadline() is None


def test_who_rested_is_dialled_when_it_dialled_us_meanwhile() -> None:
    contacts, peer = make(), node(1)
    contacts.connect(peer, 0.0)
    contacts.dial_failed("10.0.0.1:1", 0.0)
    contacts.link_opened(peer.id, 0.1)
    contacts.link_lost(peer.id, 0.2)
    contacts.requests_to_dial()
    contacts.connect(peer, 0.3)  # although rest_s has not passed
    assert len(contacts.requests_to_dial()) == 1


def test_idle_links_are_reported_and_again_while_they_stay_open() -> None:
    contacts = make()
    idle, kept, sending, hearing = (node(number) for number in range(1, 5))
    for info in (idle, kept, sending, hearing):
        contacts.link_opened(info.id, 0.0)
    contacts.send(sending, b"", 30.0)
    contacts.heard_from(hearing.id, 45.0)
    contacts.heard_from(node(5).id, 45.0)  # no link: nothing is remembered
    released: list[tuple[float, NodeId]] = []
    for now in range(181):
        contacts.handle_timeout(float(now))
        released += [(now, event.peer) for event in contacts.events_received() if isinstance(event, LinkReleased)]
        if now == 60:
            contacts.link_lost(idle.id, 60.0)
    assert released == [
        (60, idle.id),
        (60, kept.id),
        (90, sending.id),
        (105, hearing.id),
        (120, kept.id),  # the owner had a use of its own for it
        (150, sending.id),
        (165, hearing.id),
        (180, kept.id),
    ]


class Model(RuleBasedStateMachine):
    """Every message leaves over a link or comes back, once and in order; bounds hold at all times."""

    def __init__(self) -> None:
        super().__init__()
        self.contacts = make()
        self.now = 0.0
        self.sent = 0
        self.outstanding: dict[NodeId, list[bytes]] = {node(number).id: [] for number in range(1, 7)}
        self.linked: set[NodeId] = set()
        self.dials: list[DialRequested] = []

    @rule(number=st.integers(1, 6))
    def send(self, number: int) -> None:
        self.sent += 1
        message = str(self.sent).encode()
        self.outstanding[node(number).id].append(message)
        self.contacts.send(node(number, f"10.0.0.{number}:1", f"10.0.0.{number}:2"), message, self.now)

    @rule(number=st.integers(1, 6))
    def open(self, number: int) -> None:
        self.linked.add(node(number).id)
        self.contacts.link_opened(node(number).id, self.now)

    @rule(number=st.integers(1, 6))
    def lose(self, number: int) -> None:
        self.linked.discard(node(number).id)
        self.contacts.link_lost(node(number).id, self.now)

    @rule(number=st.integers(1, 6))
    def die(self, number: int) -> None:
        self.contacts.peer_dead(node(number).id, self.now)

    @rule(fails=st.booleans(), other=st.booleans(), refused=st.booleans(), broken=st.booleans(), rests=st.booleans())
    def end_dial(self, fails: bool, other: bool, refused: bool, broken: bool, rests: bool) -> None:
        if self.dials:
            dial = self.dials.pop(0)
            assert dial.peer is not None
            if rests and not dial.is_proven:
                self.contacts.dial_rested(dial.address, self.now)
            elif fails:
                self.contacts.dial_failed(dial.address, self.now, is_refused=refused, is_broken=broken)
            else:
                self.contacts.dial_succeeded(dial.address, node(50).id if other else dial.peer, self.now)

    @rule(number=st.integers(1, 6))
    def connect(self, number: int) -> None:
        self.contacts.connect(node(number, f"10.0.0.{number}:1", "10.0.0.7:1"), self.now)

    @rule(seconds=st.sampled_from([0.1, 1.0, 6.0, 61.0]))
    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.contacts.handle_timeout(self.now)

    @invariant()
    def every_message_is_accounted_for(self) -> None:
        for peer, message in self.contacts.messages_to_send():
            assert peer in self.linked
            assert self.outstanding[peer].pop(0) == message
        for event in self.contacts.events_received():
            if isinstance(event, ContactFailed):
                for message in event.undelivered:
                    self.outstanding[event.info.id].remove(message)
        self.dials += self.contacts.requests_to_dial()
        assert self.contacts.waiting_count <= CONFIG.waiting_peers_max
        assert sum(map(len, self.outstanding.values())) <= CONFIG.waiting_peers_max * CONFIG.waiting_messages_max
        if not self.contacts.waiting_count:
            assert not any(self.outstanding.values())
        assert self.contacts.waiting_count == 0 or self.contacts.deadline() is not None


TestModel = Model.TestCase


def test_no_room_says_nothing_about_a_peer_but_a_failed_dial_does() -> None:
    contacts, peer = make(), node(1)
    for number in range(4):
        contacts.send(peer, bytes([number]), 0.0)
    assert [event.is_overflow for event in contacts.events_received() if isinstance(event, ContactFailed)] == [True]
    contacts.dial_failed("10.0.0.1:1", 0.1)
    contacts.send(peer, b"again", 0.2)  # it rests
    assert [event.is_overflow for event in contacts.events_received() if isinstance(event, ContactFailed)] == [False, False]


def test_messages_do_not_wait_long_for_a_dial_that_goes_on() -> None:
    contacts, peer = make(ContactsConfig(patience_s=1.0, dial_timeout_s=5.0)), node(1)
    contacts.send(peer, b"1", 0.0)
    contacts.send(peer, b"2", 0.9)
    contacts.handle_timeout(0.99)
    assert contacts.events_received() == []
    assert contacts.deadline() == 1.0
    contacts.handle_timeout(1.0)
    assert contacts.events_received() == [ContactFailed(peer, [b"1", b"2"], is_overflow=True)]
    contacts.send(peer, b"3", 1.1)
    assert contacts.events_received() == [ContactFailed(peer, [b"3"], is_overflow=True)]
    assert len(contacts.requests_to_dial()) == 1, "the dial goes on"
    contacts.link_opened(peer.id, 2.0)
    contacts.send(peer, b"4", 2.0)
    assert contacts.messages_to_send() == [(peer.id, b"4")]
    assert contacts.deadline() == 2.0 + ContactsConfig().link_idle_s


def test_peers_that_somebody_made_up_at_one_address_cost_one_dial_now_and_then() -> None:
    config = ContactsConfig()
    contacts, dials, now = make(config), 0, 0.0
    for number in range(1, 201):
        contacts.send(node(number, "203.0.113.1:9"), b"x", now)
        for request in contacts.requests_to_dial():
            dials += 1
            contacts.dial_failed(request.address, now, is_refused=True)
        contacts.events_received()
        now += 0.01
        contacts.handle_timeout(now)
        for request in contacts.requests_to_dial():
            dials += 1
            contacts.dial_failed(request.address, now, is_refused=True)
    assert dials <= 1 + 200 * 0.01 / config.address_rest_s


def test_the_spellings_of_one_address_are_one_address() -> None:
    config = ContactsConfig()
    contacts, dials, now = make(config), list[str](), 0.0
    spellings = ["".join(c.upper() if n >> k & 1 else c for k, c in enumerate("localhost")) for n in range(512)]
    for number in range(64):
        contacts.connect(node(number + 1, *(f"{spelling}:9" for spelling in spellings[8 * number : 8 * number + 8])), now)
    while now < 30.0:
        for request in contacts.requests_to_dial():
            dials.append(request.address)
            contacts.dial_failed(request.address, now, is_refused=True)
        contacts.events_received()
        now += 0.01
        contacts.handle_timeout(now)
    assert set(dials) == {"localhost:9"}
    assert len(dials) <= 1 + 30.0 / config.address_rest_s


def test_another_node_at_the_address_lets_it_rest_too() -> None:
    contacts = make()
    contacts.connect(node(1, "203.0.113.1:9"), 0.0)
    contacts.requests_to_dial()
    contacts.dial_succeeded("203.0.113.1:9", node(9).id, 0.1)
    contacts.connect(node(2, "203.0.113.1:9"), 0.2)
    contacts.connect(node(3, "203.0.113.1:10"), 0.2)
    assert [request.address for request in contacts.requests_to_dial()] == ["203.0.113.1:10"]
    contacts.handle_timeout(0.1 + CONFIG.address_rest_s)
    assert [request.address for request in contacts.requests_to_dial()] == ["203.0.113.1:9"]


def make_rest(contacts: Contacts, address: str, now: float) -> None:
    """Let an address rest, because a dial found nobody there."""
    contacts.connect(node(77, address), now)
    contacts.requests_to_dial()
    contacts.dial_failed(address, now, is_refused=True)
    contacts.events_received()


def reached(contacts: Contacts, peer: NodeInfo, address: str, now: float) -> None:
    """Let a dial reach a peer, and its link end."""
    contacts.dial_succeeded(address, peer.id, now)
    contacts.link_opened(peer.id, now)
    contacts.link_lost(peer.id, now)


def test_who_was_reached_at_an_address_is_dialled_although_it_rests() -> None:
    contacts, peer = make(), node(1, "203.0.113.1:9")
    reached(contacts, peer, "203.0.113.1:9", 0.0)
    make_rest(contacts, "203.0.113.1:9", 0.2)
    contacts.connect(peer, 0.3)
    assert contacts.requests_to_dial() == [DialRequested("203.0.113.1:9", peer.id, is_proven=True)]


def test_who_was_met_is_dialled_although_its_address_rests() -> None:
    """The owner decides by the resolved address, unless a dial has reached the peer at the numeric one."""
    contacts, named, met = make(), node(1, "host.example:9"), node(2, "203.0.113.1:9")
    reached(contacts, named, "host.example:9", 0.0)
    contacts.link_opened(met.id, 0.0)  # it has dialled
    contacts.link_lost(met.id, 0.1)
    for peer in (named, met):
        make_rest(contacts, peer.addresses[0], 0.2)
        contacts.connect(peer, 0.3)
        assert contacts.requests_to_dial() == [DialRequested(peer.addresses[0], peer.id, is_proven=False)]


def test_an_address_that_rests_is_dialled_again_later_and_fails_nobody() -> None:
    contacts, peer, other = make(), node(1, "a.example:9", "b.example:9"), node(2, "a.example:9")
    contacts.send(peer, b"1", 0.0)
    contacts.connect(other, 0.0)
    assert contacts.requests_to_dial() == [DialRequested("a.example:9", peer.id)]
    contacts.dial_rested("a.example:9", 0.1)
    third = node(3, "a.example:9")
    contacts.connect(third, 0.2)
    assert contacts.requests_to_dial() == [], "nobody asks for the same address meanwhile"
    contacts.handle_timeout(0.1 + CONFIG.address_rest_s)
    assert contacts.requests_to_dial() == [DialRequested("a.example:9", peer.id)]
    assert contacts.events_received() == []
    contacts.dial_succeeded("a.example:9", peer.id, 1.0)
    contacts.link_opened(peer.id, 1.0)
    assert contacts.messages_to_send() == [(peer.id, b"1")]


def test_who_was_reached_at_an_address_does_not_wait_with_others_who_share_its_dial() -> None:
    contacts, peer, other = make(), node(1, "203.0.113.1:9"), node(2, "203.0.113.1:9")
    reached(contacts, peer, "203.0.113.1:9", 0.0)
    contacts.connect(other, 0.1)
    contacts.connect(peer, 0.1)
    assert contacts.requests_to_dial() == [DialRequested("203.0.113.1:9", other.id)]
    contacts.dial_rested("203.0.113.1:9", 0.2)
    assert contacts.requests_to_dial() == [DialRequested("203.0.113.1:9", peer.id, is_proven=True)]
    contacts.dial_failed("203.0.113.1:9", 0.3, is_refused=True)
    assert contacts.events_received() == [ContactFailed(peer, [], is_refused=True)]


def test_names_whose_address_rests_are_looked_up_as_often_as_their_teller_may_cause_dials() -> None:
    config = ContactsConfig()
    contacts, looked_up, now = make(config), 0, 0.0
    for number in range(200):
        addresses = [f"n{8 * number + each}.example:9" for each in range(8)]
        contacts.connect(NodeInfo(NodeId(number.to_bytes(16, "big")), tuple(addresses)), now)
    while now < 60.0:
        for request in contacts.requests_to_dial():
            looked_up += 1
            contacts.dial_rested(request.address, now)
        now += 0.1
        contacts.handle_timeout(now)
    assert looked_up <= config.hearsay_dials_max + 60.0 * config.hearsay_dials_per_s
    failed = [event for event in contacts.events_received() if isinstance(event, ContactFailed)]
    assert not any(event.is_refused for event in failed)
    assert contacts.waiting_count + len(failed) == 200, "nobody waits without end"


def test_what_is_remembered_of_addresses_and_peers_is_bounded() -> None:
    contacts = make(ContactsConfig(address_rest_s=1e9, hearsay_dials_max=10_000))
    for number in range(ADDRESSES_RESTING_MAX + REACHED_MAX + 10):
        peer = NodeInfo(NodeId(number.to_bytes(16, "big")), (f"203.0.113.1:{1 + number}",))
        contacts.connect(peer, 0.0)
        contacts.requests_to_dial()
        contacts.dial_failed(peer.addresses[0], 0.0, is_refused=True)
        contacts.link_opened(peer.id, 0.0)
        contacts.link_lost(peer.id, 0.0)
    assert len(contacts._resting_addresses) == ADDRESSES_RESTING_MAX
