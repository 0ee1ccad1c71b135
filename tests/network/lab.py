"""Sites of three hosts, each host a network namespace, with a long and lossy line between every two sites.

::

    a1 a2 a3                              b1 b2 b3       a namespace each, device eth0
     |  |  |                               |  |  |
    [ bridge ]                            [ bridge ]     10.77.1.0/24 and 10.77.2.0/24
    [ site a ]-- a-b == wire.py == a-b --[ site b ]      a namespace each, which routes

Sites are joined by routing alone, so multicast and the life of a packet (TTL) are as between real sites. No device of the lab
is ever outside the lab's namespaces, so nothing reaches the network of this machine.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import json
import os
import re
import select
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from iris_security import Secret
from tests.network.namespaces import Namespace, tool
from tests.network.wire import Condition, Counts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

SITES = ("a", "b")
HOSTS_PER_SITE = 3
#: Of the nodes: each host has a network of its own, so the same one everywhere is free.
PORT = 7400
#: For anything that has no time of its own, on a busy machine. Only a failing test waits for so long.
PATIENCE_S = 60.0
#: How often to look at what nobody announces, such as counters of the kernel.
LOOK_INTERVAL_S = 0.05
#: How far apart the sites are, as the two coasts of a continent.
FAR = Condition(delay_s=0.020, loss=0.01)
_ROOT = Path(__file__).resolve().parents[2]
_labs = itertools.count()


class Process:
    """A program of the lab: says lines of JSON, takes lines of JSON, and ends with its standard input.

    A line that is no object of JSON is an event "line" with its ``text``.
    """

    def __init__(self, lab: Lab, name: str, command: list[str], environment: dict[str, str]) -> None:
        self.name = name
        self.said: list[dict[str, Any]] = []
        "Everything that it has said, in order."
        self._unread = b""
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed in close(); a pipe would have to be emptied
        # A session of its own: Ctrl-C reaches the tests alone, which then end the processes.
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            cwd=_ROOT,
            env=environment,
            start_new_session=True,
        )
        self._lab = lab
        self.has_ended = False

    def fileno(self) -> int:
        """Return the descriptor of what it says."""
        assert self._process.stdout is not None
        return self._process.stdout.fileno()

    def read(self) -> None:
        """Take what it has said."""
        piece = os.read(self.fileno(), 1 << 20)
        if not piece:
            self.has_ended = True
        *lines, self._unread = (self._unread + piece).split(b"\n")
        for line in lines:
            said = json.loads(line) if line.startswith(b"{") else {"event": "line", "text": line.decode(errors="replace")}
            self.said.append(said)
            if said.get("event") == "failed":
                raise AssertionError(f"{self.name}: {said['error']}")

    def tell(self, **values: object) -> None:
        """Say something to it."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(values).encode() + b"\n")
        self._process.stdin.flush()

    def wait_for(self, event: str, *, after: int = 0, within_s: float = PATIENCE_S) -> dict[str, Any]:
        """Wait until it says something of a kind, and return that.

        Args:
            event: What.
            after: How many of what it said do not count.
            within_s: When to give up.
        """

        def found() -> list[dict[str, Any]]:
            return [said for said in itertools.islice(self.said, after, None) if said.get("event") == event]

        self._lab.until(found, f"{self.name} says {event!r}", within_s=within_s)
        return found()[0]

    def do(self, event: str, /, **command: object) -> dict[str, Any]:
        """Give a command, and return what is said in answer."""
        before = len(self.said)
        self.tell(**command)
        return self.wait_for(event, after=before)

    def errors(self) -> str:
        """Return what it wrote to the standard error."""
        self._errors.seek(0)
        return self._errors.read().decode(errors="replace").strip()

    def signal(self, number: int) -> None:
        """Send it a signal: SIGTERM, or SIGSTOP and SIGCONT to let it stand still."""
        self._process.send_signal(number)

    def wait(self, *, within_s: float = PATIENCE_S) -> int:
        """Wait until it has ended, and return its code."""
        self._lab.until(lambda: self._process.poll() is not None, f"{self.name} ends", within_s=within_s)
        return self._process.returncode

    def kill(self) -> None:
        """End it as a crash does."""
        self._process.kill()
        self._process.wait()

    def close(self) -> None:
        """End it, and give back everything that it held."""
        self.kill()
        for stream in (self._process.stdin, self._process.stdout, self._errors):
            assert stream is not None
            with contextlib.suppress(BrokenPipeError):
                stream.close()


