"""The names of the dashboard's pages, and the head of each page, with the commands that show the same or act on it.

A page is named by its kind and perhaps an object: ``clusters``, ``cluster:quotes``, ``node:1f3a...``.
"""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from iris_py.overview.pair import AskedSummary, summary_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from iris_py.overview.readings import NetworkReading

__all__ = ["DETAILS_MAX", "KINDS", "LINES_MAX", "HeadMaker", "PageCommand", "PageHead", "PageName", "parse_page"]

#: Lines of a table in a page; the summary counts all. Too small: the page hides lines that a filter would find; too large: each
#: second costs megabytes for each viewer.
LINES_MAX: Final = 2_000
#: Events, failures and findings in a page: as many as people read.
DETAILS_MAX: Final = 200


class PageCommand(msgspec.Struct, frozen=True):
    """A command for a shell, beside a page that changes nothing by itself."""

    text: str
    """The effect of the command, as the end of a sentence that begins with the command."""
    command: str
    """The command; words in capitals stand for values of the user."""


class PageKind(NamedTuple):
    """A kind of pages."""

    same: Callable[[str], str]
    """Returns the command that shows the same, for the name of the object."""
    actions: Callable[[str], Sequence[PageCommand]]
    """Returns the commands that act on it."""
    has_name: bool = False
    """Whether a page of the kind needs the name of an object."""


def _no_actions(_name: str) -> Sequence[PageCommand]:
    return ()


def _join(name: str) -> PageCommand:
    return PageCommand("adds a member", f"iris join --exec COMMAND {word_of(name) if name else 'NAME'}")


def word_of(name: str) -> str:
    """Return a name of the network as the last word of a command line: for a shell, and not taken for an option."""
    return f"-- {shlex.quote(name)}" if name.startswith("-") else shlex.quote(name)


#: The kinds of pages.
KINDS: Final[Mapping[str, PageKind]] = {
    "overview": PageKind(
        lambda _name: "iris top", lambda _name: (PageCommand("examines the network and its machine", "iris doctor"),)
    ),
    "clusters": PageKind(lambda _name: "iris clusters", lambda _name: (_join(""),)),
    "cluster": PageKind(
        lambda name: f"iris members --stats {word_of(name)}",
        lambda name: (
            _join(name),
            PageCommand("measures the round trip to each member", f"iris ping {word_of(name)}"),
            PageCommand("shows the path of a request", f"iris trace {word_of(name)}"),
        ),
        has_name=True,
    ),
    "topics": PageKind(
        lambda _name: "iris topics",
        lambda _name: (
            PageCommand("prints the messages of a pattern", "iris subscribe PATTERN"),
            PageCommand("publishes a message", "iris publish TOPIC TEXT"),
        ),
    ),
    "topic": PageKind(
        lambda name: f"iris topics {word_of(name)}",
        lambda name: (PageCommand("prints its messages", f"iris subscribe {word_of(name)}"),),
        has_name=True,
    ),
    "nodes": PageKind(
        lambda _name: "iris nodes", lambda _name: (PageCommand("shows the nodes that have left or died", "iris nodes --gone"),)
    ),
    "node": PageKind(
        lambda name: f"iris top --node {shlex.quote(name[:8])}",
        lambda _name: (PageCommand("lets a node leave in order; run it on the host of the node", "kill -TERM PID"),),
        has_name=True,
    ),
    "links": PageKind(lambda _name: "iris topology", _no_actions),
    "ring": PageKind(
        lambda _name: "iris topology --svg ring.svg",
        lambda _name: (PageCommand("compares the neighbours of all nodes", "iris doctor --only ring"),),
    ),
    "clouds": PageKind(
        lambda _name: "iris federation status",
        lambda _name: (
            PageCommand("explains the path of a request", "iris federation explain NAME@CLOUD"),
            PageCommand("checks the file of a gateway", "iris gateway federation.toml --check"),
            PageCommand("lets a gateway read its file again; run it on its host", "kill -HUP PID"),
        ),
    ),
    "events": PageKind(lambda _name: "iris monitor", _no_actions),
    "findings": PageKind(
        lambda _name: "iris doctor",
        lambda _name: (PageCommand("examines a cluster and prints the commands that help", "iris doctor --fix-hints NAME"),),
    ),
    "door": PageKind(
        lambda _name: 'curl -H "Authorization: Bearer TOKEN" DOOR/metrics',
        lambda _name: (
            PageCommand("prints the rights of each role", "iris door web FILE --check"),
            PageCommand("makes a token for a client", "iris token new --sub SUBJECT --role ROLE"),
            PageCommand("ends a token at all doors", "iris token revoke ID"),
            PageCommand("lets the door read its file again; run it on its host", "kill -HUP PID"),
        ),
    ),
}


class PageName(NamedTuple):
    """The name of a page."""

    kind: str
    """A key of `KINDS`."""
    name: str = ""
    """The cluster, pattern or node id; empty for a page of the whole network."""

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}" if self.name else self.kind


class PageHead(msgspec.Struct, kw_only=True):
    """The head of every page."""

    page: str
    """The name of the page."""
    network: str
    """The name of the network."""
    unix_s: float
    """The time of the answers, by the clock of the door: seconds since 1970."""
    summary: AskedSummary
    """The nodes that answered."""
    command: str
    """The command that shows the same."""
    actions: list[PageCommand]
    """The commands that act on it; the dashboard itself changes nothing."""


def parse_page(text: str) -> PageName | None:
    """Return the name of a page; None if the page is unknown."""
    kind, mark, name = text.partition(":")
    if kind not in KINDS or KINDS[kind].has_name != bool(name) or bool(mark) != bool(name):
        return None
    return PageName(kind, name)


class HeadMaker(NamedTuple):
    """Makes the head of one page."""

    page: PageName
    network: str
    unix_s: float
    view: NetworkReading

    def head(self, total: int, shown_max: int = LINES_MAX) -> PageHead:
        """Return the head of the page.

        Args:
            total: The number of all lines.
            shown_max: The largest number of lines in the page.
        """
        kind = KINDS[self.page.kind]
        return PageHead(
            page=str(self.page),
            network=self.network,
            unix_s=self.unix_s,
            summary=summary_of(self.view.found, shown=min(shown_max, total), total=total),
            command=kind.same(self.page.name),
            actions=list(kind.actions(self.page.name)),
        )
