"""The table of settings: an entry gives the name of a setting, its type, its sources, its option and its description.

The entries are the keys of `ConnectSettings`, so type checkers and editors know them as the arguments of
:func:`iris_py.connect`. Everything else is read from the entries when a program runs: the variables, the keys of the file and
its schema, the options of the command line, the settings of Spark tasks, docstrings and pages. The checked value of a setting
is a field of `iris_py.config.Config`, with its default and its check. The entries name no checks, because the help of a
command reads this table, and the checks import the cryptography.
"""

import re
from typing import TYPE_CHECKING, Annotated, Final, Literal, NamedTuple, TypeAlias, TypedDict

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from iris_py.observe.journal import Observe
    from iris_py.tracing import TracingSetting
    from iris_security.keyring import Keyring
    from iris_security.secret import Secret

__all__ = [
    "ARGUMENTS",
    "FILE_KEYS",
    "KEYS_CHOICE",
    "SETTINGS",
    "VARIABLES",
    "ConnectArguments",
    "ConnectSettings",
    "FindSecret",
    "Option",
    "SecretLike",
    "Setting",
    "Shape",
    "variable_of",
]

SecretLike: TypeAlias = "Secret | str | bytes"
#: Finds the secret of a cluster by its name.
FindSecret: TypeAlias = "Callable[[str], SecretLike | Sequence[SecretLike] | None]"

#: The shape of a value in its sources. A variable has all shapes as text: addresses separated by commas, a command in the words
#: of a shell.
Shape: TypeAlias = Literal["text", "choice", "path", "flag", "number", "addresses", "command", "secret", "secrets", "object"]


class Option(NamedTuple):
    """The command-line option of a setting."""

    metavar: str
    help: str
    """The description; help texts append the environment variables."""
    name: str = ""
    """The option, by default from the name of the setting: ``--secret-file``. An option ``--no-...`` sets a flag to False."""
    other_variables: tuple[str, ...] = ()
    """Environment variables that set the option, beside the variable of the setting."""

    @property
    def is_negated(self) -> bool:
        """Whether the option sets a flag to False."""
        return self.name.startswith("--no-")


class Setting(NamedTuple):
    """An entry of the table: a setting, which is also an argument of :func:`iris_py.connect`."""

    shape: Shape
    text: str
    """The description, as in a docstring. Its first sentence describes the key of the file."""
    option: Option | None = None
    is_variable: bool = True
    """Whether an environment variable sets the setting: ``IRIS_`` and the name in capitals."""
    is_key: bool = True
    """Whether a key of the TOML file sets the setting."""
    name: str = ""
    """The name of the setting: its key in `ConnectSettings`."""
    type: str = ""
    """The type of the argument as text, as `ConnectSettings` states it."""

    def named(self, name: str, type: str) -> "Setting":  # noqa: A002
        """Return the entry with the name of its setting, and the type of its argument."""
        return self._replace(name=name, type=type)

    @property
    def summary(self) -> str:
        """The first sentence of the description, in Markdown."""
        return re.split(r"(?<=[.]) ", self.text)[0].replace("``", "`")

    @property
    def option_name(self) -> str:
        """The option on the command line, such as ``--secret-file``."""
        own = self.option.name if self.option is not None else ""
        return own or f"--{self.name.replace('_', '-')}"


