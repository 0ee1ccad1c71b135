"""Poses as nats-server for the tests of a client: translates the arguments into the settings of a door, and runs the door.

Servers with ``--routes`` are doors of one network, the other ones doors of networks of their own. ``SIGUSR2`` is the lame duck
mode of nats-server, so it ends the door as ``SIGTERM`` does. The port of ``-m`` answers ``/varz`` once the door listens.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import signal
import socket
import sys
import threading
import urllib.request
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from iris_py.doors.nats.passwords import hash_password, hash_token
from iris_security import Secret
from tests.nats.configuration import read_configuration

#: Where the stand-in keeps the files of doors: below the home of the tests.
HOME = Path.home()


def main() -> None:
    arguments = _arguments()
    configuration: dict[str, Any] = {}
    if arguments.config:
        configuration = read_configuration(Path(arguments.config).read_text(encoding="utf-8"))
    port = arguments.port if arguments.port is not None else int(configuration.get("port", 4222))
    directory = HOME / f"door-{port}-{os.getpid()}"
    directory.mkdir(parents=True)
    file = directory / "door.toml"
    file.write_text(_settings(arguments, configuration, port), encoding="utf-8")
    _set_environment(arguments, directory)
    metrics = _free_port()
    threading.Thread(target=_answer_monitors, args=(arguments.monitor, port, metrics), daemon=True).start()
    signal.signal(signal.SIGUSR2, lambda _number, _frame: os.kill(os.getpid(), signal.SIGTERM))
    from iris_py.cli import main as run_command  # after the environment is set

    sys.argv = ["iris", "door", "nats", str(file), "--http", f"127.0.0.1:{metrics}"]
    run_command()


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("-p", dest="port", type=int)
    parser.add_argument("-m", dest="monitor", type=int, required=True)
    parser.add_argument("-a", dest="address", default="127.0.0.1")
    parser.add_argument("--user", default="")
    parser.add_argument("--pass", dest="password", default="")
    parser.add_argument("--auth", default="")
    parser.add_argument("--tls", action="store_true")
    parser.add_argument("--tlsverify", action="store_true")
    for name in ("--tlscert", "--tlskey", "--tlscacert", "--cluster_listen", "--cluster_name", "--routes", "--config"):
        parser.add_argument(name, default="")
    return parser.parse_args()


def _settings(arguments: argparse.Namespace, configuration: dict[str, Any], port: int) -> str:
    """Return the settings of the door."""
    lines = ["[nats]", f"listen = {_text(f'{arguments.address}:{port}')}"]
    tls = configuration.get("tls", {})
    certificate, key = tls.get("cert_file", arguments.tlscert), tls.get("key_file", arguments.tlskey)
    if certificate:
        lines += [f"certificate_file = {_text(_path(certificate))}", f"key_file = {_text(_path(key))}"]
    authority = tls.get("ca_file", arguments.tlscacert)
    if authority and (arguments.tlsverify or tls.get("verify") == "true"):
        lines.append(f"client_ca_file = {_text(_path(authority))}")
    if tls.get("handshake_first") == "true":
        lines.append("tls_first = true")
    if no_user := configuration.get("no_auth_user"):
        lines.append(f"no_user = {_text(no_user)}")
    for name, credentials, rights in _users(arguments, configuration):
        lines += ["", f"[users.{_text(name)}]", credentials]
        lines += [f"{use} = [{', '.join(map(_text, rules))}]" for use, rules in rights.items()]
    return "\n".join(lines) + "\n"


def _users(arguments: argparse.Namespace, configuration: dict[str, Any]) -> list[tuple[str, str, dict[str, list[str]]]]:
    """Return the users: names, credentials, and rules by use."""
    anything = {"publish": [">"], "subscribe": [">"]}
    users = []
    if arguments.user:
        users.append((arguments.user, _password(arguments.password), anything))
    if arguments.auth:
        users.append(("token", f"token = {_text(hash_token(arguments.auth))}", anything))
    for account in configuration.get("accounts", {}).values():
        for number, user in enumerate(account.get("users", [])):
            name = user.get("user", f"nkey-{number}")
            credentials = f"nkey = {_text(user['nkey'])}" if "nkey" in user else _password(user["pass"])
            rights = {
                use: [*rules.get("allow", []), *(f"!{rule}" for rule in rules.get("deny", []))]
                for use, rules in user.get("permissions", {}).items()
            }
            users.append((name, credentials, rights or anything))
    return users


def _password(password: str) -> str:
    return f"password = {_text(hash_password(password, os.urandom(16)).text())}"


def _path(name: str) -> str:
    """Return the path of a file that is named as from the parent of the directory of the tests."""
    path = Path(name)
    return str(next((each for each in (path, Path("..") / path) if each.is_file()), path).absolute())


def _text(value: str) -> str:
    """Return a string as TOML writes it."""
    return json.dumps(value)


def _set_environment(arguments: argparse.Namespace, directory: Path) -> None:
    """Set the network and its secret: one for all servers with the same first route, else one of its own."""
    route = arguments.routes.split(",")[0]
    seed = sha256(f"{os.getppid()} {route}".encode()).digest() if route else os.urandom(32)
    os.environ["IRIS_SECRET"] = Secret(seed).text
    os.environ["IRIS_NETWORK"] = f"suite-{seed.hex()[:8]}"
    for name in ("XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_RUNTIME_DIR"):
        os.environ[name] = str(directory)


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def _answer_monitors(port: int, door: int, metrics: int) -> None:
    """Answer at the port of nats-server's monitor: an error until the door listens, then the numbers that tests read."""

    class Monitor(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            with contextlib.suppress(OSError):
                found = _numbers(metrics)
                with socket.create_connection(("127.0.0.1", door), 5):
                    body = json.dumps(_monitored(self.path, found)).encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)
                return
            self.send_error(503)

        def log_message(self, *_arguments: object) -> None:
            """Log nothing."""

    ThreadingHTTPServer(("127.0.0.1", port), Monitor).serve_forever()


def _numbers(port: int) -> dict[str, float]:
    """Return the metrics of the door, by name with labels."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
        text = answer.read().decode()
    return {name: float(value) for name, value in re.findall(r"^(iris_door\S*) (\S+)$", text, re.MULTILINE)}


def _monitored(path: str, numbers: dict[str, float]) -> dict[str, Any]:
    """Return the counts of all clients together, as nats-server tells them at a path."""
    counts: dict[str, Any] = {
        f"{way}_{what}": _sum(numbers, metric, f'way="{way}"')
        for way in ("in", "out")
        for what, metric in (("msgs", "iris_door_messages_total"), ("bytes", "iris_door_bytes_total"))
    }
    if path != "/connz":
        return counts
    subscriptions = _sum(numbers, "iris_door_client_subscriptions")
    return {"connections": [{**counts, "subscriptions": subscriptions}] * _sum(numbers, "iris_door_connections{")}


def _sum(numbers: dict[str, float], metric: str, label: str = "") -> int:
    return int(sum(value for name, value in numbers.items() if name.startswith(metric) and label in name))


if __name__ == "__main__":
    main()
