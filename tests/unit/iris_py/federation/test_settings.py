"""The settings of a gateway: everything that a file may say, and the error of everything that is wrong in one."""

from __future__ import annotations

import re
from hashlib import sha256
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iris_py.errors import ConfigurationError
from iris_py.federation import settings
from iris_py.federation import settings as module
from iris_py.federation.settings import CloudSettings, GatewaySettings, check_identity, check_secrets, parse_settings
from iris_py.toml_document import PROBLEMS_MAX, SHOWN_CHARACTERS_MAX
from iris_security import Secret
from iris_security.cloud_key import CloudKey

KEYS = [CloudKey(bytes((number,)) * 32) for number in range(1, 5)]
GATEWAY = '[gateway]\nname = "us"\nidentity_file = "us.identity"\nlisten = "0.0.0.0:7450"\n'
#: Six lines, so what a test adds begins in line 7.
START = f'{GATEWAY}[cloud.eu]\nkeys = ["{KEYS[0].public_text}"]\n'
EXPORT = '[[export]]\nto = ["eu"]\n'
IMPORT = '[[import]]\nfrom = ["eu"]\n'


def errors(text: str) -> list[str]:
    """Return the errors of a text, each without the name of the file."""
    with pytest.raises(ConfigurationError) as caught:
        parse_settings(text, "federation.toml")
    lines = str(caught.value).split("\n")
    assert all(re.match(r"federation\.toml:\d+: ", line) for line in lines)
    return [line.removeprefix("federation.toml:") for line in lines]


def is_understood_or_refused(text: str) -> bool:
    try:
        parse_settings(text, "federation.toml")
    except ConfigurationError as exc:
        return str(exc).startswith("federation.toml:")
    return True


def clouds(count: int) -> str:
    """Return so many neighbours, each of two lines."""
    keys = [CloudKey(sha256(bytes((number,))).digest()).public_text for number in range(count)]
    return "".join(f'[cloud.c{number}]\nkeys = ["{key}"]\n' for number, key in enumerate(keys, 1))


def test_everything_that_a_file_may_say() -> None:
    settings = parse_settings(
        f"""
[gateway]
name = "us"
identity_file = "us.identity"
listen = "[::]:7450"
audit_file = "/var/log/iris/federation.jsonl"
metrics = "127.0.0.1:9464"
connections = 8
bundles = 3
congestion = ""
window_bytes = 33_554_432
channel_bytes = 268_435_456
[cloud.eu]
keys = ["{KEYS[0].public_text}", "{KEYS[1].public_text}"]
dial = ["gw.eu.example.org:7450", "192.0.2.1:1"]
bytes_per_s = 0
price_per_gb = 0.05
[cloud.asia-2]
keys = [" {KEYS[2].public_text} "]
[[export]]
to = ["asia-2", "eu"]
cluster = "scorers-v2"
as = "scorers"
allow = ["request", "survey", "broadcast", "tunnel"]
requests_per_s = 2000
in_flight = 10
bytes_per_s = 1_000_000
tunnels = 3
trace = true
audit = "all"
[[export]]
to = ["eu"]
topic = "clicks.>"
allow = ["subscribe", "publish"]
subscriptions = 5
block = true
[[import]]
from = ["eu", "asia-2"]
cluster = "databases"
as = "dbs"
when = "full"
[[import]]
from = ["eu"]
topic = "orders.*.>"
as = "eu.*.>"
""",
        "federation.toml",
    )
    assert settings.gateway == GatewaySettings(
        name="us",
        identity_file="us.identity",
        listen="[::]:7450",
        audit_file="/var/log/iris/federation.jsonl",
        metrics="127.0.0.1:9464",
        connections=8,
        bundles=3,
        congestion="",
        window_bytes=32 << 20,
        channel_bytes=256 << 20,
    )
    assert list(settings.clouds) == ["eu", "asia-2"]
    assert settings.clouds["eu"] == CloudSettings(
        "eu", (KEYS[0].public, KEYS[1].public), ("gw.eu.example.org:7450", "192.0.2.1:1"), 0, 0.05
    )
    assert settings.clouds["asia-2"] == CloudSettings("asia-2", (KEYS[2].public,))
    scorers, clicks = settings.exports
    assert (scorers.number, scorers.kind, scorers.outside, scorers.local) == (0, "cluster", "scorers", "scorers-v2")
    assert (scorers.clouds, scorers.allow_bits, scorers.requests_per_s, scorers.in_flight) == (("asia-2", "eu"), 15, 2000, 10)
    assert (scorers.bytes_per_s, scorers.tunnels, scorers.trace, scorers.audit) == (1_000_000, 3, True, "all")
    assert (clicks.number, clicks.kind, clicks.outside, clicks.local) == (1, "topic", "clicks.>", "clicks.>")
    assert (clicks.allow, clicks.subscriptions, clicks.block) == (frozenset({"subscribe", "publish"}), 5, True)
    databases, orders = settings.imports
    assert (databases.number, databases.outside, databases.local, databases.when) == (0, "databases", "dbs", "full")
    assert (orders.number, orders.clouds, orders.outside, orders.local) == (1, ("eu",), "orders.*.>", "eu.*.>")
    assert settings.exports_to("asia-2") == (scorers,)
    assert settings.imports_from("asia-2") == (databases,)
    assert settings.exported_clusters() == (scorers,)
    assert settings.export_table("eu", "topic").find("clicks.a") is clicks
    assert settings.export_table("asia-2", "topic").find("clicks.a") is None
    assert settings.import_table("eu", "cluster").find("databases") is databases


