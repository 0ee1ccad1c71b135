"""The session of a NATS client: credentials, order, time, and clients that hurt others."""

from __future__ import annotations

from base64 import urlsafe_b64encode

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from iris_py.doors.door_reports import TEXT_MAX
from iris_py.doors.nats.nkeys import encode_user_key
from iris_py.doors.nats.passwords import hash_password, hash_token
from iris_py.doors.nats.session import GREETING_S, PING_S, STALLED_S, PongWait, SessionEnd
from iris_py.doors.nats.settings import NatsLimits
from iris_py.doors.nats.subscription import SERVED_MAX
from iris_py.doors.nats.users import NatsUser, UserDirectory, read_user_rules
from tests.nats.lone_door import DoorConnection, LoneDoor

QUIET = b'{"verbose":false,"pedantic":false}'
MODERN = b'{"verbose":false,"pedantic":false,"headers":true,"no_responders":true,"protocol":1}'
VIOLATION = b"-ERR 'Authorization Violation'\r\n"
KEY = Ed25519PrivateKey.from_private_bytes(bytes(32))
SHOP = NatsUser(
    "shop",
    publish=read_user_rules(["orders.>"]),
    subscribe=read_user_rules(["prices.>", "!prices.secret"]),
    password=hash_password("pw", bytes(16)),
)
USERS = {
    "shop": SHOP,
    "talker": NatsUser("talker", token=hash_token("t0ken"), publish=read_user_rules([">"]), subscribe=read_user_rules([">"])),
    "robot": NatsUser("robot", nkey=KEY.public_key().public_bytes_raw()),
}
TALKER = b'{"verbose":false,"pedantic":false,"auth_token":"t0ken"}'


def test_a_door_with_users_says_so_and_lets_nobody_else_in() -> None:
    door = LoneDoor(USERS)
    info = door.clients.open("10.0.0.1", "n0nce", 0.0, lambda: None).take_output()
    assert b'"auth_required":true' in info
    assert b'"nonce":"n0nce"' in info
    assert b"auth_required" not in LoneDoor().clients.open("10.0.0.1", "n0nce", 0.0, lambda: None).take_output()
    for sent in (b"PING\r\n", b"SUB a 1\r\n", b"PUB a 0\r\n\r\n", b"CONNECT {}\r\n", b'CONNECT {"jwt":"a","sig":"b"}\r\n'):
        client = door.connect()
        assert client.ask(sent) == VIOLATION
        assert client.end is SessionEnd.AUTHORIZATION


@pytest.mark.parametrize(
    ("options", "is_right"),
    [
        (b'{"verbose":false,"user":"shop","pass":"pw"}', True),
        (b'{"verbose":false,"user":"shop","pass":"wrong"}', False),
        (b'{"verbose":false,"user":"nobody","pass":"pw"}', False),
        (b'{"verbose":false,"user":"robot","pass":""}', False),
        (b'{"verbose":false,"auth_token":"t0ken"}', True),
        (b'{"verbose":false,"auth_token":"token"}', False),
    ],
)
def test_credentials_open_the_session_or_end_it(options: bytes, is_right: bool) -> None:
    client = LoneDoor(USERS).connect()
    assert client.ask(b"CONNECT %b\r\nPING\r\n" % options) == (b"PONG\r\n" if is_right else VIOLATION)
    assert (client.end is None) is is_right


def test_an_nkey_signs_the_nonce_of_info() -> None:
    signature = urlsafe_b64encode(KEY.sign(b"nonce")).decode().rstrip("=").encode()
    key = encode_user_key(KEY.public_key().public_bytes_raw()).encode()
    options = b'{"verbose":false,"nkey":"%b","sig":"%b"}'
    assert LoneDoor(USERS).connect().ask(b"CONNECT " + options % (key, signature) + b"\r\nPING\r\n") == b"PONG\r\n"
    assert LoneDoor(USERS).connect().ask(b"CONNECT " + options % (key, b"A" * 86) + b"\r\n") == VIOLATION


def test_nothing_is_executed_or_confirmed_before_the_password_is_verified() -> None:
    client = LoneDoor(USERS).connect()
    client.session.receive(b'CONNECT {"user":"shop","pass":"pw"}\r\nSUB prices.a 1\r\n', 0.0)
    assert client.read() == b""
    assert client.session.subscriptions == 0
    client.door.execute(client.session)
    assert client.read() == b"+OK\r\n+OK\r\n"


def test_a_client_without_credentials_may_have_a_user() -> None:
    door = LoneDoor(USERS, no_user="shop")
    assert door.connect().ask(b"PUB orders.a 0\r\n\r\nPING\r\n") == b"+OK\r\nPONG\r\n"


