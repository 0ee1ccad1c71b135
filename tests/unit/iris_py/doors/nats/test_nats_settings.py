"""The tables of NATS in the file of a door."""

from __future__ import annotations

import pytest

from iris_py.doors.nats.passwords import hash_password, hash_token
from iris_py.doors.nats.settings import NatsLimits
from iris_py.doors.nats.users import read_user_rules
from iris_py.doors.settings import parse_settings
from iris_py.errors import ConfigurationError

HASH = hash_password("p", bytes(16)).text()
KEY = "UDXU4RCSJNZOIQHZNWXHXORDPRTGNJAHAHFRGZNEEJCPQTT2M7NLCNF4"
WHOLE = f"""
[nats]
listen = "0.0.0.0:4222"
advertise = "door1.example:4222"
server_name = "door1"
certificate_file = "door.pem"
key_file = "door.key"
no_user = "guest"
[nats.limits]
payload_bytes = 1000
[users.shop]
password = "{HASH}"
publish = ["orders.>", "!orders.internal.>"]
subscribe = ["prices.>", "orders.new queue workers"]
[users.robot]
nkey = "{KEY}"
role = "viewer"
[users.guest]
subscribe = ["news.>"]
[users.talker]
token = "{hash_token("t")}"
[roles.viewer]
subscribe = ["notes.{{sub}}.>"]
"""


def test_a_whole_file() -> None:
    settings = parse_settings(WHOLE, "door.toml")
    nats, users = settings.nats, settings.users
    assert (nats.listen, nats.advertise, nats.server_name) == ("0.0.0.0:4222", "door1.example:4222", "door1")
    assert (nats.certificate_file, nats.key_file, nats.no_user) == ("door.pem", "door.key", "guest")
    assert (nats.limits.payload_bytes, nats.limits.connections) == (1000, NatsLimits().connections)
    assert users["shop"].publish == read_user_rules(["orders.>", "!orders.internal.>"])
    assert users["shop"].subscribe == read_user_rules(["prices.>", "orders.new queue workers"])
    assert users["shop"].password is not None
    assert users["shop"].password.text() == HASH
    assert users["robot"].subscribe == read_user_rules(["notes.robot.>"])
    assert len(users["robot"].nkey) == 32
    assert users["talker"].token == hash_token("t")


def test_an_empty_file_has_the_defaults() -> None:
    settings = parse_settings("", "door.toml")
    assert settings.nats.listen == "127.0.0.1:4222"
    assert not settings.users


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[nats]\nport = 4222", "door.toml:2: [nats] has no key 'port'"),
        ("[nats]\nlisten = '4222'", "door.toml:2: [nats] listen: "),
        ("[nats]\nadvertise = 'door1:0'", "door.toml:2: [nats] advertise: "),
        ("[nats]\nkey_file = 'a'", "door.toml:2: [nats] key_file: TLS also needs certificate_file"),
        ("[nats]\nno_user = 'guest'", "door.toml:2: [nats] no_user: there is no user 'guest'"),
        ("[nats.limits]\npayload_bytes = 0", "door.toml:2: [nats.limits] payload_bytes: it must be"),
        ("[users.a]\npassword = 'p'", "door.toml:2: [users.a] password: it is no hash"),
        ("[users.a]\ntoken = 't'", "door.toml:2: [users.a] token: it is no hash"),
        ("[users.a]\nnkey = 'SU'", "door.toml:2: [users.a] nkey: it is no public nkey"),
        ("[users.a]\nrole = 'r'", "door.toml:2: [users.a] role: there is no role 'r'"),
        ("[users.a]\npublish = ['a b']", "door.toml:2: [users.a] publish: publish: 'a b' has a blank"),
        ("[users.a]\npublish = ['a']\nrole = 'r'\n[roles.r]", "door.toml:2: [users.a] publish: the user has a role"),
        (f"[users.a]\nnkey = '{KEY}'\n[users.b]\nnkey = '{KEY}'", "door.toml:4: [users.b] nkey: the user 'a' has the same"),
        ('[users."a\\nb"]\n', "a subject has 1 to 128 printable bytes"),
        ("users = 7", "door.toml:1: [users] is a table"),
    ],
)
def test_each_mistake_has_its_line_and_advice(text: str, expected: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        parse_settings(text, "door.toml")
    assert expected in str(raised.value)