def test_what_is_left_out_has_its_default() -> None:
    settings = parse_settings(
        f'{START}{EXPORT}cluster = "a"\n{EXPORT}topic = "b.>"\n{IMPORT}cluster = "c"\n', "federation.toml"
    )
    gateway = settings.gateway
    assert (gateway.audit_file, gateway.metrics, gateway.connections, gateway.bundles) == (None, None, 4, 2)
    assert (gateway.congestion, gateway.window_bytes, gateway.channel_bytes) == ("bbr", 16 << 20, 1 << 30)
    assert (settings.clouds["eu"].bytes_per_s, settings.clouds["eu"].price_per_gb) == (None, None)
    cluster, topic = settings.exports
    assert (cluster.allow, topic.allow) == (frozenset({"request"}), frozenset({"subscribe"}))
    assert (cluster.requests_per_s, cluster.in_flight, cluster.bytes_per_s, cluster.tunnels) == (None, 1024, None, 64)
    assert (topic.subscriptions, topic.block, topic.trace, topic.audit) == (256, False, False, "totals")
    assert (settings.imports[0].local, settings.imports[0].when) == ("", "absent")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # The text itself
        ("[gateway\n", "1: this is not TOML: Expected ']' at the end of a table declaration. Correct the line"),
        ('[gateway]\nname = "us\n', "2: this is not TOML: Illegal character '\\n'"),
        ("a = [1,\n", "2: this is not TOML: Invalid value. Correct"),
        ("[gateway]\nname = 1\nname = 2\n", "3: this is not TOML: Cannot overwrite a value"),
        ("a = " + "[" * 100_000, "1: "),
        (f"{START}[gatway]\nx = 1\n", "7: the file has no key 'gatway'. Did you mean 'gateway'?"),
        (f"{START}[[exports]]\n", "7: the file has no key 'exports'. Did you mean 'export'?"),
        ("", "1: there is no table [gateway]. Write [gateway], name ="),
        ("gateway = 1\n", "1: gateway is a table. Write [gateway], and its keys below it."),
        ("[[gateway]]\n", "1: gateway is a table. Write [gateway]"),
        (f"cloud = 1\n{GATEWAY}", "1: cloud is a table of tables. Write [cloud.eu], and its keys below it."),
        (f"{START}[export]\n", "7: the file export is an array of tables. Write [[export]] with two brackets"),
        (f"import = 3\n{START}", "1: the file import is an array of tables. Write [[import]] with two brackets"),
        (f"export = [3]\n{START}", "1: export is an array of tables, not 3. Write [[export]] for each rule."),
        (f'{START}{EXPORT}cluster = "{Secret(bytes(32)).text}"\n', "9: this line contains a secret. Write it into a file"),
        (f"{START}# {KEYS[0].text}\n", "7: this line contains a secret. Write it into a file"),
        # [gateway]
        ('[gateway]\nidentity_file = "x"\n', '1: [gateway] has no name. Write the name of this cloud, as name = "us".'),
        ('[gateway]\nname = "us"\n', '1: [gateway] has no identity_file. Write identity_file = "us.identity"; `iris keys'),
        (f"{GATEWAY}nmae = 1\n", "5: [gateway] has no key 'nmae'. Did you mean 'name'?"),
        (f"{GATEWAY}zzz = 1\n", "5: [gateway] has no key 'zzz'. Use one of: name, identity_file, listen,"),
        ('[gateway]\nname = 3\nidentity_file = "x"\n', "2: [gateway] name: it must be text, not 3. Write the name"),
        ('[gateway]\nname = ""\nidentity_file = "x"\n', "2: [gateway] name: it must be text, not ''. Write the name"),
        (
            '[gateway]\nname = "a\\nb"\nidentity_file = "x"\n',
            "2: [gateway] name: 'a\\nb' is not a valid name. Use 1 to 64 bytes",
        ),
        (
            f'[gateway]\nname = "{"é" * 33}"\nidentity_file = "x"\n',
            "is not a valid name. Use 1 to 64 bytes of printable characters.",
        ),
        ('[gateway]\nname = "us"\nidentity_file = []\n', "3: [gateway] identity_file: it must be text, not a list. Write"),
        (
            '[gateway]\nname = "us"\nidentity_file = "x"\nlisten = "7450"\n',
            "4: [gateway] listen: the address '7450' is not host:port",
        ),
        (
            '[gateway]\nname = "us"\nidentity_file = "x"\nlisten = 7450\n',
            '4: [gateway] listen: it must be text, not 7450. Write it like "0.',
        ),
        (f'{GATEWAY}metrics = "x:99999"\n', "5: [gateway] metrics: the address 'x:99999' has no valid port. Use a number"),
        (f"{GATEWAY}metrics = {{}}\n", "5: [gateway] metrics: it must be text, not a table."),
        (f"{GATEWAY}audit_file = false\n", "5: [gateway] audit_file: it must be text, not false. Write the path"),
        (
            f"{GATEWAY}connections = 0\n",
            "5: [gateway] connections: it must be a whole number of connections from 1 to 8, not 0.",
        ),
        (
            f"{GATEWAY}connections = 9\n",
            "5: [gateway] connections: it must be a whole number of connections from 1 to 8, not 9.",
        ),
        (f"{GATEWAY}connections = true\n", "from 1 to 8, not true."),
        (f"{GATEWAY}connections = 2.0\n", "from 1 to 8, not 2.0."),
        (f'{GATEWAY}connections = "4"\n', "from 1 to 8, not '4'."),
        (f"{GATEWAY}bundles = 17\n", "5: [gateway] bundles: it must be a whole number of bundles from 1 to 16, not 17."),
        (
            f'{GATEWAY}congestion = "bbr2"\n',
            "5: [gateway] congestion: it must be one of 'bbr', 'cubic', '', not 'bbr2'. Did you mean 'bbr'?",
        ),
        (f"{GATEWAY}congestion = 1\n", "5: [gateway] congestion: it must be one of 'bbr', 'cubic', '', not 1."),
        (
            f"{GATEWAY}window_bytes = 1_000\n",
            "5: [gateway] window_bytes: it must be a whole number of bytes from 1_048_576 to 268_435_456",
        ),
        (f"{GATEWAY}window_bytes = 268_435_457\n", "from 1_048_576 to 268_435_456, not 268435457."),
        (
            f"{GATEWAY}channel_bytes = 1_048_576\n",
            "5: [gateway] channel_bytes: the windows of all channels together (1_048_576 bytes) are smaller",
        ),
        # [cloud.<alias>]
        (f"{GATEWAY}[cloud.EU]\n", "5: [cloud.'EU'] 'EU' is not a valid alias of a cloud. Use 1 to 32 of a-z"),
        (f'{GATEWAY}[cloud."a\\nb"]\n', "5: [cloud.'a\\nb'] 'a\\nb' is not a valid alias of a cloud."),
        (f"{GATEWAY}[cloud]\neu = 1\n", "6: cloud.eu is a table, not 1. Write [cloud.eu], and its keys below it."),
        (
            f"{GATEWAY}[cloud.eu]\n",
            '5: [cloud.eu] has no keys. Write keys = ["irisid1..."] with the output of `iris keys public FILE`',
        ),
        (f"{START}dail = []\n", "7: [cloud.eu] has no key 'dail'. Did you mean 'dial'?"),
        (f"{GATEWAY}[cloud.eu]\nkeys = 'x'\n", "6: [cloud.eu] keys: it must be a list of texts, not 'x'. Write keys ="),
        (f"{GATEWAY}[cloud.eu]\nkeys = []\n", "6: [cloud.eu] keys: it is an empty list. Write keys ="),
        (f"{GATEWAY}[cloud.eu]\nkeys = [\n1]\n", "7: [cloud.eu] keys: an entry must be text, not 1. Write keys ="),
        (
            f"{GATEWAY}[cloud.eu]\nkeys = {[key.public_text for key in KEYS[:3]]}\n",
            "6: [cloud.eu] keys: it has 3 entries, and 2 are allowed. Write keys =",
        ),
        (
            f'{GATEWAY}[cloud.eu]\nkeys = [\n"{KEYS[0].public_text}",\n"{KEYS[0].public_text}"]\n',
            f"8: [cloud.eu] keys: '{KEYS[0].public_text[: SHOWN_CHARACTERS_MAX - 1]}",
        ),
        (
            f'{GATEWAY}[cloud.eu]\nkeys = [\n"{KEYS[0].public_text}",\n" {KEYS[0].public_text}"]\n',
            "8: [cloud.eu] keys: this key is given twice. Leave one out.",
        ),
        (f'{GATEWAY}[cloud.eu]\nkeys = [\n"x"]\n', '7: [cloud.eu] keys: a public key of a cloud starts with "irisid1."'),
        (
            f'{GATEWAY}[cloud.eu]\nkeys = ["{KEYS[0].public_text[:-1]}?"]\n',
            "6: [cloud.eu] keys: a public key of a cloud has only letters",
        ),
        (
            f'{START}[cloud.asia]\nkeys = ["{KEYS[0].public_text}"]\n',
            "8: [cloud.asia] keys: this key is also in [cloud.eu], but a cloud has",
        ),
        (f'{START}dial = "x:1"\n', "7: [cloud.eu] dial: it must be a list of texts, not 'x:1'. Write dial ="),
        (f'{START}dial = ["x:0"]\n', "7: [cloud.eu] dial: the address 'x:0' has no valid port. Use a number from 1 to 65535."),
        (f'{START}dial = [\n"x:1", "x:1"]\n', "8: [cloud.eu] dial: 'x:1' is given twice. Leave one out."),
        (
            f"{START}dial = {[f'x:{port}' for port in range(1, 18)]}\n",
            "7: [cloud.eu] dial: it has 17 entries, and 16 are allowed.",
        ),
        (
            f"{START}bytes_per_s = -1\n",
            "7: [cloud.eu] bytes_per_s: it must be a whole number of bytes per second from 0 to 1_250_",
        ),
        (
            f"{START}price_per_gb = -0.1\n",
            "7: [cloud.eu] price_per_gb: it must be the price of 10^9 bytes, 0 or more, not -0.1. Write it like",
        ),
        (f"{START}price_per_gb = nan\n", "0 or more, not nan."),
        (f'{START}price_per_gb = "1 $"\n', "0 or more, not '1 $'."),
        (
            f'[gateway]\nname = "us"\nidentity_file = "x"\n[cloud.eu]\nkeys = ["{KEYS[0].public_text}"]\n',
            "4: [cloud.eu] has no dial, and [gateway] has no listen, so there can be no connection. Write dial = ",
        ),
        # [[export]]
        (f"{START}{EXPORT}", '7: [[export]] has neither cluster nor topic. Write one of them, as cluster = "scorers" or topic'),
        (f'{START}{EXPORT}cluster = "a"\ntopic = "b"\n', "10: [[export]] has both cluster and topic. Write one of them"),
        (f'{START}[[export]]\ncluster = "a"\n', '7: [[export]] has no to. Write the aliases of clouds, as to = ["eu"].'),
        (f'{START}[[export]]\nto = "eu"\ncluster = "a"\n', "8: [[export]] to: it must be a list of texts, not 'eu'."),
        (f'{START}[[export]]\nto = []\ncluster = "a"\n', "8: [[export]] to: it is an empty list."),
        (
            f'{START}[[export]]\nto = ["ue"]\ncluster = "a"\n',
            "8: [[export]] to: there is no cloud 'ue'. Write a table [cloud.ALIAS] for it. Use one of: eu.",
        ),
        (f'{START}[[export]]\nto = ["euu"]\ncluster = "a"\n', "for it. Did you mean 'eu'?"),
        (
            f'{GATEWAY}[[export]]\nto = ["eu"]\ncluster = "a"\n',
            "6: [[export]] to: there is no cloud 'eu'. Write a table [cloud.ALIAS] for it.",
        ),
        (f'{START}[[export]]\nto = ["eu",\n"eu"]\ncluster = "a"\n', "9: [[export]] to: 'eu' is given twice. Leave one out."),
        (f'{START}{EXPORT}cluster = "a"\nalow = []\n', "10: [[export]] has no key 'alow'. Did you mean 'allow'?"),
        (
            f"{START}{EXPORT}cluster = 1\n",
            '9: [[export]] cluster: it must be text, not 1. Write a name or pattern, as cluster = "scorers".',
        ),
        (
            f'{START}{EXPORT}topic = ""\n',
            "9: [[export]] topic: it must be text, not ''. Write a name or pattern, as topic = \"clicks.>\".",
        ),
        (f'{START}{EXPORT}topic = "a..b"\n', "9: [[export]] topic: the pattern 'a..b' has an empty token. Write text"),
        (f'{START}{EXPORT}topic = "a.>.b"\n', "9: [[export]] topic: the pattern 'a.>.b' continues after '>'. Write '>' as"),
        (f'{START}{EXPORT}cluster = "a*"\n', "9: [[export]] cluster: in the pattern 'a*', 'a*' mixes a wildcard with text."),
        (f'{START}{EXPORT}cluster = "a@eu"\n', "9: [[export]] cluster: 'a@eu' names 'a' of the cloud 'eu', but only"),
        (
            f'{START}{EXPORT}cluster = "iris.gateway"\n',
            "9: [[export]] cluster: 'iris.gateway' begins with 'iris.', which is reserved",
        ),
        (
            f'{START}{EXPORT}cluster = "a"\nas = "iris.x"\n',
            "10: [[export]] as: 'iris.x' begins with 'iris.', which is reserved",
        ),
        (
            f'{START}{EXPORT}cluster = "a"\nas = 1\n',
            "10: [[export]] as: it must be text, not 1. Write a name or pattern, or leave it out.",
        ),
        (
            f'{START}{EXPORT}topic = "a.*.>"\nas = "b.>"\n',
            "10: [[export]] as: 'b.>' has other wildcards than 'a.*.>', so names cannot be translated one to one. Use the "
            "same wildcards in the same order: * >.",
        ),
        (f'{START}{EXPORT}topic = "a"\nas = "b.*"\n', "10: [[export]] as: 'b.*' has other wildcards than 'a', so names"),
        (
            f'{START}{EXPORT}cluster = "a"\nallow = "request"\n',
            "10: [[export]] allow: it must be a list of texts, not 'request'. Use one or more",
        ),
        (
            f'{START}{EXPORT}cluster = "a"\nallow = []\n',
            "10: [[export]] allow: it is an empty list. Use one or more of: request, survey,",
        ),
        (
            f'{START}{EXPORT}cluster = "a"\nallow = ["publish"]\n',
            "10: [[export]] allow: 'publish' is only for topics. Use one of: request, survey",
        ),
        (
            f'{START}{EXPORT}topic = "a"\nallow = ["tunnel"]\n',
            "10: [[export]] allow: 'tunnel' is only for clusters. Use one of: subscribe, publish.",
        ),
        (
            f'{START}{EXPORT}topic = "a"\nallow = ["subscrbe"]\n',
            "10: [[export]] allow: there is no use 'subscrbe'. Did you mean 'subscribe'?",
        ),
        (
            f'{START}{EXPORT}cluster = "a"\nblock = true\n',
            "10: [[export]] block: it is only for topics, but this rule is for a cluster. Leave it",
        ),
        (
            f'{START}{EXPORT}cluster = "a"\nsubscriptions = 3\n',
            "10: [[export]] subscriptions: it is only for topics, but this rule",
        ),
        (
            f'{START}{EXPORT}topic = "a"\ntunnels = 3\n',
            "10: [[export]] tunnels: it is only for clusters, but this rule is for a topic.",
        ),
        (
            f'{START}{EXPORT}topic = "a"\nin_flight = 3\n',
            "10: [[export]] in_flight: it is only for clusters, but this rule is for a topic.",
        ),
        (
            f'{START}{EXPORT}topic = "a"\nrequests_per_s = 3\n',
            "10: [[export]] requests_per_s: it is only for clusters, but this rule",
        ),
        (
            f'{START}{EXPORT}cluster = "a"\nrequests_per_s = 0\n',
            "10: [[export]] requests_per_s: it must be a whole number of requests per second from 1",
        ),
        (
            f'{START}{EXPORT}cluster = "a"\nin_flight = 65_537\n',
            "10: [[export]] in_flight: it must be a whole number of requests from 1 to 65_536, not",
        ),
        (
            f'{START}{EXPORT}cluster = "a"\ntunnels = 0\n',
            "10: [[export]] tunnels: it must be a whole number of tunnels from 1 to 4_096, not 0.",
        ),
        (
            f'{START}{EXPORT}topic = "a"\nsubscriptions = 0\n',
            "10: [[export]] subscriptions: it must be a whole number of subscriptions from 1 to",
        ),
        (
            f'{START}{EXPORT}topic = "a"\nbytes_per_s = 0\n',
            "10: [[export]] bytes_per_s: it must be a whole number of bytes per second from 1 to",
        ),
        (
            f'{START}{EXPORT}topic = "a"\ntrace = "yes"\n',
            "10: [[export]] trace: it must be true or false, without quotes, not 'yes'.",
        ),
        (
            f'{START}{EXPORT}topic = "a"\naudit = "al"\n',
            "10: [[export]] audit: it must be one of 'totals', 'all', not 'al'. Did you mean 'all'?",
        ),
        (
            f'{START}{EXPORT}topic = "a.*"\n{EXPORT}topic = "*.b"\n',
            "10: [[export]] '*.b' and 'a.*' (line 7) are for the same topics of eu, and neither is more specific. Remove one",
        ),
        (
            f'{START}{EXPORT}cluster = "a"\n{EXPORT}cluster = "b"\nas = "a"\n',
            "10: [[export]] 'a' and 'a' (line 7) are for the same clusters of eu",
        ),
        # [[import]]
        (f"{START}{IMPORT}", "7: [[import]] has neither cluster nor topic."),
        (f'{START}[[import]]\ncluster = "a"\n', '7: [[import]] has no from. Write the aliases of clouds, as from = ["eu"].'),
        (f'{START}[[import]]\nfrom = ["x"]\ncluster = "a"\n', "8: [[import]] from: there is no cloud 'x'."),
        (
            f'{START}{IMPORT}cluster = "a"\nallow = []\n',
            "10: [[import]] has no key 'allow'. Use one of: from, cluster, topic, as, when.",
        ),
        (
            f'{START}{IMPORT}cluster = "a"\nas = "b"\nwhen = "ful"\n',
            "11: [[import]] when: it must be one of 'absent', 'full', not 'ful'. Did you",
        ),
        (
            f'{START}{IMPORT}cluster = "a"\nwhen = "full"\n',
            "10: [[import]] when: it is only for a cluster with a local name. Leave it out",
        ),
        (
            f'{START}{IMPORT}topic = "a"\nas = "b"\nwhen = "full"\n',
            "11: [[import]] when: it is only for a cluster with a local name.",
        ),
        (
            f'{START}{IMPORT}cluster = "a.*"\nas = "b.*"\n',
            "10: [[import]] as: 'b.*' has a wildcard, but the gateway must join a single cluster.",
        ),
        (f'{START}{IMPORT}cluster = "a"\nas = "x@eu"\n', "10: [[import]] as: 'x@eu' names 'x' of the cloud 'eu'"),
        (
            f'{START}{IMPORT}cluster = "a"\n{IMPORT}cluster = "a"\n',
            "10: [[import]] 'a' and 'a' (line 7) are for the same clusters of eu",
        ),
        (
            f'{START}{IMPORT}cluster = "a"\nas = "c"\n{IMPORT}cluster = "b"\nas = "c"\n',
            "11: [[import]] as: line 7 already assigns other clouds to the cluster 'c'. Write one rule with all clouds in from",
        ),
    ],
)
def test_each_mistake_is_told_with_its_line_and_what_to_write(text: str, expected: str) -> None:
    found = errors(text)
    assert any(expected in error for error in found), found
    assert all(error.endswith((".", "?")) for error in found), "each is a sentence"
    if expected.split(":")[0].isdigit():
        assert any(error.startswith(expected) for error in found), found