def test_rights_leave_the_connection_alive() -> None:
    client = LoneDoor(USERS, no_user="shop").connect(QUIET)
    assert client.ask(
        b"PUB a 1\r\nx\r\nPUB a 1\r\nx\r\nSUB > 1\r\nSUB prices.a iris.q 2\r\nPUB orders.a b*c 0\r\n\r\nPING\r\n"
    ) == (
        b"-ERR 'Permissions Violation for Publish to \"a\"'\r\n" * 2
        + b"-ERR 'Permissions Violation for Subscription to \">\"'\r\n"
        + b'-ERR \'Permissions Violation for Subscription to "prices.a" using queue "iris.q"\'\r\n'
        + b"-ERR 'Permissions Violation for Publish to \"b*c\"'\r\nPONG\r\n"
    )
    assert client.door.published == []


def test_a_subscription_does_not_hear_what_is_taken_away() -> None:
    door = LoneDoor(USERS, no_user="shop")
    shop, talker = door.connect(QUIET), door.connect(TALKER)
    assert shop.ask(b"SUB prices.* 1\r\nSUB prices.> q 2\r\n") == b""
    talker.send(b"PUB prices.secret 1\r\nx\r\nPUB prices.a 1\r\ny\r\n")
    assert shop.read() == b"MSG prices.a 1 1\r\ny\r\nMSG prices.a 2 1\r\ny\r\n"


def test_other_rights_end_subscriptions_and_another_file_ends_clients() -> None:
    door = LoneDoor(USERS, no_user="shop")
    shop, talker = door.connect(QUIET), door.connect(TALKER)
    shop.ask(b"SUB prices.a 1\r\nSUB prices.* 2\r\nPUB orders.a 0\r\n\r\n")
    less = NatsUser("shop", subscribe=read_user_rules(["prices.*", "!prices.a"]))
    door.clients.change_users(UserDirectory({"shop": less}))
    assert shop.read() == b"-ERR 'Permissions Violation for Subscription to \"prices.a\"'\r\n"
    assert shop.ask(b"PUB orders.a 0\r\n\r\n") == b"-ERR 'Permissions Violation for Publish to \"orders.a\"'\r\n"
    assert talker.read() == VIOLATION
    assert talker.end is SessionEnd.AUTHORIZATION
    assert shop.session.subscriptions == 1
    door.clients.change_users(UserDirectory({"shop": SHOP}))
    door.connect(b'{"verbose":false,"user":"shop","pass":"pw"}').send(b"PUB orders.a 0\r\n\r\n")
    assert shop.session.subscriptions == 1


def test_a_pong_waits_for_messages_and_new_patterns_before_it_and_holds_up_what_is_behind_it() -> None:
    client = LoneDoor().connect(QUIET)
    client.session.receive(b"SUB a 1\r\nPUB b 0\r\n\r\nPING\r\nPUB a 1\r\nx\r\nPING\r\n", 0.0)
    commands = client.session.take_commands()
    assert [command for command in commands if command is PongWait.PONG] == [commands[-1]] == [PongWait.PONG]
    assert client.read() == b""
    client.session.pong()
    client.door.execute(client.session)
    assert client.read() == b"PONG\r\nMSG a 1 1\r\nx\r\nPONG\r\n"


def test_info_comes_behind_the_first_pong_and_never_before() -> None:
    door = LoneDoor()
    early, late, old = door.connect(MODERN), door.connect(MODERN), door.connect(QUIET)
    assert late.ask(b"PING\r\n") == b"PONG\r\n<INFO>"
    door.clients.announce(("a:4222", "b:4222"))
    assert early.read() == b""
    early.send(b"PING\r\n")
    assert b'"connect_urls":["a:4222","b:4222"]' in early.session.take_output()
    assert late.read() == b"<INFO>"
    assert old.ask(b"PING\r\n") == b"PONG\r\n"
    door.clients.announce(("b:4222",), is_closing=True)
    assert b'"ldm":true' in late.session.take_output()
    assert b'"connect_urls":["b:4222"],"ldm":true' in door.clients.open("", "", 0.0, lambda: None).take_output()


def wait(client: DoorConnection, seconds: float, *, is_reading: bool = True) -> bytes:
    """Let time pass to each deadline of a session in turn; return its output."""
    door = client.door
    end = door.now + seconds
    while client.session.deadline <= end:
        door.now = client.session.deadline
        client.session.handle_timeout(door.now, is_reading=is_reading)
    door.now = end
    return client.read()