class Member(Process):
    """A node process on a host; see member.py."""

    def views(self, cluster: str) -> list[tuple[float, frozenset[str]]]:
        """Return every view of a cluster that it has told, each with its time, by the names of the members."""
        told = (said for said in self.said if said["event"] == "view" and said["cluster"] == cluster)
        return [(said["at"], self._lab.names(said["ids"])) for said in told]

    def view(self, cluster: str) -> frozenset[str] | None:
        """Return its present view of a cluster, or None before the first."""
        views = self.views(cluster)
        return views[-1][1] if views else None

    def request(self, cluster: str, count: int, lanes: int = 1) -> dict[str, Any]:
        """Make requests; returns who answered how often (``answers``), and what failed (``failures``)."""
        return self.do("requested", do="request", cluster=cluster, count=count, lanes=lanes)

    def asked(self, cluster: str) -> list[dict[str, Any]]:
        """Return what became of the requests of the command ``ask``, in the order in which they began."""
        asked = (said for said in self.said if said["event"] == "asked" and said["cluster"] == cluster)
        return sorted(asked, key=lambda said: float(said["began"]))


class Host:
    """One machine of the lab."""

    def __init__(self, namespace: Namespace, site: str, address: str) -> None:
        self.namespace = namespace
        self.site = site
        self.address = address


