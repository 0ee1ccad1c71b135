"""The file of a door: its defaults, and its mistakes with their lines."""

from __future__ import annotations

import os

import pytest

from iris_py.doors.settings import FILE_BYTES_MAX, WebLimits, parse_settings
from iris_py.errors import ConfigurationError
from iris_security import Secret

WHOLE = """
[web]
listen = "127.0.0.1:7480"
public_url = "https://app.example/iris"
origins = ["https://app.example", "http://localhost:3000"]
behind_proxy = "10.0.0.0/8"
[web.limits]
operations_per_s = 10
[roles.viewer]
subscribe = ["notes.{sub}.>", "news.>"]
request = ["quotes"]
[roles.operator]
observe = true
remote_errors = true
[histories]
"notes.>" = { seconds = 30, last = true }
"""


def mistakes(text: str) -> str:
    with pytest.raises(ConfigurationError) as raised:
        parse_settings(text, "door.toml")
    return str(raised.value)


def test_a_whole_file() -> None:
    settings = parse_settings(WHOLE, "door.toml")
    assert settings.web.origins == ("https://app.example", "http://localhost:3000")
    assert settings.web.public_url == "https://app.example/iris"
    assert str(settings.web.behind_proxy) == "10.0.0.0/8"
    assert settings.web.limits.operations_per_s == 10
    assert settings.web.limits.body_bytes == WebLimits().body_bytes
    assert settings.roles["viewer"].subscribe == ("notes.{sub}.>", "news.>")
    assert settings.roles["operator"].observe
    history = settings.histories["notes.>"]
    assert (history.seconds, history.messages, history.last) == (30, 10_000, True)


def test_an_empty_file_has_the_defaults() -> None:
    settings = parse_settings("", "door.toml")
    assert settings.web.listen == "127.0.0.1:7480"
    assert not settings.roles


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x = 1", "door.toml:1: the file has no key"),
        ("[web]\nlisten = 7480", "door.toml:2: [web] listen: it must be text"),
        ("[web]\nlisten = 'here'", "door.toml:2: [web] listen: address 'here' is not host:port"),
        ("[web]\norigins = ['app.example']", "door.toml:2: [web] origins: an origin is"),
        ("[web]\norigins = ['https://*.example']", "door.toml:2: [web] origins: an origin has no wildcard"),
        ("[web]\npublic_url = 'ftp://a'", "door.toml:2: [web] public_url: it is no address of HTTP"),
        ("[web]\ncertificate_file = 'a.pem'", "door.toml:2: [web] certificate_file: TLS also needs key_file"),
        ("[web]\nbehind_proxy = '10.0.0.300/8'", "door.toml:2: [web] behind_proxy: "),
        ("[web.limits]\nburst = 0", "door.toml:2: [web.limits] burst: it must be a whole number of operations from 1"),
        ("[roles.a]\nask = ['a']", "door.toml:2: [roles.a] has no key 'ask'"),
        ("[roles.a]\nrequest = ['iris.x']", "door.toml:2: [roles.a] request: "),
        ("[roles.a]\nobserve = 'yes'", "door.toml:2: [roles.a] observe: it must be true or false"),
        ("roles = 7", "door.toml:1: [roles] is a table"),
        ("[histories]\n'a..b' = {seconds = 1}", "door.toml:2: [histories] "),
        ("[histories]\n'a.>' = 60", "door.toml:2: [histories] 'a.>': it is a table"),
        ("[histories]\n'a.>' = {seconds = 0}", "door.toml:2: [histories] 'a.>' seconds: it must be a whole number"),
        ("[histories]\n'a.>' = {bytes = 67108865}", "door.toml:2: [histories] 'a.>' bytes: it must be a whole number"),
        (
            "[histories]\n'a' = {bytes = 33554432}\n'b' = {last = true}\n'c' = {bytes = 1}",
            "door.toml:1: [histories] keep up to 67108865 bytes together, and 67108864 are allowed",
        ),
        ("[web", "door.toml:1: this is not TOML"),
        ("#" * (FILE_BYTES_MAX + 1), f"door.toml:1: the file has {FILE_BYTES_MAX + 1} bytes, and {FILE_BYTES_MAX} are allowed"),
    ],
)
def test_each_mistake_has_its_line_and_advice(text: str, expected: str) -> None:
    assert mistakes(text).startswith(expected)


def test_histories_may_keep_64_mib_together() -> None:
    four = parse_settings("[histories]\na = {}\nb = {}\nc = {}\nd = {}", "door.toml")
    assert sum(each.bytes_max for each in four.histories.values()) == 64 * 1024 * 1024
    two = parse_settings("[histories]\na = {last = true}\nb = {last = true}", "door.toml")
    assert sum(each.bytes_max for each in two.histories.values()) == 64 * 1024 * 1024


def test_all_mistakes_are_told_together() -> None:
    assert len(mistakes("[web]\nlisten = 1\norigins = 2\n[roles.a]\nrequest = 3").split("\n")) == 3


def test_a_secret_in_the_file_is_refused_before_anything_is_quoted() -> None:
    secret = Secret.generate(os.urandom).text
    text = mistakes(f"[web]\nlisten = '{secret}'")
    assert text.startswith("door.toml:2: this line contains a secret")
    assert secret not in text