def test_a_client_shows_its_credentials_in_time() -> None:
    client = LoneDoor(USERS).connect()
    assert wait(client, GREETING_S - 0.1) == b""
    assert wait(client, 0.1) == b"-ERR 'Authentication Timeout'\r\n"
    assert client.end is SessionEnd.AUTHORIZATION
    named = LoneDoor(USERS).connect(TALKER)
    assert wait(named, 2 * GREETING_S) == b""


def test_a_silent_client_is_asked_twice_and_then_ends() -> None:
    client = LoneDoor().connect(QUIET)
    assert wait(client, PING_S) == b"PING\r\n"
    assert client.ask(b"PONG\r\n") == b""
    assert wait(client, 2 * PING_S) == b"PING\r\nPING\r\n"
    assert client.end is None
    assert wait(client, PING_S) == b"-ERR 'Stale Connection'\r\n"
    assert client.end is SessionEnd.SILENT


def test_a_client_that_the_door_does_not_read_is_not_silent() -> None:
    client = LoneDoor().connect(QUIET)
    for _ in range(10):
        assert wait(client, PING_S, is_reading=False) == b""
    assert client.end is None


def test_a_client_that_takes_nothing_ends_without_a_word() -> None:
    client = LoneDoor().connect(QUIET)
    session = client.session
    session.write(b"x" * 100)
    session.take_output()
    session.note_buffered(100, 0.0)
    session.note_buffered(90, STALLED_S - 1)
    session.handle_timeout(STALLED_S, is_reading=True)
    assert session.deadline == 2 * STALLED_S - 1
    session.handle_timeout(2 * STALLED_S - 1, is_reading=True)
    assert (session.end, session.take_output(), session.waiting_bytes) == (SessionEnd.SLOW, b"", 0)


def test_a_slow_client_ends_alone_and_all_together_hold_a_bounded_number_of_bytes() -> None:
    door = LoneDoor(limits=NatsLimits(waiting_bytes=3000, waiting_bytes_total=5000))
    slow, slower, reader, sender = (door.connect(QUIET) for _ in range(4))
    slow.send(b"SUB a 1\r\nSUB b 2\r\n")
    reader.send(b"SUB a 1\r\n")
    sender.send(b"PUB a 2000\r\n%b\r\n" % (b"x" * 2000))
    sender.send(b"PUB b 2000\r\n%b\r\n" % (b"x" * 2000))
    assert slow.end is SessionEnd.SLOW
    assert len(reader.read()) > 2000
    assert door.clients.waiting_bytes == 0
    assert door.clients.routes.count == 1
    other = door.connect(QUIET)
    for client, topic in ((slower, b"c"), (other, b"d")):
        client.send(b"SUB %b 1\r\n" % topic)
    sender.send(b"PUB c 2700\r\n%b\r\n" % (b"x" * 2700))
    sender.send(b"PUB d 2400\r\n%b\r\n" % (b"x" * 2400))
    assert slower.end is SessionEnd.SLOW
    assert (other.end, reader.end) == (None, None)


def test_a_client_and_a_user_and_a_door_have_room_for_some() -> None:
    limits = NatsLimits(subscriptions_per_client=3, subscriptions=5, patterns=4, connections_per_user=2)
    door = LoneDoor(USERS, no_user="talker", limits=limits)
    first, second = door.connect(QUIET), door.connect(QUIET)
    assert (
        first.ask(b"SUB a 1\r\nSUB a 2\r\nSUB a 3\r\nSUB a 4\r\n")
        == b"-ERR 'Permissions Violation for Subscription to \"a\"'\r\n"
    )
    assert second.ask(b"SUB a 1\r\nSUB a 2\r\nSUB a 3\r\n") == b"-ERR 'Permissions Violation for Subscription to \"a\"'\r\n"
    first.ask(b"UNSUB 1\r\nUNSUB 2\r\nUNSUB 3\r\n")
    second.ask(b"UNSUB 2\r\n")
    assert second.ask(b"SUB b 2\r\nSUB c 3\r\n") == b""
    assert first.ask(b"SUB d 1\r\nSUB e 2\r\nSUB a 3\r\n") == b"-ERR 'Permissions Violation for Subscription to \"e\"'\r\n"
    third = door.connect()
    assert third.ask(b"PING\r\n") == b"-ERR 'maximum connections exceeded'\r\n"
    door.clients.close(third.session)
    door.clients.close(second.session)
    door.clients.close(second.session)
    assert door.connect().ask(b"PING\r\n") == b"PONG\r\n"