def test_one_mistake_is_told_once() -> None:
    assert len(errors(f'{START}{EXPORT}cluster = "a"\nalow = []\n')) == 1
    assert len(errors("[gateway\n")) == 1
    assert len(errors(f"{GATEWAY}[cloud.EU]\n{EXPORT}cluster = 'a'\n")) == 2


def test_all_mistakes_are_told_together_in_the_order_of_the_file() -> None:
    found = errors(f'{START}dail = 1\n{IMPORT}cluster = "a.."\n{EXPORT}topic = "b"\ntunnels = 2\nto_ = 1\n[gateway.x]\n')
    assert [int(error.split(":")[0]) for error in found] == [7, 10, 14, 15, 16]


def test_of_very_many_mistakes_the_first_ones_are_told() -> None:
    text = START + "".join(f"x{number} = 1\n" for number in range(PROBLEMS_MAX + 5))
    with pytest.raises(ConfigurationError) as caught:
        parse_settings(text, "federation.toml")
    lines = str(caught.value).split("\n")
    assert len(lines) == PROBLEMS_MAX + 1
    assert lines[-1] == "federation.toml: 5 more mistakes. Correct these first."


def test_a_long_value_is_cut_off() -> None:
    assert len(errors(f'{START}{EXPORT}cluster = "a"\nblock = "{"x" * 5000}"\n')[0]) < 300