class ConnectSettings(TypedDict, total=False):
    """The settings of a node, as arguments of :func:`iris_py.connect`. None leaves a setting to the lower sources."""

    network: Annotated[
        str | None,
        Setting("text", "The name of the network.", Option("NAME", "Name of the network.")),
    ]
    secret: Annotated[
        "SecretLike | Sequence[SecretLike] | None",
        Setting(
            "secret",
            "The network secret, as printed by ``iris keys new``. The first of several generations encrypts, the others only "
            "decrypt during a rotation (docs/security.md).",
        ),
    ]
    secret_file: Annotated[
        "str | Path | None",
        Setting(
            "path",
            "Instead of ``secret``: a file with the secret, one generation per line. Other users must not be able to write "
            "the file, and should not read it. :meth:`Node.reload_keys` reads it again.",
            Option("PATH", "File with the network secret.", other_variables=("IRIS_SECRET",)),
        ),
    ]
    secret_command: Annotated[
        "Sequence[str] | None",
        Setting(
            "command",
            "Instead of ``secret``: a command that prints the contents of a secret file, for example of a password manager: "
            'program and arguments, as in ``["pass", "show", "iris"]``. No shell interprets the command. It runs before the '
            "node starts, in a thread, for at most 30 s, and again in :meth:`Node.reload_keys`.",
            Option("COMMAND", "Command that prints the network secret."),
        ),
    ]
    keyring: Annotated[
        "Keyring | None",
        Setting("object", "Instead of ``secret``: keys made by the program itself.", is_variable=False, is_key=False),
    ]
    clusters: Annotated[
        "Mapping[str, SecretLike | Sequence[SecretLike]] | FindSecret | None",
        Setting(
            "secrets",
            "Secrets of single clusters, by name. All members and callers of a cluster with a secret need the secret; other "
            "nodes can neither read nor join the cluster. A keyring brings cluster secrets itself. Or a function from a name "
            "to the secret, or None for the network's: the event loop calls the function at the first use of a cluster.",
            is_variable=False,
        ),
    ]
    clusters_directory: Annotated[
        "str | Path | None",
        Setting("path", "A directory with cluster secrets, in files named after the clusters."),
    ]
    strict: Annotated[
        bool | None,
        Setting("flag", "Whether using a cluster without a secret of its own is an error."),
    ]
    administrator: Annotated[
        str | None,
        Setting(
            "text",
            "The public half of the administrator key, as printed by ``iris keys administrator``. The holder of the private "
            "half may rotate the network's secret in running nodes. The same for all nodes of the network. A keyring brings "
            "the administrator itself.",
        ),
    ]
    listen: Annotated[
        str | None,
        Setting(
            "text",
            "``host:port`` to listen on; port 0 takes a free one. ``0.0.0.0`` is every address of IPv4, ``[::]`` is every "
            "address of IPv6 and IPv4. If the port of this argument is taken, the node does not start. A port of the "
            "environment or the file is shared by all programs of the machine: while another node of the network has the "
            "port, this node takes another port, with a log line.",
            Option("HOST:PORT", "Address to listen on; by default loopback and any free port."),
        ),
    ]
    advertise: Annotated[
        "Sequence[str] | None",
        Setting(
            "addresses",
            "The addresses that other nodes dial instead, behind an address translator, a container's published port or a "
            "forwarder: ``host`` or ``host:port``, at most 8, the most reachable first. The default port is that of "
            "``listen``. The word ``listen`` stands for the listening address, for nodes on the same side. UDP has to arrive "
            "at the same port. Dialling nodes look up names each time; datagrams go to the first numeric address, and to none "
            "if all are names.",
            Option("HOST[:PORT]", "Address that others dial instead, behind NAT or in a container; repeatable."),
        ),
    ]
    seeds: Annotated[
        "Sequence[str] | None",
        Setting(
            "addresses",
            "``host:port`` of nodes to dial, besides the discovered ones.",
            Option("HOST:PORT", "A node to dial, in addition to discovered nodes; repeatable.", "--seed"),
        ),
    ]
    zone: Annotated[
        str | None,
        Setting(
            "text",
            "The location of this node, for example ``eu-west/a``.",
            Option("ZONE", "Location of this node, such as eu-west/a."),
        ),
    ]
    name: Annotated[
        str | None,
        Setting(
            "text",
            "The name of this node in lists, logs, errors and events of all nodes: at most 64 printable characters of ASCII. "
            'By default host and program, for example ``web-1/orders.py``; ``""`` for none. It is a label and proves nothing: '
            "two nodes may have the same name, and any node can take any name.",
            Option("NAME", "Label of this node; by default host/program."),
        ),
    ]
    discovery: Annotated[
        bool | None,
        Setting(
            "flag",
            "Whether to find nodes by beacons and remembered peers.",
            Option("", "Find nodes only through the seeds.", "--no-discovery"),
        ),
    ]
    max_message_bytes: Annotated[
        int | None,
        Setting(
            "number",
            "The largest payload of a request, reply or other message that this node sends: 16 MiB by default, at most 64 "
            "MiB. The node accepts up to 64 MiB from others.",
        ),
    ]
    tracing: Annotated[
        "TracingSetting",
        Setting(
            "flag",
            "Whether to make spans of OpenTelemetry. By default, if the program has set up OpenTelemetry before this call; "
            "True: also if the setup comes later; False: never. Or the tracer provider to use.",
        ),
    ]
    observe: Annotated[
        "Observe | None",
        Setting(
            "choice",
            "The answers to other nodes' questions about this node: "
            '``"all"``, the default; ``"counts"``, which are numbers without the names of clusters, topics, groups and peers; '
            'or ``"none"``.',
        ),
    ]
    busy_poll: Annotated[
        bool | None,
        Setting(
            "flag",
            "Whether the event loop polls instead of sleeping, for up to 250 us after a request while no other is in flight, "
            "and for up to 100 us after a reply. The default. It halves the round trip for hardly more processor time, "
            "because sleeping and waking take as much. Set False if processors are scarce. No effect with one processor.",
        ),
    ]


class ConnectArguments(ConnectSettings, total=False):
    """The arguments of `iris_py.connect`. None leaves a setting to environment and file."""

    config: "Path | None"


def variable_of(name: str) -> str:
    """Return the environment variable of a setting."""
    return f"IRIS_{name.upper()}"


def _entries() -> tuple[Setting, ...]:
    found = []
    for name, hint in ConnectSettings.__annotations__.items():
        argument, (setting,) = hint.__origin__, hint.__metadata__
        found.append(setting.named(name, getattr(argument, "__forward_arg__", None) or str(argument)))
    return tuple(found)


#: All settings, in the order of `ConnectSettings`.
SETTINGS: Final = _entries()
#: The arguments of :func:`iris_py.connect`, apart from ``config``.
ARGUMENTS: Final = tuple(setting.name for setting in SETTINGS)
#: The settings that are keys of the TOML file.
FILE_KEYS: Final = tuple(setting.name for setting in SETTINGS if setting.is_key)
#: The environment variables by setting; ``IRIS_CONFIG`` names the file.
VARIABLES: Final = {setting.name: variable_of(setting.name) for setting in SETTINGS if setting.is_variable} | {
    "config": variable_of("config")
}
#: The settings for the source of the keys. A layer has at most one of them.
KEYS_CHOICE: Final = ("keyring", "secret", "secret_file", "secret_command")