def test_a_client_that_is_gone_leaves_nothing() -> None:
    door = LoneDoor()
    client, sender = door.connect(QUIET), door.connect(QUIET)
    client.send(b"SUB a 1\r\nSUB a q 2\r\nSUB _INBOX.a.* 3\r\nSUB $SYS.> 4\r\n")
    door.clients.close(client.session)
    assert client.end is SessionEnd.GONE
    assert (door.clients.routes.count, door.clients.routes.patterns, len(door.clients.sessions)) == (0, 0, 1)
    sender.send(b"PUB a 0\r\n\r\nPUB _INBOX.a.1 0\r\n\r\n")
    assert (client.read(), door.lost) == (b"", 1)


def test_a_request_finds_its_service_and_the_reply_its_client() -> None:
    door = LoneDoor()
    service, caller = door.connect(MODERN), door.connect(MODERN)
    service.send(b"SUB upper workers 1\r\n")
    caller.send(b"SUB _INBOX.c.* 1\r\nPUB upper _INBOX.c.7 2\r\nhi\r\n")
    assert service.read() == b"MSG upper 1 _INBOX.c.7 2\r\nhi\r\n"
    service.send(b"PUB _INBOX.c.7 2\r\nHI\r\n")
    assert caller.read() == b"MSG _INBOX.c.7 1 2\r\nHI\r\n"
    assert caller.ask(b"PUB lower _INBOX.c.8 2\r\nhi\r\n") == (
        b"HMSG _INBOX.c.8 1 37 37\r\nNATS/1.0 503\r\nNats-Subject: lower\r\n\r\n\r\n"
    )
    assert len(door.published) == 2


def test_a_report_counts_the_messages_of_the_client_and_names_its_library() -> None:
    door = LoneDoor(USERS)
    options = b'{"verbose":false,"auth_token":"t0ken","name":"shop-1","lang":"go","version":"1.2","echo":false}'
    client, other = door.connect(options), door.connect(TALKER)
    client.ask(b"SUB a.> 1\r\nSUB b 2\r\nSUB c 3\r\nUNSUB 3 1\r\nPUB a.x 1\r\nh\r\nPUB a.x 1\r\nh\r\n")
    other.ask(b"PUB a.x 1\r\n1\r\nPUB b 1\r\n2\r\nPUB c 1\r\n3\r\nPUB c 1\r\n4\r\n")
    client.ask(b"UNSUB 2\r\n")
    report = client.session.report(7.5)
    assert (report.name, report.user, report.language, report.version) == ("shop-1", "talker", "go", "1.2")
    assert (report.subscriptions, report.messages_in, report.messages_out) == (1, 2, 3)
    assert report.age_s == 7.5
    assert other.session.report(0.0).messages_in == 4


@pytest.mark.parametrize(("maximum", "remaining"), [(1, 0), (2, 0), (3, 1), (0, 0)])
def test_a_maximum_that_is_reached_already_ends_the_subscription_at_once(maximum: int, remaining: int) -> None:
    client = LoneDoor().connect(QUIET)
    assert client.ask(b"SUB a 1\r\nPUB a 1\r\n1\r\nPUB a 1\r\n2\r\n").count(b"MSG") == 2
    client.ask(b"UNSUB 1 %d\r\n" % maximum)
    assert client.session.subscriptions == remaining


def test_a_report_cuts_the_texts_of_a_client() -> None:
    client = LoneDoor().connect(b'{"verbose":false,"name":"%b","lang":"%b"}' % (b"n" * 3000, b"l" * 900))
    report = client.session.report(0.0)
    assert (len(report.name), len(report.language)) == (TEXT_MAX, TEXT_MAX)


def test_a_client_serves_a_part_of_the_clusters_of_a_door_and_lives_on() -> None:
    door = LoneDoor()
    greedy, other = door.connect(QUIET), door.connect(QUIET)
    said = greedy.ask(b"".join(b"SUB service.%d q %d\r\n" % (number, number) for number in range(SERVED_MAX + 10)))
    refused = b'-ERR \'Permissions Violation for Subscription to "service.%d" using queue "q"\'\r\n'
    assert said == b"".join(refused % number for number in range(SERVED_MAX, SERVED_MAX + 10))
    assert greedy.ask(b"PING\r\n") == b"PONG\r\n"
    again, no_clusters = b"SUB service.0 r a\r\n", b"SUB x b\r\nSUB x.* q c\r\nSUB x@eu q d\r\nSUB _INBOX.x q e\r\n"
    assert greedy.ask(again + no_clusters) == b""
    assert other.ask(b"SUB x q 1\r\n") == b""
    assert greedy.ask(b"UNSUB 0\r\n") == b""
    assert greedy.ask(b"SUB x q f\r\n").startswith(b"-ERR"), "another subscription serves the cluster"
    assert greedy.ask(b"UNSUB a\r\nSUB x q f\r\n") == b""
    assert greedy.session.subscriptions == SERVED_MAX + 4