@pytest.mark.parametrize("text", [KEYS[0].text, Secret(bytes(32)).text])
def test_no_error_shows_a_secret(text: str) -> None:
    for place in (f'dial = ["{text}"]', f'bytes_per_s = "{text}"', f'"{text}" = 1', f"# {text}", f'x = "{text}'):
        assert all(text[9:40] not in error for error in errors(f"{START}{place}\n"))


def test_more_clouds_than_a_gateway_has() -> None:
    text = clouds(65)
    assert errors(GATEWAY + text) == ["5: there are 65 clouds, and 64 are allowed. Remove clouds that are not used."]
    parse_settings(GATEWAY + text.split("[cloud.c65]")[0], "federation.toml")


def test_more_rules_than_a_gateway_has() -> None:
    rules = "".join(f'{EXPORT}cluster = "a{number}"\n' for number in range(1024))
    parse_settings(START + rules, "federation.toml")
    line = START.count("\n") + 1024 * 3 + 1
    assert errors(START + rules + IMPORT + 'cluster = "x"\n') == [
        f"{line}: there are 1025 rules, and 1024 are allowed. Join some of them by patterns."
    ]
    assert errors(START + rules + EXPORT + 'cluster = "x"\n') == [
        f"{line}: there are 1025 rules, and 1024 are allowed. Join some of them by patterns."
    ]