class Lab(contextlib.ExitStack):
    """The sites, the lines between them, and the processes there. Everything is gone when the ``with`` block ends."""

    sites: tuple[str, ...] = SITES

    def __enter__(self) -> Self:
        super().__enter__()
        try:
            self._build()
        except BaseException:
            self.close()
            raise
        return self

    def _build(self) -> None:
        self._prefix = f"iris-{os.getpid()}-{next(_labs)}-"
        self._directory = Path(self.enter_context(tempfile.TemporaryDirectory(prefix=self._prefix)))
        self._processes: list[Process] = []
        self._environment = {key: value for key, value in os.environ.items() if not key.startswith(("IRIS_", "XDG_"))}
        self._environment["IRIS_SECRET_FILE"] = self.make_secret("secret")
        self.hosts: dict[str, Host] = {}
        self.members: dict[str, Member] = {}
        self._sites = {site: self._build_site(number, site) for number, site in enumerate(self.sites, start=1)}
        self.wires = {frozenset(pair): self._lay_wire(*pair) for pair in itertools.combinations(self.sites, 2)}

    def _build_site(self, number: int, site: str) -> Namespace:
        router = self._namespace(site)
        router.configure("link set lo up", "link add bridge type bridge mcast_snooping 0", "link set bridge up")
        router.configure(f"address add 10.77.{number}.1/24 dev bridge")
        router.write("ipv4/ip_forward", "1")
        for count in range(1, HOSTS_PER_SITE + 1):
            name, address = f"{site}{count}", f"10.77.{number}.{10 + count}"
            host = self._namespace(name)
            router.configure(
                f"link add {name} type veth peer name eth0 netns {host.name}",
                f"link set {name} master bridge",
                f"link set {name} up",
            )
            host.configure(
                "link set lo up",
                f"address add {address}/24 dev eth0",
                "link set eth0 up",
                f"route add default via 10.77.{number}.1",
            )
            self.hosts[name] = Host(host, site, address)
        return router

    def _lay_wire(self, a: str, b: str) -> Process:
        """Lay the line between two sites, by which each reaches the other."""
        device = self.device(a, b)
        names = [self._sites[site].name for site in (a, b)]
        wire = self._start(Process(self, f"wire {device}", self._python("wire", *names, device), self._environment))
        wire.wait_for("ready")
        for here, there in ((a, b), (b, a)):
            number = 1 + self.sites.index(there)
            self._sites[here].configure(f"link set {device} up", f"route add 10.77.{number}.0/24 dev {device}")
        return wire

    def device(self, a: str, b: str) -> str:
        """Return the name that the line between two sites has at both of its ends."""
        return "-".join(sorted((a, b), key=self.sites.index))

    def make_secret(self, name: str) -> str:
        """Make a new secret of a network, and return the path of its file."""
        secret = self._directory / name
        secret.touch(mode=0o600)
        secret.write_text(Secret.generate(os.urandom).text + "\n")
        return str(secret)

    def _namespace(self, name: str) -> Namespace:
        return self.enter_context(Namespace(self._prefix + name))

    def _start(self, process: Process) -> Process:
        self.callback(process.close)
        self._processes.append(process)
        return process

    @staticmethod
    def _python(module: str, *arguments: str) -> list[str]:
        return [sys.executable, "-m", f"tests.network.{module}", *arguments]

    # -- what tests do

    def set_wire(self, condition: Condition, a: str = "a", b: str = "b") -> Counts:
        """Change the line between two sites; returns what passed before. When this returns, the change is made."""
        said = self.wires[frozenset((a, b))].do("counts", **dataclasses.asdict(condition))
        return Counts(said["passed"], said["lost"], said["cut"])

    def start(self, host: str, *clusters: str) -> Member:
        """Start a node on a host, member of some clusters, without waiting for it.

        Its seeds are the first hosts of the sites of its network. It remembers nobody, for its directories are new.
        """
        command = self._python("member", host, ",".join(clusters))
        member = Member(self, host, self._inside(host, command), self.environment(host))
        self._start(member)
        self.members[host] = member
        return member

    def run(self, name: str, host: str, command: list[str], **environment: str) -> Process:
        """Start a program on a host, with the environment of a node there, without waiting for it.

        Args:
            name: What to call it in errors.
            host: Where.
            command: The program and its arguments; it runs in the folder of this repository.
            environment: What to add to the environment, or to replace there.
        """
        return self._start(Process(self, name, self._inside(host, command), self.environment(host) | environment))

    def run_member(self, name: str, host: str, module: str, clusters: Iterable[str], **environment: str) -> Member:
        """Start a program that takes the arguments of a member and says what one says, as :meth:`run`.

        Args:
            name: Of the member.
            host: Where.
            module: The program, of this folder.
            clusters: The clusters that it serves.
            environment: What to add to the environment, or to replace there.
        """
        command = self._inside(host, self._python(module, name, ",".join(clusters)))
        member = Member(self, name, command, self.environment(host) | environment)
        self._start(member)
        self.members[name] = member
        return member

    def run_module(self, name: str, host: str, module: str, *arguments: str) -> Process:
        """Start a program of this folder on a host, as :meth:`run`."""
        return self.run(name, host, self._python(module, *arguments))

    def path(self, name: str) -> Path:
        """Return the path of a file that is gone when the lab ends."""
        return self._directory / name

    def environment(self, host: str) -> dict[str, str]:
        """Return the environment of a node on a host."""
        where = self.hosts[host]
        seeds = [f"{self.hosts[f'{site}1'].address}:{PORT}" for site in self.network_of(where.site) if host != f"{site}1"]
        directory = self._directory / host
        return self._environment | {
            "IRIS_LISTEN": f"{where.address}:{PORT}",
            "IRIS_SEEDS": ",".join(seeds),
            "IRIS_ZONE": where.site,
            "IRIS_NAME": host,
            "XDG_CONFIG_HOME": str(directory / "config"),
            "XDG_STATE_HOME": str(directory / "state"),
        }

    def network_of(self, site: str) -> tuple[str, ...]:
        """Return the sites that are one network with a site."""
        assert site in self.sites
        return self.sites

    def _inside(self, host: str, command: list[str]) -> list[str]:
        return [tool("ip"), "netns", "exec", self.hosts[host].namespace.name, *command]

    def populate(self, clusters: dict[str, list[str]], *, watch: str) -> None:
        """Start a node on every host, and wait until all see the members of the cluster to watch.

        Args:
            clusters: Hosts by the cluster that they serve.
            watch: The cluster whose view every node tells from now on.
        """
        for host in self.hosts:
            self.start(host, *(cluster for cluster, served in clusters.items() if host in served))
        for member in self.members.values():
            member.wait_for("serving")
            member.tell(do="watch", cluster=watch)
        expected = frozenset(clusters[watch])
        self.until(lambda: all(one.view(watch) == expected for one in self.members.values()), f"all see all of {watch!r}")

    def cut_off(self, host: str) -> None:
        """Let nothing pass between a host and its site, in silence: it keeps its device, and no packet comes through."""
        for namespace, device in self._ends(host):
            hook = f"type filter hook ingress device {device} priority 0;"
            namespace.filter(f"table netdev cut_{host} {{ chain ingress {{ {hook} counter drop; }} ; }}")

    def dropped(self, host: str) -> list[int]:
        """Return how many packets :meth:`cut_off` has dropped so far: from the host, and to it."""
        listings = [namespace.filter(f"list table netdev cut_{host}") for namespace, _ in self._ends(host)]
        return [int(count) for listing in listings for count in re.findall(r"packets (\d+)", listing)]

    def reconnect(self, host: str) -> None:
        """End :meth:`cut_off`."""
        for namespace, _ in self._ends(host):
            namespace.filter(f"delete table netdev cut_{host}")

    def _ends(self, host: str) -> list[tuple[Namespace, str]]:
        """Return both ends of a host's cable, each the one where the packets of the other come in."""
        where = self.hosts[host]
        return [(self._sites[where.site], host), (where.namespace, "eth0")]

    def use_name_server(self, host: str, address: str) -> None:
        """Let programs that are started on a host from now on look up names at an address."""
        self.hosts[host].namespace.use_name_server(address)

    def shield(self, host: str) -> None:
        """Let a host take part in conversations that it began itself, and in no others, as behind a firewall."""
        self.hosts[host].namespace.filter(
            "table inet shield { chain input { type filter hook input priority 0; iifname eth0 ct state new drop; } ; }"
        )

    def names(self, ids: list[str]) -> frozenset[str]:
        """Return the names of the members with these ids; an id of nobody stands for itself."""
        known = {said["id"]: member.name for member in self.members.values() for said in member.said if "id" in said}
        return frozenset(known.get(id_, id_) for id_ in ids)

    def until(self, condition: Callable[[], object], what: str, *, within_s: float = PATIENCE_S) -> None:
        """Read what the processes say until something is the case.

        Args:
            condition: What; looked at after everything that is said, and every now and then.
            what: The same in words.
            within_s: When to fail, in seconds.
        """
        deadline = time.monotonic() + within_s
        while not condition():
            left = deadline - time.monotonic()
            if left <= 0:
                raise AssertionError(f"not the case within {within_s:.1f} s: {what}\n{self._account()}")
            speaking = [process for process in self._processes if not process.has_ended]
            readable, _, _ = select.select(speaking, [], [], min(left, LOOK_INTERVAL_S))
            for process in readable:
                process.read()

    def _account(self) -> str:
        """Say what each process said last."""
        lines = []
        for process in self._processes:
            lines.append(f"{process.name}: {process.said[-1] if process.said else 'nothing said'}")
            if errors := process.errors():
                lines.append(errors[-2000:])
        return "\n".join(lines)