def test_more_exports_of_topics_than_a_node_has_memberships_for() -> None:
    topics = "".join(f'{EXPORT}topic = "a{number}"\n' for number in range(128))
    parse_settings(START + topics, "federation.toml")
    line = START.count("\n") + 128 * 3 + 1
    assert errors(START + topics + EXPORT + 'topic = "x"\n') == [
        f"{line}: there are 129 exports of topics, and 128 are allowed. Join some of them by patterns."
    ]


def test_more_stand_ins_than_there_are_ranks() -> None:
    names = [f"c{number}" for number in range(1, 9)]
    text = f'{GATEWAY}{clouds(8)}[[import]]\nfrom = {names}\ncluster = "a"\nas = "a"\n'
    assert errors(text) == ["22: [[import]] from: 8 clouds stand in for a cluster, but 7 are allowed. Remove some of them."]


def test_a_file_that_is_too_large() -> None:
    parse_settings(START + "#" * ((1 << 20) - len(START)), "federation.toml")
    assert errors(START + "#" * ((1 << 20) - len(START) + 1)) == [
        "1: the file has 1048577 bytes, and 1048576 are allowed. Join rules by patterns."
    ]


def test_a_neighbour_with_our_own_key() -> None:
    settings = parse_settings(START, "federation.toml")
    check_identity(settings, KEYS[1].public)
    with pytest.raises(ConfigurationError) as caught:
        check_identity(settings, KEYS[0].public)
    assert str(caught.value) == (
        "federation.toml:6: [cloud.eu] keys: this is the key of this cloud itself (identity_file). Ask 'eu' for its own, and "
        "let every cloud make one with `iris keys identity`."
    )


@pytest.mark.parametrize(
    ("pattern", "cluster", "is_refused"),
    [("vault", "vault", True), (">", "vault", True), ("x.*", "x.vault", True), ("x.*", "vault", False), ("vault", "x", False)],
)
def test_an_exported_cluster_with_a_secret_of_its_own(pattern: str, cluster: str, is_refused: bool) -> None:
    text = f'{START}{EXPORT}cluster = "{pattern}"\nas = "out.{pattern}"\n{EXPORT}topic = "{cluster}"\n'
    settings = parse_settings(text, "federation.toml")
    check_secrets(settings, [])
    if not is_refused:
        check_secrets(settings, [cluster])
        return
    with pytest.raises(ConfigurationError) as caught:
        check_secrets(settings, [cluster])
    assert str(caught.value) == (
        f"federation.toml:7: [[export]] cluster: {pattern!r} exports {cluster!r}, which has its own secret, but gateways "
        "read the payloads that they forward. Seal the payloads in the program (iris_py.Sealed) under a name without a "
        "cluster secret, or do not give the secret to this node."
    )


@given(st.text(max_size=200))
def test_any_text_is_settings_or_told_to_be_none(text: str) -> None:
    assert is_understood_or_refused(text)


VALUES = st.recursive(
    st.sampled_from(["true", "1", "-1", "0.5", "nan", '""', '"x"', '"eu"', '"*"', '"a.>"', "1979-05-27", '"request"']),
    lambda inner: st.lists(inner, max_size=2).map(lambda values: f"[{', '.join(values)}]") | inner.map("{{a = {}}}".format),
    max_leaves=3,
)
HEADERS = st.sampled_from(["[gateway]", "[cloud.eu]", "[cloud]", "[[cloud]]", "[[export]]", "[[import]]", "[export]", "[[x]]"])
KEY_NAMES = st.sampled_from(
    sorted(
        {*module._GATEWAY_KEYS, *module._CLOUD_KEYS, "to", "from", "cluster", "topic", "as", "allow", "when", "eu", "gateway"}
    )
)


@given(st.lists(st.tuples(HEADERS, st.dictionaries(KEY_NAMES, VALUES, max_size=4)), max_size=5))
def test_any_values_of_any_keys_are_settings_or_told_to_be_none(tables: list[tuple[str, dict[str, str]]]) -> None:
    text = "\n".join(
        [line for header, values in tables for line in [header, *(f"{key} = {value}" for key, value in values.items())]]
    )
    assert is_understood_or_refused(text)


PAGE = (Path(__file__).parents[4] / "docs" / "federation.md").read_text()


def test_the_page_explains_every_key_and_no_other() -> None:
    reference = PAGE.split("## Configuration reference", maxsplit=1)[1].split("\n## ", maxsplit=1)[0]
    explained: dict[str, set[str]] = {}
    table: set[str] = set()
    for line in reference.splitlines():
        if line.startswith("| `["):
            table = explained.setdefault(line.split("`")[1], set())
        elif line.startswith("| `"):
            table |= set(re.findall(r"`([a-z_]+)`", line.split("|")[1]))
    assert explained == {
        "[gateway]": set(module._GATEWAY_KEYS),
        "[cloud.<alias>]": set(module._CLOUD_KEYS),
        "[[export]]": set(settings._EXPORT_KEYS),
        "[[import]]": set(settings._IMPORT_KEYS),
    }


def test_the_examples_of_the_page_are_settings() -> None:
    rules = PAGE.split("## Rules: what crosses", maxsplit=1)[1].split("\n## ", maxsplit=1)[0]
    whole, more = (text for text in re.findall(r"```toml\n(.*?)```", rules, re.DOTALL) if "[[export]]" in text)
    whole = re.sub(r"irisid1\.-+", KEYS[0].public_text, whole)
    settings = parse_settings(whole, "federation.toml")
    assert [rule.outside for rule in settings.exports] == ["scorers", "clicks.>"]
    asia = f'[cloud.asia]\nkeys = ["{KEYS[1].public_text}"]\n'
    settings = parse_settings(START + asia + more, "federation.toml")
    assert settings.export_table("asia", "cluster").find("scorers.gpu") is settings.exports[1]
